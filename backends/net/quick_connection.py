"""websockets' client connection, whose plain messages go to a listener as they arrive.

A read from the socket is handed on within the same turn of the event loop, without a queue or a
task. Handshake, pings, closing and anything unusual stay the library's.

An edge: it calls other edges.
"""

from collections.abc import Callable

from websockets.asyncio.client import ClientConnection
from websockets.protocol import State

from backends.net.socket_messages import MessageCutter


class QuickConnection(ClientConnection):
    """Give it to `connect` as `create_connection`, then call `listen`.

    Whoever listens reads on besides: what the library had to put together itself comes there, and
    so does the close.
    """

    _cutter: MessageCutter | None = None
    _on_messages: Callable[[list[bytes]], None]

    def listen(self, on_messages: Callable[[list[bytes]], None], max_bytes: int) -> None:
        """Hand plain messages to it from now on, as many as came together; it must not raise.

        Where the library holds the beginning of a frame already, all stays with the library.
        """
        self._on_messages = on_messages
        if not self.protocol.reader.buffer:
            self._cutter = MessageCutter(max_bytes)

    @property
    def unsent_bytes(self) -> int:
        """What the network has not taken yet; whoever sends looks first."""
        return self.transport.get_write_buffer_size()

    def send_now(self, content: bytes) -> None:
        """Send a binary message within this turn of the event loop; nothing where it closes."""
        if self.protocol.state is State.OPEN and not self.transport.is_closing():
            self.protocol.send_binary(content)
            self.send_data()

    def data_received(self, data: bytes) -> None:
        if self._cutter is None:
            super().data_received(data)
            return
        messages, others = self._cutter.feed(data)
        if messages:
            self._on_messages(messages)
        if others:
            super().data_received(others)
