"""uvicorn's WebSocket protocol, made lean, with more ways to its transport.

ASGI sends one message at a time, and each costs a system call: half of the gateway's CPU when a
thousand streams flush fifty times a second. What one connection has to say at once therefore goes
out in one `write`; `docs/performance.md` has the figures, of memory too.
"""

import asyncio
import random
import struct
import weakref
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, cast

from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame
from websockets.http11 import Request
from websockets.protocol import State

from gateway.latch import Latch, Mailbox
from gateway.socket_care import KeepAlive, Line, Pinged
from gateway.socket_frames import BINARY, TEXT, framed

ABORT, WRITE, WRITE_NOW = "abort", "write", "write_now"  # where `scope["state"]` holds each


class HttpProtocol(HttpToolsProtocol):
    """Adds `write_now` to each request's state; upgrades stand in line."""

    def __init__(self, line: Line, **options: Any) -> None:
        super().__init__(**options)
        self._line = line

    def on_headers_complete(self) -> None:
        before = self.cycle
        super().on_headers_complete()
        if self.cycle is not before:  # otherwise it is an upgrade
            # Weakly: the cycle holds the state, and no collector looks.
            self.scope["state"][WRITE_NOW] = partial(_write_body_now, weakref.ref(self.cycle))

    def handle_websocket_upgrade(self) -> None:
        self._line.join(self._upgrade)

    def _upgrade(self) -> None:
        if not self.transport.is_closing():  # it may have gone while it waited
            super().handle_websocket_upgrade()
            self.parser = None  # type: ignore[assignment]  # its callbacks hold us, and we it


def _write_body_now(cycle: "weakref.ref[RequestResponseCycle]", pieces: Iterable[bytes]) -> bool:
    """Send more of a streamed body, as one chunk, if the transport has room.

    False, and nothing sent, if it has none, or where this is not how the answer goes: then ASGI's
    `send` knows what to do.
    """
    one = cycle()
    if one is None or one.disconnected or one.response_complete or one.flow.write_paused:
        return False
    if not (one.response_started and one.chunked_encoding):
        return False
    body = b"".join(pieces)
    if body:  # an empty chunk would end the answer
        one.transport.write(b"%x\r\n%b\r\n" % (len(body), body))
    return True


class SocketProtocol(WebSocketsSansIOProtocol):
    """Adds `abort`, `write_messages` and `write_now` to the connection's state.

    An idle one holds little.
    """

    def __init__(self, keep_alive: KeepAlive, line: Line, **options: Any) -> None:
        super().__init__(**options)
        self.queue = Mailbox()  # type: ignore[assignment]
        self.writable = Latch(is_set=True)  # type: ignore[assignment]
        self._line = line
        self._keep_alive = keep_alive
        self._place: set[Pinged] | None = None
        self._is_gone = self._is_over = False  # the transport, and what served it

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if self.handshake_initiated and not self.handshake_complete:
            self.scope["state"][ABORT] = self.transport.abort  # even if a stalled reader fills it
            self.scope["state"][WRITE] = self.write_messages
            self.scope["state"][WRITE_NOW] = self.write_now

    def connection_lost(self, exc: Exception | None) -> None:
        self.writable.set()  # whoever writes finds out now
        self.stop_keepalive()
        self.disconnected = True
        self._line.join(partial(self._gone, exc))

    def on_task_complete(self, task: "asyncio.Task[None]") -> None:
        super().on_task_complete(task)
        self._is_over = True
        self._part()

    def _gone(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._is_gone = True
        self._part()

    def _part(self) -> None:
        """Once nobody needs them: let go what would hold each other, for no collector looks."""
        if self._is_gone and (self._is_over or not self.handshake_initiated):
            self.conn.parser.close()
            if self.handshake_initiated:
                cast("dict[str, Any]", self.scope).clear()

    async def send(self, message: ASGISendEvent) -> None:
        """See ASGI. Once accepted, what the handshake brought is forgotten: 5 KiB of headers."""
        await super().send(message)
        if message["type"] == "websocket.accept":
            self.request.headers.clear()  # in place: the parser's frame holds it for ever
            self.response.headers.clear()
            self.scope["headers"] = ()

    async def write_messages(self, messages: Sequence[bytes], *, binary: bool = False) -> None:
        """Send whole messages in one write, once the transport has room.

        Raises:
            ConnectionResetError: The peer is gone, or the connection is closing.
        """
        await self.writable.wait()
        self._write(messages, binary=binary)

    def write_now(self, messages: Iterable[bytes], *, binary: bool = False) -> bool:
        """The same if the transport has room; false, and nothing sent, if it has none.

        Raises:
            ConnectionResetError: As there.
        """
        if not self.writable.is_set():
            return False
        self._write(messages, binary=binary)
        return True

    def _write(self, messages: Iterable[bytes], *, binary: bool) -> None:
        if self.disconnected:
            raise ConnectionResetError("the peer is gone")
        if self.conn.state is not State.OPEN:
            raise ConnectionResetError("the connection is closing")
        self.transport.write(framed(BINARY if binary else TEXT, messages))

    # -- pings: uvicorn's own have two timers per socket ----------------------------------------

    def start_keepalive(self) -> None:
        """Once accepted."""
        self._place = self._keep_alive.add(self)

    def stop_keepalive(self) -> None:
        """Harmless where it has not begun, or was stopped."""
        if self._place is not None:
            self._place.discard(self)
            self._place = None

    def keep_alive(self) -> None:
        """Ping; a peer that did not answer the last ping within a round is gone."""
        if self.close_sent or self.transport.is_closing():
            return
        if self.pending_ping_payload is not None:
            self.keepalive_timeout()
            return
        self.pending_ping_payload = struct.pack("!I", random.getrandbits(32))
        self.conn.send_ping(self.pending_ping_payload)
        self.transport.write(b"".join(self.conn.data_to_send()))

    def handle_pong(self, event: Frame) -> None:
        """Only the answer to the ping under way counts."""
        if event.data == self.pending_ping_payload:
            self.pending_ping_payload = None
