"""Passes plain messages of a `websockets` connection to a listener as they arrive.

The bytes of a read are passed on within the same turn of the event loop, without a queue or a task.
Handshake, pings, closing and anything unusual stay the library's. This is an edge.
"""

from collections.abc import Callable

from websockets.asyncio.client import ClientConnection
from websockets.protocol import State

from backends.net.read_pause import LARGE_READ_BYTES, ReadPause, give_way
from backends.net.socket_messages import MessageCutter


class QuickConnection(ClientConnection):
    """Is passed to `connect` as `create_connection`; then `listen` is called.

    The listener's owner also iterates over the connection: messages that the library assembled
    itself, and the close, come there.
    """

    reading: ReadPause | None = None  # of the exchange under way, if it is the only one
    _cutter: MessageCutter | None = None
    _on_messages: Callable[[list[bytes]], None]

    def listen(self, on_messages: Callable[[list[bytes]], None], max_bytes: int) -> None:
        """Passes plain messages to `on_messages` from now on, in batches; it must not raise.

        If the library has already buffered the beginning of a frame, all messages stay with it.
        """
        self._on_messages = on_messages
        if not self.protocol.reader.buffer:
            self._cutter = MessageCutter(max_bytes)

    def allow(self, max_bytes: int) -> None:
        """Takes messages of up to so many bytes from now on."""
        self.protocol.max_size = max_bytes
        if self._cutter is not None:
            self._cutter.max_bytes = max_bytes

    @property
    def unsent_bytes(self) -> int:
        """Returns how many bytes are still in the send buffer; senders check it first."""
        return self.transport.get_write_buffer_size()

    def send_now(self, content: bytes) -> None:
        """Sends a binary message within this turn of the event loop; none while it closes."""
        if self.protocol.state is State.OPEN and not self.transport.is_closing():
            self.protocol.send_binary(content)
            self.send_data()

    def data_received(self, data: bytes) -> None:
        if len(data) >= LARGE_READ_BYTES:
            give_way(self)
        if self._cutter is not None:
            messages, data = self._cutter.feed(data)
            if messages:
                self._on_messages(messages)
            if not data:
                return
        super().data_received(data)
        if self.protocol.parser_exc is not None:
            # The library has sent its close, and would read for 20 s on what it has given up.
            self.transport.abort()
