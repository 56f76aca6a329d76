"""Tests sockets as a browser opens them: an origin, and the credential among the subprotocols."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
import websockets
from websockets.typing import Origin, Subprotocol

from tests.e2e.admin_api import ask
from tests.e2e.gateway_process import DEVELOPMENT_KEY, GatewayProcess


@pytest.fixture
def http(gateway: GatewayProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=gateway.url, timeout=60.0) as client:
        yield client


def new_ticket(http: httpx.Client, key: str = DEVELOPMENT_KEY) -> dict[str, Any]:
    answer = http.post("/v1/socket_tickets", headers={"authorization": f"Bearer {key}"})
    assert answer.status_code == 200, answer.text
    ticket: dict[str, Any] = answer.json()
    return ticket


def opening(
    gateway: GatewayProcess, *protocols: str, origin: str | None = None
) -> websockets.connect:
    return websockets.connect(
        gateway.socket_url,
        subprotocols=[Subprotocol(each) for each in protocols],
        origin=None if origin is None else Origin(origin),
    )


async def refusal(connecting: websockets.connect) -> tuple[int, str]:
    with pytest.raises(websockets.InvalidStatus) as refused:
        await connecting
    answer = refused.value.response
    return answer.status_code, json.loads(answer.body or b"{}")["error"]["code"]


async def speaks(socket: websockets.ClientConnection) -> bool:
    create = {"type": "response.create", "model": "lanewise-fast", "input": "Say hi."}
    await socket.send(json.dumps(create))
    async for frame in socket:
        kind = json.loads(frame)["type"]
        if kind in ("response.completed", "error"):
            return bool(kind == "response.completed")
    return False


async def test_a_ticket_opens_one_socket(gateway: GatewayProcess, http: httpx.Client) -> None:
    ticket = new_ticket(http)
    assert ticket["protocols"] == ["lanewise", f"lanewise-ticket.{ticket['ticket']}"]
    assert 25 <= ticket["expires_at"] - time.time() <= 30.5
    async with opening(gateway, *ticket["protocols"], origin=gateway.url) as socket:
        assert socket.subprotocol == "lanewise"
        assert await speaks(socket)
    assert await refusal(opening(gateway, *ticket["protocols"])) == (401, "invalid_api_key")


async def test_the_ticket_stands_for_its_key(
    gateway: GatewayProcess, http: httpx.Client, redis_client: "redis.Redis[bytes]"
) -> None:
    """A ticket of a key that was revoked meanwhile is worth nothing, and Redis never has it."""
    _, made = ask(gateway, "POST", "/admin/keys", {"tenant": "dev"})
    ticket = new_ticket(http, made["key"])
    names = b" ".join(redis_client.keys("lw1:{socket_tickets}*"))
    assert names
    assert ticket["ticket"].encode() not in names
    ask(gateway, "POST", f"/admin/keys/{made['record']['id']}/revoke", {})
    assert await refusal(opening(gateway, *ticket["protocols"])) == (401, "invalid_api_key")


async def test_too_old_a_ticket(
    gateway: GatewayProcess, http: httpx.Client, redis_client: "redis.Redis[bytes]"
) -> None:
    ticket = new_ticket(http)
    kept = [
        name
        for name in redis_client.keys("lw1:{socket_tickets}:*")
        if b":made:" not in name and 0 < redis_client.ttl(name) <= 30
    ]
    assert kept
    for name in kept:  # as Redis itself will, within half a minute
        redis_client.delete(name)
    assert await refusal(opening(gateway, *ticket["protocols"])) == (401, "invalid_api_key")


def test_without_a_key_there_is_no_ticket(http: httpx.Client) -> None:
    assert http.post("/v1/socket_tickets").status_code == 401


def test_a_key_makes_so_many_tickets(
    http: httpx.Client, redis_client: "redis.Redis[bytes]"
) -> None:
    new_ticket(http)
    (counter,) = (
        name for name in redis_client.keys("lw1:{socket_tickets}:made:*") if b":dev/config" in name
    )
    redis_client.set(counter, 1_000, keepttl=True)
    try:
        headers = {"authorization": f"Bearer {DEVELOPMENT_KEY}"}
        refused = http.post("/v1/socket_tickets", headers=headers)
        assert (refused.status_code, "retry-after" in refused.headers) == (429, True)
    finally:
        redis_client.delete(counter)


async def test_a_key_as_openais_own_clients_send_it(gateway: GatewayProcess) -> None:
    offered = ("realtime", f"openai-insecure-api-key.{DEVELOPMENT_KEY}", "openai-beta.realtime-v1")
    async with opening(gateway, *offered, origin=gateway.url) as socket:
        assert socket.subprotocol == "realtime"  # never the one that holds the key
        assert await speaks(socket)
    wrong = ("realtime", "openai-insecure-api-key.sk-nobody")
    assert await refusal(opening(gateway, *wrong)) == (401, "invalid_api_key")


@pytest.mark.parametrize("origin", ["https://evil.test", "null", "http://127.0.0.1"])
async def test_another_origin_is_refused(
    gateway: GatewayProcess, http: httpx.Client, origin: str
) -> None:
    protocols = new_ticket(http)["protocols"]
    refused = await refusal(opening(gateway, *protocols, origin=origin))
    assert refused == (403, "insufficient_permissions")
    async with opening(gateway, *protocols, origin=gateway.url):  # the ticket was not spent
        pass


def test_a_page_whose_name_was_led_here_has_no_use_of_the_development_key(
    gateway: GatewayProcess, http: httpx.Client
) -> None:
    host = f"rebound.test:{gateway.port}"
    asks = {"authorization": f"Bearer {DEVELOPMENT_KEY}", "host": host, "origin": f"http://{host}"}
    answer = http.post("/v1/responses", headers=asks, json={"model": "auto", "input": "Say hi."})
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")


async def test_neither_has_its_socket(gateway: GatewayProcess) -> None:
    host = f"rebound.test:{gateway.port}"
    offered = ("lanewise", f"openai-insecure-api-key.{DEVELOPMENT_KEY}")
    connecting = websockets.connect(
        f"ws://{host}/v1/responses",
        host="127.0.0.1",
        port=gateway.port,
        subprotocols=[Subprotocol(each) for each in offered],
        origin=Origin(f"http://{host}"),
    )
    assert await refusal(connecting) == (401, "invalid_api_key")


async def test_any_worker_takes_it(tmp_path: Path, redis_url: str) -> None:
    gateway = GatewayProcess(tmp_path, "--workers", "2", "--redis", redis_url)
    try:
        gateway.wait_until_ready()
        for _ in range(8):
            with httpx.Client(base_url=gateway.url, timeout=60.0) as http:
                protocols = new_ticket(http)["protocols"]
            async with opening(gateway, *protocols) as socket:
                assert socket.subprotocol == "lanewise"
    finally:
        assert gateway.stop() == 0, gateway.log
