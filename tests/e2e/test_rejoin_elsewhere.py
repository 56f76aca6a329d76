"""A client that lost its socket may come back to another gateway on the same Redis."""

import asyncio
import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.gateway_process import (
    CONFIG,
    DEVELOPMENT_KEY,
    GatewayProcess,
    wait_until_at_rest,
)
from tests.e2e.returning_client import (
    FAR,
    check_rest,
    codex_metadata,
    come_back,
    done_items,
    lost_after,
    reset,
    text_in,
    with_items,
)
from tests.e2e.socket_client import SocketClient, text_of

NUM_LOOKS, LOOK_S = 200, 0.05
STORY = "Tell a story of a lighthouse in 400 words."


@pytest.fixture(scope="module")
def gateway(folder: Path, redis_url: str) -> Iterator[GatewayProcess]:
    """Gives one of this module's own: it keeps no lost responses of other tests."""
    yield from one_more(folder, redis_url)


@pytest.fixture(scope="module")
def other(folder: Path, redis_url: str) -> Iterator[GatewayProcess]:
    yield from one_more(folder, redis_url)


def one_more(folder: Path, redis_url: str) -> Iterator[GatewayProcess]:
    config = folder / "other.toml"
    config.write_text(CONFIG)
    process = GatewayProcess(folder, "--config", str(config), "--redis", redis_url)
    try:
        process.wait_until_ready()
        yield process
        wait_until_at_rest(process)
        assert "Traceback" not in process.log, process.log
    finally:
        process.stop()


def body_of(turn_id: str, **fields: Any) -> dict[str, Any]:
    return {
        "model": "lanewise-fast",
        "input": STORY,
        "store": False,
        "client_metadata": codex_metadata(turn_id),
        **fields,
    }


async def test_it_gets_the_rest_there(gateway: GatewayProcess, other: GatewayProcess) -> None:
    body = body_of("elsewhere-1", stream_id="main")
    async with lost_after(gateway, body, 6) as lost:
        events = await come_back(other, body)
    terminal = events[-1]["response"]
    assert terminal["id"] == lost[0]["response"]["id"]
    assert terminal["routing"]["rejoined"]["times"] == 1
    assert text_in(events) == text_of(terminal)
    assert {event["stream_id"] for event in events} == {"main"}
    check_rest(events)
    assert other.metrics().total("lanewise_requests_total") == 0, "it ran where it began"


async def test_it_is_not_sent_what_it_holds(gateway: GatewayProcess, other: GatewayProcess) -> None:
    body = body_of(
        "elsewhere-2",
        model="lanewise-deep",
        input="Prove that the halting problem is undecidable.",
        reasoning={"effort": "high", "summary": "auto"},
    )
    async with lost_after(gateway, body, 1 << 30, "response.output_text.delta") as lost:
        events = await come_back(other, with_items(body, done_items(lost)))
    terminal = events[-1]["response"]
    assert terminal["id"] == lost[0]["response"]["id"]
    assert not any(event["type"].startswith("response.reasoning") for event in events)
    assert text_in(events) == text_of(terminal)


async def test_it_comes_and_goes(gateway: GatewayProcess, other: GatewayProcess) -> None:
    body = body_of("elsewhere-3", model="lanewise-deep")
    ids = set()
    for attempt, there in enumerate((gateway, other, gateway, other)):
        async with lost_after(there, body, 4 + attempt) as lost:
            ids.add(lost[0]["response"]["id"])
    events = await come_back(gateway, body)
    assert ids == {events[-1]["response"]["id"]}
    assert events[-1]["response"]["routing"]["rejoined"]["times"] == 4
    assert text_in(events) == text_of(events[-1]["response"])


async def test_it_continues_there_what_the_lost_socket_remembered(
    gateway: GatewayProcess, other: GatewayProcess
) -> None:
    async with SocketClient.open(gateway) as client:
        first = await client.turn("The word is walrus.", model="lanewise-fast", store=False)
        body = body_of("elsewhere-4", input="What is the word?", previous_response_id=first["id"])
        await client.send({"type": "response.create", **body})
        created = await client.next_type("response.created")
        reset(client)
        await client.socket.wait_closed()
    await asyncio.sleep(0.2)
    async with SocketClient.open(other) as client:
        await client.send({"type": "response.create", **body})
        answer = (await client.terminal())["response"]
        assert answer["id"] == created["response"]["id"]
        assert "walrus" in text_of(answer)
        follow_up = body_of("x", input="And once more?", previous_response_id=answer["id"])
        assert (await client.turn(**follow_up))["status"] == "completed"


