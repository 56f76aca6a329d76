"""uvicorn's WebSocket protocol with two more ways to its transport.

ASGI sends one message at a time, and each costs a system call: half of the gateway's CPU when a
thousand streams flush fifty times a second. What one connection has to say at once therefore goes
out in one `write`; `docs/performance.md` has the figures.
"""

from collections.abc import Callable, Sequence

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState
from websockets.http11 import Request

ABORT, WRITE = "abort", "write"  # where `scope["state"]` holds the two


class SocketProtocol(WebSocketsSansIOProtocol):
    """Adds `abort` and `write` to the connection's state."""

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if self.handshake_initiated and not self.handshake_complete:
            self.scope["state"][ABORT] = self.transport.abort  # even if a stalled reader fills it
            self.scope["state"][WRITE] = self.write_messages

    async def write_messages(self, messages: Sequence[bytes], *, binary: bool = False) -> None:
        """Send whole messages in one write, once the transport has room.

        Raises:
            ConnectionResetError: The peer is gone, or the connection is closing.
        """
        await self.writable.wait()
        if self.disconnected:
            raise ConnectionResetError("the peer is gone")
        add: Callable[[bytes], None] = self.conn.send_binary if binary else self.conn.send_text
        try:
            for message in messages:
                add(message)
        except InvalidState:
            raise ConnectionResetError("the connection is closing") from None
        self.transport.write(b"".join(self.conn.data_to_send()))
