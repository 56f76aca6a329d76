"""What happens to one response of a shared socket leaves the others alone."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

from backends.contract import Generation
from backends.upstream import upstream_socket
from backends.upstream.backend import UpstreamBackend
from tests.integration.upstreams import WAIT_S, RecordingSink, make_request, upstream
from tests.patience import until

MAX_BYTES = 100_000  # of a message that the server takes
SHARED = {"max_streams_per_socket": 4, "cancel_event": True, "max_retries": 0}


class SlowServer:
    """Says one word of each answer, and the rest once `go_on` is set; nothing of one to `wait`."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.on_cancel: dict[str, Any] | None = None  # what it answers a cancel with, for nobody
        self.heard = asyncio.Event()  # of a cancel
        self.sockets: list[ServerConnection] = []
        self.port = 0
        self.num_asked = 0

    @classmethod
    @asynccontextmanager
    async def running(cls) -> AsyncIterator["SlowServer"]:
        made = cls()
        async with serve(
            made._serve, "127.0.0.1", 0, process_request=_probed, max_size=MAX_BYTES
        ) as server:
            made.port = next(iter(server.sockets)).getsockname()[1]
            yield made

    async def _serve(self, socket: ServerConnection) -> None:
        self.sockets.append(socket)
        async with asyncio.TaskGroup() as group:
            async for message in socket:
                event = json.loads(message)
                if event["type"] == "response.create":
                    group.create_task(self._answer(socket, event))
                    continue
                self.heard.set()
                if self.on_cancel is not None:
                    await socket.send(json.dumps(self.on_cancel))
            raise asyncio.CancelledError

    async def _answer(self, socket: ServerConnection, asked: dict[str, Any]) -> None:
        self.num_asked += 1
        response = {"id": f"resp_{self.num_asked}", "status": "completed"}

        async def say(event: dict[str, Any]) -> None:
            await socket.send(json.dumps({**event, "stream_id": asked["stream_id"]}))

        if "wait" in json.dumps(asked["input"]):
            await self.go_on.wait()
        await say({"type": "response.created", "response": response})
        delta = {"type": "response.output_text.delta", "item_id": "m", "output_index": 0}
        await say({**delta, "delta": "One, "})
        await self.go_on.wait()
        await say({**delta, "delta": "two."})
        await say({"type": "response.completed", "response": response})


def _probed(connection: ServerConnection, request: Request) -> Response | None:
    return None if "upgrade" in request.headers else connection.respond(200, "{}")


@pytest.fixture
async def server() -> AsyncIterator[SlowServer]:
    async with SlowServer.running() as server:
        yield server


@asynccontextmanager
async def speaking(
    server: SlowServer, *words: str
) -> AsyncIterator[tuple[UpstreamBackend, list[RecordingSink], list[Generation]]]:
    """Gives a backend with an answer of each of these words under way, on one socket."""
    base_url = f"http://127.0.0.1:{server.port}/v1"
    async with upstream(base_url, "responses-ws", **SHARED) as backend:
        sinks = [RecordingSink() for _ in words]
        running: list[Generation] = []
        for word, sink in zip(words, sinks, strict=True):
            running.append(backend.start(make_request(word), sink))
            if word != "wait":
                await asyncio.wait_for(sink.first.wait(), WAIT_S)
        await until(lambda: server.num_asked == len(words))
        yield backend, sinks, running


async def ended(sink: RecordingSink) -> str:
    await asyncio.wait_for(sink.ended.wait(), WAIT_S)
    (finish,) = sink.finishes
    return sink.text if finish.error is None else finish.error.message


LATE = {"type": "invalid_request_error", "message": "No such response is running."}


@pytest.mark.parametrize(
    "answer",
    [
        {"type": "error", "status": 400, "error": {**LATE, "code": "response_not_found"}},
        {"type": "error", "status": 404, "error": LATE},
        {**LATE, "type": "error", "code": "not_found"},
    ],
)
async def test_a_cancel_that_comes_too_late_fails_no_other(
    server: SlowServer, answer: dict[str, Any]
) -> None:
    server.on_cancel = answer
    async with speaking(server, "first", "second", "third") as (_, sinks, running):
        running[0].cancel()
        await asyncio.wait_for(server.heard.wait(), WAIT_S)
        server.go_on.set()
        assert [await ended(sink) for sink in sinks[1:]] == ["One, two."] * 2


async def test_an_error_for_all_still_fails_all(server: SlowServer) -> None:
    async with speaking(server, "first", "second") as (_, sinks, _):
        error = {"code": "server_error", "message": "The machine is on fire."}
        await server.sockets[-1].send(json.dumps({"type": "error", "error": error}))
        for sink in sinks:
            assert "on fire" in await ended(sink)


@pytest.mark.parametrize("word", ["first", "wait"])
async def test_a_response_that_goes_on_after_its_cancel_holds_up_no_other(
    server: SlowServer, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The socket takes no other turn, and closes behind those that it carries."""
    monkeypatch.setattr(upstream_socket, "CANCEL_TIMEOUT_S", 0.05)
    async with speaking(server, "second", word) as (backend, sinks, running):
        running[1].cancel()
        shared = server.sockets[-1]
        await asyncio.sleep(0.2)
        later = RecordingSink()
        backend.start(make_request("later"), later)
        await asyncio.wait_for(later.first.wait(), WAIT_S)
        assert len(server.sockets) > 1, "it is on another one"
        server.go_on.set()
        assert [await ended(sink) for sink in (sinks[0], later)] == ["One, two."] * 2
        await asyncio.wait_for(shared.wait_closed(), WAIT_S)


async def test_a_request_too_large_for_the_server_is_its_clients_fault(server: SlowServer) -> None:
    async with speaking(server, "first") as (backend, sinks, _):
        large = RecordingSink()
        backend.start(make_request("large " * MAX_BYTES), large)
        assert "takes no request of" in await ended(large)
        (finish,) = large.finishes
        assert finish.error is not None
        assert (finish.error.code, finish.error.retryable) == ("invalid_prompt", False)
        assert "socket broke" in await ended(sinks[0])
        stats = backend.stats()
        assert stats.healthy
        assert not stats.ejected


async def test_a_size_that_the_server_refused_ends_no_other_again(server: SlowServer) -> None:
    async with speaking(server) as (backend, _, _):
        for _ in range(2):
            large = RecordingSink()
            backend.start(make_request("large " * MAX_BYTES), large)
            other = RecordingSink()
            backend.start(make_request("other"), other)
            assert "takes no request of" in await ended(large)
        await asyncio.wait_for(other.first.wait(), WAIT_S)
        server.go_on.set()
        assert await ended(other) == "One, two."


async def test_a_probe_has_no_body(server: SlowServer) -> None:
    """It has not even an empty one, which servers of WebSockets refuse."""
    base_url = f"http://127.0.0.1:{server.port}/v1"
    async with upstream(base_url, "responses-ws", probe_path="/models", **SHARED) as backend:
        await until(lambda: backend.stats().healthy)
