"""Wraps an ASGI WebSocket, with direct access to its transport. This is an edge."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from litestar.types import Receive, Scope, Send

from gateway.transport.socket_handshake import Headers
from gateway.transport.socket_protocol import (
    ABORT,
    ANSWERS,
    TAKE_BY,
    WRITE,
    WRITE_NOW,
    Taker,
)


class AsgiSocket:
    """Is one connection; call `accept`, `deny` or `close` first."""

    __slots__ = ("_receive", "_send", "abort", "answers", "take_by", "write", "write_now")

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = cast("Callable[[dict[str, Any]], Awaitable[None]]", send)
        state: Mapping[str, Any] = scope["state"]
        # These are methods of `SocketProtocol`.
        self.abort: Callable[[], None] = state[ABORT]
        self.answers: Callable[[], Awaitable[bool]] = state[ANSWERS]
        self.write: Callable[..., Awaitable[None]] = state[WRITE]
        self.write_now: Callable[..., bool] = state[WRITE_NOW]
        self.take_by: Callable[[Taker | None], None] = state[TAKE_BY]

    async def accept(self, headers: Headers = (), subprotocol: str | None = None) -> None:
        """Accepts the handshake, with headers of ours in the response."""
        await self._receive()  # "websocket.connect"
        accept = {"type": "websocket.accept", "headers": headers, "subprotocol": subprotocol}
        await self._send(accept)

    async def deny(self, status: int, headers: Headers, body: bytes) -> None:
        """Refuses the handshake with an HTTP response."""
        start = {"type": "websocket.http.response.start", "status": status, "headers": headers}
        await self._send(start)
        await self._send({"type": "websocket.http.response.body", "body": body})

    async def receive(self) -> dict[str, Any]:
        """Returns the next message, or the disconnect. Cancelling loses none."""
        return cast("dict[str, Any]", await self._receive())

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Closes the socket; before `accept`, refuses it with a bare 403.

        Raises `OSError` or `RuntimeError` if it is already closed.
        """
        await self._send({"type": "websocket.close", "code": code, "reason": reason})
