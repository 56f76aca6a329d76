"""Receives many fast streams, and looks at no more than a client must.

Events are found by their beginnings and cut out, not parsed: a client that parsed each would be the
limit. What the cuts gave is parsed once all is over, and compared with what was sent.
"""

import asyncio
import base64
import json
import os
import struct
import time
from typing import Any

from tests.e2e.gateway_process import DEVELOPMENT_KEY

DELTA = b'{"type":"response.output_text.delta"'
TERMINAL = (b'{"type":"response.completed"', b'{"type":"response.incomplete"')
FAILED = (b'{"type":"error"', b'{"type":"response.failed"')


class Stream:
    """Says what one stream received."""

    __slots__ = ("arrived_s", "gaps_ms", "has_begun", "texts")

    def __init__(self) -> None:
        self.texts: list[bytes] = []  # JSON strings
        self.arrived_s = 0.0  # of its last delta
        self.gaps_ms: list[int] = []
        self.has_begun = False

    def restart(self) -> None:
        """Forget the gaps so far."""
        self.gaps_ms.clear()
        self.arrived_s = 0.0


class Client(asyncio.Protocol):
    """Is one connection with its streams."""

    def __init__(self, host: str, stream_ids: list[str]) -> None:
        self.streams = {stream_id: Stream() for stream_id in stream_ids}
        self.num_begun = 0
        self.num_done = 0
        self.num_events = 0
        self.num_chars = 0  # of JSON text, quotes and escapes included
        loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = loop.create_future()
        self.over: asyncio.Future[None] = loop.create_future()
        self._host = host
        self._buffer = bytearray()
        self._transport: Any = None

    def begin(self, body: dict[str, Any], prompt: str) -> None:
        """Ask for every stream's answer; `prompt` is completed by the stream's id."""
        raise NotImplementedError

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        for waiting in (self.ready, self.over):
            if not waiting.done():
                waiting.set_exception(exc or ConnectionError("the gateway closed the connection"))

    def close(self) -> None:
        """Drop the connection."""
        self._transport.abort()

    def _take(self, event: bytes, stream: Stream | None, now_s: float) -> None:
        """Take an event's JSON; None: its `stream_id` is its last field."""
        self.num_events += 1
        if event.startswith(DELTA):
            end = -1
            if stream is None:
                end = event.rindex(b',"stream_id":"')
                stream = self.streams[event[end + 14 : -2].decode()]
            text = event[event.index(b'"delta":', 60) + 8 : end]
            self.num_chars += len(text)
            stream.texts.append(text)
            if stream.arrived_s:
                stream.gaps_ms.append(int((now_s - stream.arrived_s) * 1e3))
            elif not stream.has_begun:
                stream.has_begun = True
                self.num_begun += 1
            stream.arrived_s = now_s
        elif event.startswith(TERMINAL):
            self.num_done += 1
            if self.num_done == len(self.streams):
                self.over.set_result(None)
        elif event.startswith(FAILED):
            raise AssertionError(event[:500])


class Socket(Client):
    """Is a WebSocket. Frames of this server are unmasked and whole: a header and its payload."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        key = base64.b64encode(os.urandom(16)).decode()
        self._transport.write(
            f"GET /v1/responses HTTP/1.1\r\nHost: {self._host}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
            f"Authorization: Bearer {DEVELOPMENT_KEY}\r\n\r\n".encode()
        )

    def begin(self, body: dict[str, Any], prompt: str) -> None:
        for stream_id in self.streams:
            event = {"type": "response.create", "stream_id": stream_id, **body}
            self.send({**event, "input": prompt + stream_id})

    def send(self, event: dict[str, Any]) -> None:
        """Sends one text frame, masked with zeros."""
        payload = json.dumps(event).encode()
        assert 126 <= len(payload) < 65_536
        size = struct.pack("!H", len(payload))
        self._transport.write(b"\x81\xfe" + size + b"\0\0\0\0" + payload)

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        at = 0
        if not self.ready.done():
            end = buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            assert buffer.startswith(b"HTTP/1.1 101"), bytes(buffer[:200])
            at = end + 4
            self.ready.set_result(None)
        now_s = time.perf_counter()
        size = len(buffer)
        whole = bytes(buffer)
        while size - at >= 2:
            length, start = whole[at + 1], at + 2
            if length == 126:
                if size < at + 4:
                    break
                length, start = int.from_bytes(whole[at + 2 : at + 4], "big"), at + 4
            elif length == 127:
                if size < at + 10:
                    break
                length, start = int.from_bytes(whole[at + 2 : at + 10], "big"), at + 10
            if size < start + length:
                break
            if whole[at] == 0x81:
                self._take(whole[start : start + length], None, now_s)
            elif whole[at] == 0x89:  # a ping, of 4 bytes
                payload = whole[start : start + length]
                self._transport.write(b"\x8a" + bytes((0x80 | length,)) + b"\0\0\0\0" + payload)
            at = start + length
        del buffer[:at]


class EventStream(Client):
    """Is a POST answered by server-sent events, in chunks: one stream."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._has_head = False
        self.ready.set_result(None)

    def begin(self, body: dict[str, Any], prompt: str) -> None:
        (stream_id,) = self.streams
        payload = json.dumps({"stream": True, **body, "input": prompt + stream_id}).encode()
        self._transport.write(
            f"POST /v1/responses HTTP/1.1\r\nHost: {self._host}\r\nAuthorization: Bearer "
            f"{DEVELOPMENT_KEY}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(payload)}\r\n\r\n".encode()
            + payload
        )

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        now_s = time.perf_counter()
        if not self._has_head:
            end = buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            assert buffer.startswith(b"HTTP/1.1 200"), bytes(buffer[:500])
            del buffer[: end + 4]
            self._has_head = True
        (stream,) = self.streams.values()
        at = 0
        while (line := buffer.find(b"\r\n", at)) >= 0:
            start = line + 2
            end = start + int(buffer[at:line], 16)
            if len(buffer) < end + 2:
                break
            for event in bytes(buffer[start:end]).split(b"\n\n"):
                if event:
                    self._take(event[event.index(b"\ndata: ") + 7 :], stream, now_s)
            at = end + 2
        del buffer[:at]
