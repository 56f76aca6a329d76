"""uvicorn's WebSocket protocol with more ways to its transport.

ASGI sends one message at a time, and each costs a system call: half of the gateway's CPU when a
thousand streams flush fifty times a second. What one connection has to say at once therefore goes
out in one `write`; `docs/performance.md` has the figures.
"""

from collections.abc import Iterable, Sequence

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request
from websockets.protocol import State

from gateway.socket_frames import BINARY, TEXT, framed

ABORT, WRITE, WRITE_NOW = "abort", "write", "write_now"  # where `scope["state"]` holds each


class SocketProtocol(WebSocketsSansIOProtocol):
    """Adds `abort`, `write_messages` and `write_now` to the connection's state."""

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if self.handshake_initiated and not self.handshake_complete:
            self.scope["state"][ABORT] = self.transport.abort  # even if a stalled reader fills it
            self.scope["state"][WRITE] = self.write_messages
            self.scope["state"][WRITE_NOW] = self.write_now

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
