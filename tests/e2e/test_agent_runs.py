"""Tests an agent's run through a whole gateway: up where it is stuck, however its context comes."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.e2e.gateway_process import DEVELOPMENT_KEY, GatewayProcess

HEADERS = {"authorization": f"Bearer {DEVELOPMENT_KEY}"}
ASK = {"role": "user", "content": "Say hello."}
TOOLS = [{"type": "function", "name": "shell", "parameters": {"type": "object"}}]
FAILURE = "Process exited with code 2\nOutput:\nmake: *** [all] Error 2"


@pytest.fixture
def http(gateway: GatewayProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=gateway.url, headers=HEADERS, timeout=60) as http:
        yield http


def step(number: int, command: str, output: str) -> list[dict[str, Any]]:
    call_id, arguments = f"call_{number}", json.dumps({"command": command})
    return [
        {"type": "function_call", "call_id": call_id, "name": "shell", "arguments": arguments},
        {"type": "function_call_output", "call_id": call_id, "output": output},
    ]


def routing(http: httpx.Client, **body: Any) -> tuple[dict[str, Any], str]:
    asked = {"model": "auto", "tools": TOOLS, "max_output_tokens": 16, "tool_choice": "none"}
    answer = http.post("/v1/responses", json=asked | body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()["routing"]
    return found, answer.json()["id"]


STUCK = [step(number, "make", FAILURE) for number in range(3)]
CLEAN = [
    step(1, "cat notes.md", "# FAILED builds are logged here"),
    step(2, "sed -i s/a/b/ notes.md", "Process exited with code 0\nOutput:\n"),
    step(3, "pytest -q", "Process exited with code 0\nOutput:\n3 passed in 0.1s"),
]


@pytest.mark.parametrize(("steps", "routes"), [(STUCK, "fdd"), (CLEAN, "fff")])
@pytest.mark.parametrize("sent", ["whole", "chained"])
def test_a_stuck_run_goes_to_the_deep_engine(
    http: httpx.Client, steps: list[list[dict[str, Any]]], routes: str, sent: str
) -> None:
    first, parent = routing(http, input=[ASK])
    assert first["route"] == "fast"
    history, went = [ASK], []
    for taken in steps:
        history += taken
        if sent == "whole":
            found, _ = routing(http, input=history, store=False)
        else:
            found, parent = routing(http, input=taken, previous_response_id=parent)
        went.append(found["route"][0])
    assert "".join(went) == routes, found["why"]
    if routes.endswith("d"):
        assert "the same failure again" in found["why"]


def test_a_complaint_in_another_language_goes_to_the_deep_engine(http: httpx.Client) -> None:
    answered = {"role": "assistant", "content": "Hello."}
    complaint = {"role": "user", "content": "Das hat nicht funktioniert."}
    found, _ = routing(http, input=[ASK, answered, complaint])
    assert (found["route"], found["reason"]) == ("deep", "evidence"), found["why"]


def test_a_named_model_is_not_overruled(http: httpx.Client) -> None:
    items = [ASK, *STUCK[0], *STUCK[1]]
    found, _ = routing(http, input=items, model="lanewise-fast")
    assert (found["route"], found["reason"]) == ("fast", "model")


def test_codex_says_who_asks(http: httpx.Client) -> None:
    for label, route in (("review", "deep"), ("compact", "fast")):
        metadata = {"thread_id": "t", "x-openai-subagent": label}
        found, _ = routing(http, input=[ASK], client_metadata=metadata)
        assert (found["route"], found["reason"]) == (route, "rule"), found["why"]
