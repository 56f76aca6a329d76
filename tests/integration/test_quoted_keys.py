"""Tests a server that quotes our key in its errors: neither the client nor the log reads it."""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

from tests.integration.upstreams import WAIT_S, RecordingSink, make_request, upstream
from tests.patience import until

KEY = "sk-of-ours-0123456789"
STATUSES = (400, 408, 429, 500, 503)


def quoting(words: str = f"I was shown {KEY}.") -> dict[str, Any]:
    return {"message": words, "type": "x", "code": None, "param": KEY}


class QuotingServer:
    """Answers every request with the status and the events that a test sets."""

    def __init__(self) -> None:
        self.status = 200
        self.coding = "identity"
        self.body = b""
        self.events: list[dict[str, Any]] = []  # on a socket
        self.closes_with = ""

    @classmethod
    @contextlib.asynccontextmanager
    async def running(cls, protocol: str) -> AsyncIterator[tuple["QuotingServer", str]]:
        server = cls()
        if protocol == "responses-ws":
            async with serve(server._socket, "127.0.0.1", 0, process_request=server._open) as at:
                yield server, f"http://127.0.0.1:{next(iter(at.sockets)).getsockname()[1]}/v1"
        else:
            async with await asyncio.start_server(server._http, "127.0.0.1", 0) as at:
                yield server, f"http://127.0.0.1:{at.sockets[0].getsockname()[1]}/v1"

    async def _http(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            head = f"HTTP/1.1 {self.status} Told\r\nconnection: close\r\n"
            head += f"content-encoding: {self.coding}\r\n"
            writer.write(f"{head}content-length: {len(self.body)}\r\n\r\n".encode() + self.body)
            await writer.drain()
        writer.close()

    def _open(self, connection: ServerConnection, request: Request) -> Response | None:
        if self.status == 200:
            return None
        return connection.respond(HTTPStatus(self.status), self.body.decode())

    async def _socket(self, connection: ServerConnection) -> None:
        async for _ in connection:
            for event in self.events:
                await connection.send(json.dumps(event))
            if self.closes_with:
                await connection.close(1011, self.closes_with)
                return


@pytest.fixture(autouse=True)
def _shown(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("KEY_OF_OURS", KEY)
    caplog.set_level(logging.INFO)


async def told(base_url: str, protocol: str, caplog: pytest.LogCaptureFixture) -> str:
    """Runs a generation that fails; returns all that anybody reads of it."""
    sink = RecordingSink()
    async with upstream(
        base_url, protocol, key_env="KEY_OF_OURS", max_retries=1, max_retry_after_s=0.1
    ) as backend:
        backend.start(make_request(), sink)
        await asyncio.wait_for(sink.ended.wait(), WAIT_S)
    error = sink.finishes[0].error
    assert error is not None
    assert KEY[:8] not in f"{error} {error.param} {error.args} {caplog.text}"
    return error.message


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("protocol", ["chat", "responses", "responses-ws"])
async def test_an_answer_of_an_error(
    protocol: str, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with QuotingServer.running(protocol) as (server, base_url):
        server.status, server.body = status, json.dumps({"error": quoting()}).encode()
        assert "I was shown ***." in await told(base_url, protocol, caplog)


@pytest.mark.parametrize("num_shown_chars", range(1, len(KEY) + 1))
async def test_a_key_that_is_cut_with_its_message(
    num_shown_chars: int, caplog: pytest.LogCaptureFixture
) -> None:
    words = "x" * (500 - num_shown_chars) + KEY
    async with QuotingServer.running("chat") as (server, base_url):
        server.status, server.body = 500, json.dumps({"error": quoting(words)}).encode()
        said = await told(base_url, "chat", caplog)
    assert said.endswith("x***" if num_shown_chars > 3 else f"x{KEY[:num_shown_chars]}")


@pytest.mark.parametrize("code", [400, 429, 500])
async def test_an_error_amid_events(code: int, caplog: pytest.LogCaptureFixture) -> None:
    event = {"error": quoting() | {"code": code}}
    async with QuotingServer.running("chat") as (server, base_url):
        server.body = f"data: {json.dumps(event)}\n\n".encode()
        assert "I was shown ***." in await told(base_url, "chat", caplog)


@pytest.mark.parametrize("protocol", ["responses", "responses-ws"])
@pytest.mark.parametrize("kind", ["error", "response.failed"])
async def test_an_event_of_an_error(
    protocol: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    event: dict[str, Any] = {"type": "error", "status": 500, "error": quoting()}
    if kind == "response.failed":
        event = {"type": kind, "response": {"id": "resp_1", "error": quoting()}}
    async with QuotingServer.running(protocol) as (server, base_url):
        server.events, server.body = [event], f"data: {json.dumps(event)}\n\n".encode()
        assert "I was shown ***." in await told(base_url, protocol, caplog)


async def test_a_socket_closed_with_words(caplog: pytest.LogCaptureFixture) -> None:
    async with QuotingServer.running("responses-ws") as (server, base_url):
        server.closes_with = f"not {KEY}"
        assert "not ***" in await told(base_url, "responses-ws", caplog)


async def test_a_header_and_a_finish_reason(caplog: pytest.LogCaptureFixture) -> None:
    async with QuotingServer.running("chat") as (server, base_url):
        server.coding, server.body = KEY, b"data: {}\n\n"
        assert "a body in ***" in await told(base_url, "chat", caplog)
        choice = {"delta": {"content": "One"}, "finish_reason": KEY}
        server.coding, server.body = "identity", json.dumps({"choices": [choice]}).encode()
        assert "***" in await told(base_url, "chat", caplog)


async def test_what_a_probe_finds_and_a_tier_that_is_not_known(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with QuotingServer.running("chat") as (server, base_url):
        server.coding, server.body = KEY, b"{}"
        async with upstream(base_url, "chat", key_env="KEY_OF_OURS", probe_path="/models"):
            await until(lambda: "is not to be used" in caplog.text)
        choice = {"delta": {"content": "One"}, "finish_reason": "stop"}
        answer = {"choices": [choice], "service_tier": KEY}
        server.coding, server.body = "identity", json.dumps(answer).encode()
        sink = RecordingSink()
        async with upstream(base_url, "chat", key_env="KEY_OF_OURS") as backend:
            backend.start(make_request(), sink)
            await asyncio.wait_for(sink.ended.wait(), WAIT_S)
    assert sink.text == "One"
    assert caplog.text.count("***") == 2
    assert KEY not in caplog.text
