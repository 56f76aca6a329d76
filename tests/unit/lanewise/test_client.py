"""Tests the client's sockets and streams without a gateway: what it opens, it closes."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from lanewise import client as module
from lanewise.client import MAX_AGE_S, MAX_STREAMS, Client, connect
from lanewise.turn import LanewiseError

TURNS = 10  # of the loop, in which what is not held up has happened


class Connection:
    """Is a connection on which nothing comes; `held_up` keeps it from closing."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.held_up = asyncio.Event()
        self.held_up.set()
        self.is_closing = asyncio.Event()

    async def send(self, frame: str) -> None:
        self.sent.append(frame)

    async def close(self) -> None:
        self.is_closing.set()
        await self.held_up.wait()

    async def __aiter__(self) -> AsyncIterator[str]:
        await self.is_closing.wait()
        for frame in list[str]():
            yield frame


def opened(
    monkeypatch: pytest.MonkeyPatch, before: Callable[[], Awaitable[Any]] | None = None
) -> tuple[Client, list[Connection]]:
    """Makes a client whose sockets are these; `before` is awaited before each is there."""
    connections: list[Connection] = []

    async def open_socket(*_: object, **__: object) -> Connection:
        if before is not None:
            await before()
        connections.append(Connection())
        return connections[-1]

    monkeypatch.setattr(module, "open_socket", open_socket)
    return connect("http://localhost", "key"), connections


async def turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


async def asked_past_its_age(client: Client, first: Connection) -> asyncio.Task[Any]:
    """Begins a turn once the client's first socket is too old, which then does not close."""
    first.held_up.clear()
    assert client._socket is not None
    client._socket.opened_s -= MAX_AGE_S
    asking = asyncio.create_task(client.create("Hello"))
    await turns()
    assert first.is_closing.is_set()
    return asking


async def test_what_is_no_json_takes_no_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    client, connections = opened(monkeypatch)
    for _ in range(MAX_STREAMS + 1):
        asking = asyncio.create_task(client.create("Hello", tools=[object()]))
        await turns()
        assert asking.done(), "it waits for a stream"
        assert isinstance(asking.exception(), TypeError)
    assert connections[0].sent == []
    await client.close()


async def test_a_steer_that_is_no_json_is_no_steer(monkeypatch: pytest.MonkeyPatch) -> None:
    client, connections = opened(monkeypatch)
    stream = client.stream("Hello")
    await client.start(stream)
    stream.receive({"type": "response.created", "response": {"id": "r1", "status": "in_progress"}})
    with pytest.raises(TypeError):
        await stream.steer([{"role": "user", "content": object()}])
    steering = asyncio.create_task(stream.steer("In French"))
    await turns()
    steer = {"id": "st1", "previous_response_id": "r1"}
    stream.receive({"type": "response.steer.accepted", "steer": steer})
    await turns()
    assert steering.done(), "another steer took its acceptance"
    assert len(connections[0].sent) == 2
    await client.close()


async def test_a_socket_that_opens_while_the_client_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = asyncio.Event()
    client, connections = opened(monkeypatch, answered.wait)
    asking = asyncio.create_task(client.create("Hello"))
    await turns()
    await client.close()
    answered.set()
    await turns()
    assert asking.done(), "it waits for an answer"
    assert isinstance(asking.exception(), LanewiseError)
    assert [each.is_closing.is_set() for each in connections] == [True]


async def test_a_socket_in_the_place_of_an_old_one_is_closed_whoever_opened_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client, connections = opened(monkeypatch)
    async with client:
        asking = await asked_past_its_age(client, connections[0])
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        connections[0].held_up.set()
    assert [each.is_closing.is_set() for each in connections] == [True, True]


async def test_a_new_socket_waits_for_no_old_one_to_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that is gone takes the whole time that a close may take."""
    client, connections = opened(monkeypatch)
    async with client:
        asking = await asked_past_its_age(client, connections[0])
        assert len(connections[1].sent) == 1, "the turn waits for the old socket"
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        connections[0].held_up.set()


WAITING = {"type": "response.waiting", "response_id": "r1", "group": "fast"}
CREATED = {"type": "response.created", "response": {"id": "r1", "status": "in_progress"}}


@pytest.mark.parametrize("naming", [WAITING, CREATED])
async def test_a_turn_that_is_cancelled_early_is_cancelled_by_its_stream_and_then_by_its_id(
    naming: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, connections = opened(monkeypatch)
    async with client:
        async with client.stream("Hello"):
            await turns()
        by_stream = {"type": "response.cancel", "stream_id": "s0"}
        assert json.loads(connections[0].sent[-1]) == by_stream, "it has no id yet"
        assert client._socket is not None
        await client._socket._receive({**naming, "stream_id": "s0"})
        assert len(connections[0].sent) == 3
        assert json.loads(connections[0].sent[-1]) == {
            "type": "response.cancel",
            "response_id": "r1",
        }
