"""Offers an upstream that answers with as much text as it is told, as fast as it is read."""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

PIECE = "x" * 1_000


OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


logging.getLogger("websockets.server").setLevel(logging.CRITICAL)  # of probes that end


class _Probed(ServerConnection):
    """Answers health probes, which `websockets` takes for broken handshakes."""

    def data_received(self, data: bytes) -> None:
        if data.startswith(b"GET /v1/models "):
            self.transport.write(OK)
        else:
            super().data_received(data)


class FloodingUpstream:
    """Speaks Responses: over SSE, and over a WebSocket with streams.

    A request whose input has the word "flood" gets `num_pieces`, every other one gets one.
    """

    def __init__(self, num_pieces: int) -> None:
        self._num_pieces = num_pieces
        self.num_sent = 0  # pieces that the sockets took
        self.port = 0
        self._running: set[asyncio.Task[None]] = set()

    @classmethod
    @contextlib.asynccontextmanager
    async def running(cls, protocol: str, num_pieces: int) -> AsyncIterator["FloodingUpstream"]:
        server = cls(num_pieces)
        if protocol == "responses":
            http = await asyncio.start_server(server._http, "127.0.0.1", 0)
            server.port = http.sockets[0].getsockname()[1]
            async with http:
                yield server
            return
        async with serve(
            server._socket, "127.0.0.1", 0, compression=None, create_connection=_Probed
        ) as sockets:
            server.port = next(iter(sockets.sockets)).getsockname()[1]
            yield server

    def _events(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        """Returns the events before the text, one with a piece of it, and those after it."""
        item = {"type": "message", "id": "msg_1", "role": "assistant", "content": []}
        place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
        response = {"id": f"resp_{body.get('stream_id')}", "status": "in_progress", "output": []}
        usage = {"input_tokens": 9, "output_tokens": 9}
        events: list[dict[str, Any]] = [
            {"type": "response.created", "response": response},
            {"type": "response.output_item.added", "output_index": 0, "item": item},
            {"type": "response.output_text.delta", **place, "delta": PIECE},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": {**response, "usage": usage}},
        ]
        stream_id = body.get("stream_id")
        return events if stream_id is None else [e | {"stream_id": stream_id} for e in events]

    async def _answer(self, body: dict[str, Any], send: Any) -> None:
        *before, piece, done, completed = map(json.dumps, self._events(body))
        is_flood = "flood" in json.dumps(body["input"])
        for event in before:
            await send(event)
        for _ in range(self._num_pieces if is_flood else 1):
            await send(piece)
            self.num_sent += is_flood
        await send(done)
        await send(completed)

    async def _http(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def send(event: str) -> None:
            data = f"data: {event}\n\n".encode()
            writer.write(b"%x\r\n%b\r\n" % (len(data), data))
            await writer.drain()

        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                if head.startswith("get"):  # the probe
                    writer.write(OK)
                    continue
                _, _, length = head.partition("content-length: ")
                body = json.loads(await reader.readexactly(int(length.split()[0])))
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
                    b"transfer-encoding: chunked\r\n\r\n"
                )
                await self._answer(body, send)
                writer.write(b"0\r\n\r\n")
        writer.close()

    async def _socket(self, connection: ServerConnection) -> None:
        cancelled: set[str] = set()
        with contextlib.suppress(ConnectionClosed):
            async for message in connection:
                body = json.loads(message)
                if body["type"] == "response.create":
                    answering = asyncio.create_task(self._stream(body, connection, cancelled))
                    self._running.add(answering)
                    answering.add_done_callback(self._running.discard)
                else:
                    cancelled.add(body["response_id"])

    async def _stream(
        self, body: dict[str, Any], connection: ServerConnection, cancelled: set[str]
    ) -> None:
        async def send(event: str) -> None:
            if f"resp_{body.get('stream_id')}" in cancelled:
                raise asyncio.CancelledError
            await connection.send(event)
            await asyncio.sleep(0)  # the streams take turns

        try:
            await self._answer(body, send)
        except (ConnectionClosed, asyncio.CancelledError):
            cancelled.discard(f"resp_{body.get('stream_id')}")
            with contextlib.suppress(ConnectionClosed):
                end = self._events(body)[-1] | {"type": "response.incomplete"}
                await connection.send(json.dumps(end))
