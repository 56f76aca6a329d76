"""A WebSocket as ASGI gives it, with the ways past ASGI to its transport.

An edge: it calls other edges.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, cast

from litestar.types import Receive, Scope, Send

from gateway.transport.socket_protocol import ABORT, TAKE_BY, WRITE, WRITE_NOW, Taker

Headers = Iterable[tuple[bytes, bytes]]


class AsgiSocket:
    """One connection: `accept`, `deny` or `close` comes first."""

    __slots__ = ("_receive", "_send", "abort", "take_by", "write", "write_now")

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = cast("Callable[[dict[str, Any]], Awaitable[None]]", send)
        state: Mapping[str, Any] = scope["state"]
        # Each as `SocketProtocol` has it.
        self.abort: Callable[[], None] = state[ABORT]
        self.write: Callable[..., Awaitable[None]] = state[WRITE]
        self.write_now: Callable[..., bool] = state[WRITE_NOW]
        self.take_by: Callable[[Taker | None], None] = state[TAKE_BY]

    async def accept(self, headers: Headers = ()) -> None:
        """Open the socket, with headers of our own in the answer."""
        await self._receive()  # "websocket.connect"
        await self._send({"type": "websocket.accept", "headers": headers})

    async def deny(self, status: int, headers: Headers, body: bytes) -> None:
        """Answer with HTTP instead (the ASGI extension `websocket.http.response`)."""
        start = {"type": "websocket.http.response.start", "status": status, "headers": headers}
        await self._send(start)
        await self._send({"type": "websocket.http.response.body", "body": body})

    async def receive(self) -> dict[str, Any]:
        """The next message, or the disconnect. Cancelling takes none."""
        return cast("dict[str, Any]", await self._receive())

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Say goodbye; before `accept`, turn away with a bare 403.

        Raises:
            OSError, RuntimeError: It is closed already.
        """
        await self._send({"type": "websocket.close", "code": code, "reason": reason})