async def test_it_continues_there_what_had_ended(
    gateway: GatewayProcess, other: GatewayProcess
) -> None:
    """The request that continues it is new there: the lost socket never brought it."""
    async with SocketClient.open(gateway) as client:
        first = await client.turn("The word is walrus.", model="lanewise-fast", store=False)
        reset(client)
        await client.socket.wait_closed()
    await asyncio.sleep(0.2)
    body = body_of("elsewhere-10", input="What is the word?", previous_response_id=first["id"])
    for _ in range(NUM_LOOKS):  # the news of a loss may be late
        async with SocketClient.open(other) as client:
            await client.send({"type": "response.create", **body})
            event = await client.next_type("response.completed", "error")
        if event["type"] != "error":
            break
        await asyncio.sleep(LOOK_S)
    assert "walrus" in text_of(event["response"])


async def test_a_goodbye_there_stops_it_here(
    gateway: GatewayProcess, other: GatewayProcess
) -> None:
    body = body_of("elsewhere-5", model="lanewise-deep", max_output_tokens=16_000)
    body["input"] = "Write a guide to sorting of 16,000 tokens."
    async with lost_after(gateway, body, 5), SocketClient.open(other) as client:
        await client.send({"type": "response.create", **body})
        await client.next_type("response.output_text.delta")
    await asyncio.to_thread(wait_until_at_rest, gateway)


async def test_its_end_may_be_lost_there(
    folder: Path, redis_url: str, other: GatewayProcess
) -> None:
    """The first gateway is one of its own, which keeps no response but that one."""
    with contextlib.contextmanager(one_more)(folder, redis_url) as gateway:

        def num_ended() -> float:
            return gateway.metrics().total("lanewise_lost_responses", state="ended")

        body = body_of("elsewhere-8")
        async with lost_after(gateway, body, 4) as lost:
            pass
        async with lost_after(other, body, FAR, "response.completed"):
            for _ in range(NUM_LOOKS):  # until the other one tells of the loss
                if num_ended():
                    break
                await asyncio.sleep(LOOK_S)
            events = await come_back(gateway, body)
        assert events[-1]["response"]["id"] == lost[0]["response"]["id"]
        assert text_in(events) == text_of(events[-1]["response"])


async def named(gateway: GatewayProcess, response_id: str) -> dict[str, Any]:
    """Returns the end of a response that is asked for by its name."""
    async with SocketClient.open(gateway) as client:
        await client.send({"type": "response.rejoin", "response_id": response_id})
        return await client.terminal()


async def test_its_name_takes_it_from_another_gateway(
    gateway: GatewayProcess, other: GatewayProcess
) -> None:
    """The sockets there seem alive, since their network is gone."""
    body = body_of("elsewhere-9", model="lanewise-deep", max_output_tokens=100)
    async with lost_after(gateway, body, 4) as lost, SocketClient.open(other) as client:
        await client.send({"type": "response.create", **body})
        await client.next_type("response.output_text.delta")
        async with SocketClient.open(other) as second:
            name = lost[0]["response"]["id"]
            await second.send({"type": "response.rejoin", "response_id": name})
            await second.next_type("response.output_text.delta")
            done = await named(gateway, name)
        assert done["response"]["id"] == name
        assert done["response"]["routing"]["rejoined"]["times"] == 3
    await asyncio.to_thread(wait_until_at_rest, gateway)


async def test_a_post_there_gets_the_rest(gateway: GatewayProcess, other: GatewayProcess) -> None:
    body = body_of("elsewhere-6")
    headers = {"authorization": f"Bearer {DEVELOPMENT_KEY}"}
    async with lost_after(gateway, body, 6) as lost, httpx.AsyncClient(headers=headers) as http:
        got = await http.post(f"{other.base_url}/responses", json=body, timeout=60.0)
    assert got.json()["id"] == lost[0]["response"]["id"]
    assert got.json()["status"] == "completed"


async def test_where_its_gateway_dies_it_begins_anew(
    folder: Path, redis_url: str, tmp_path: Path, other: GatewayProcess
) -> None:
    """Where that dies amid the rest, the client is told so: no answer passes for a whole."""
    config = tmp_path / "lanewise.toml"
    config.write_text(CONFIG)
    first = GatewayProcess(folder, "--config", str(config), "--redis", redis_url)
    body = body_of("elsewhere-7", model="lanewise-deep")
    body["input"] = "Write a guide to sorting of 300 tokens."
    try:
        await asyncio.to_thread(first.wait_until_ready)
        async with lost_after(first, body, 5) as lost, SocketClient.open(other) as client:
            await client.send({"type": "response.create", **body})
            await client.next_type("response.output_text.delta")
            first.process.send_signal(signal.SIGKILL)
            failed = await client.terminal()
            assert failed["type"] == "response.failed"
            assert failed["response"]["id"] == lost[0]["response"]["id"]
            assert failed["response"]["error"]["code"] == "server_error"
            await client.send({"type": "response.create", **body})
            created = await client.next_type("response.created")
            assert created["response"]["id"] != lost[0]["response"]["id"]
            await client.terminal()
    finally:
        first.process.kill()
        first.process.wait()
