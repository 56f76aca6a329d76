"""Tests Codex' turn state: it is given as a turn begins, taken back, and cannot forge an engine."""

import json
from typing import Any

import httpx
import pytest
import websockets

from tests.e2e.gateway_process import DEVELOPMENT_KEY, GatewayProcess

HEADERS = {"authorization": f"Bearer {DEVELOPMENT_KEY}"}
CODEX = HEADERS | {"originator": "codex_exec"}
NAME = "x-codex-turn-state"
TERMINALS = ("response.completed", "response.incomplete")


def post(
    gateway: GatewayProcess, headers: dict[str, str], **body: Any
) -> tuple[dict[str, Any], httpx.Headers]:
    asked = {"model": "auto", "input": "Say hello.", "max_output_tokens": 16, "store": False}
    answer = httpx.post(
        f"{gateway.url}/v1/responses", json=asked | body, headers=headers, timeout=60
    )
    assert answer.status_code == 200, answer.text
    if body.get("stream"):
        return {}, answer.headers
    routing: dict[str, Any] = answer.json()["routing"]
    return routing, answer.headers


DEEP = {"metadata": {"route": "deep"}}


@pytest.mark.parametrize("stream", [False, True])
def test_over_http_a_header_holds_the_turn_to_its_engine(
    gateway: GatewayProcess, stream: bool
) -> None:
    _, given = post(gateway, CODEX, **DEEP, stream=stream)
    routing, again = post(gateway, CODEX | {NAME: given[NAME]})
    assert (routing["route"], routing["reason"]) == ("deep", "sticky"), routing["why"]
    assert NAME not in again, "the first of a turn counts"
    routing, _ = post(gateway, CODEX, client_metadata={NAME: given[NAME]})
    assert routing["route"] == "deep", "the body says it, too"
    assert post(gateway, CODEX)[0]["route"] == "fast", "another turn"


def test_only_codex_gets_one(gateway: GatewayProcess) -> None:
    assert NAME not in post(gateway, HEADERS)[1]


def test_one_that_is_not_ours_is_ignored_and_replaced(gateway: GatewayProcess) -> None:
    _, given = post(gateway, CODEX, **DEEP)
    state = given[NAME]
    for forged in ("gpu", "lt1.-.Z3B1", state[:-6] + "AAAAAA", 10_000 * "x"):
        routing, again = post(gateway, CODEX | {NAME: forged})
        assert routing["route"] == "fast"
        assert NAME in again


def test_a_named_model_is_not_overruled_by_it(gateway: GatewayProcess) -> None:
    _, given = post(gateway, CODEX, **DEEP)
    routing, _ = post(gateway, CODEX | {NAME: given[NAME]}, model="lanewise-fast")
    assert (routing["route"], routing["reason"]) == ("fast", "model")


async def events_of(socket: websockets.ClientConnection, **body: Any) -> list[dict[str, Any]]:
    asked = {"model": "auto", "input": "Say hello.", "max_output_tokens": 16, "store": False}
    await socket.send(json.dumps({"type": "response.create"} | asked | body))
    events: list[dict[str, Any]] = []
    while not events or events[-1]["type"] not in TERMINALS:
        events.append(json.loads(await socket.recv()))
        assert events[-1]["type"] != "error", events[-1]
    return events


async def test_on_a_socket_an_event_comes_before_the_response(gateway: GatewayProcess) -> None:
    async with websockets.connect(gateway.socket_url, additional_headers=CODEX) as socket:
        warmed = await events_of(socket, generate=False)
        assert warmed[0]["type"] == "response.created", "a warm-up is of no turn"
        told, *rest = await events_of(socket, **DEEP)
        assert rest[0]["type"] == "response.created"
        assert [event["sequence_number"] for event in rest] == list(range(len(rest)))
        assert (told["type"], list(told["headers"])) == ("response.metadata", [NAME])
    async with websockets.connect(gateway.socket_url, additional_headers=CODEX) as socket:
        events = await events_of(socket, client_metadata=told["headers"])
        assert events[0]["type"] == "response.created"
        assert events[-1]["response"]["routing"]["route"] == "deep"
    async with websockets.connect(gateway.socket_url, additional_headers=HEADERS) as socket:
        events = await events_of(socket)
        assert events[0]["type"] == "response.created", "others may not know the event"
