"""Passes plain messages of a `websockets` connection to a listener as they arrive.

The bytes of a read are passed on within the same turn of the event loop, without a queue or a task.
Handshake, closing and anything unusual stay the library's. This is an edge.
"""

import asyncio
from collections.abc import Callable
from os import urandom

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import State

from backends.net.client_frames import masked_text
from backends.net.read_hold import LARGE_READ_BYTES, ReadHold, give_way
from backends.net.socket_messages import MessageCutter

_NORMAL = CloseCode.NORMAL_CLOSURE.to_bytes(2, "big")
PING_TURNS = 10  # of the loop at least, in which a starved process can read what came


class QuickConnection(ClientConnection):
    """Is passed to `connect` as `create_connection`; then `listen` is called.

    The listener's owner also iterates over the connection: messages that the library assembled
    itself, and the close, come there.
    """

    reading: ReadHold | None = None  # of the exchange under way, if it is the only one
    _cutter = MessageCutter(0, cuts=False)  # until `listen`
    _on_messages: Callable[[list[bytes]], None]
    _is_heard = False  # something came since the last ping

    async def keepalive(self) -> None:
        """Pings, and gives the peer up if nothing at all comes in time: `websockets` calls it.

        Its own waits for the pong, by the clock. That may lie unread behind other data, of a
        connection that is paused or of a process that gets no CPU, and the peer is well.
        """
        assert self.ping_interval is not None
        while True:
            await asyncio.sleep(self.ping_interval)
            self._is_heard = False
            try:
                await self.ping()
                if self.ping_timeout is None or await self._hears(self.ping_timeout):
                    continue
                async with self.send_context():
                    self.protocol.fail(CloseCode.INTERNAL_ERROR, "keepalive ping timeout")
            except ConnectionClosed:
                return

    async def _hears(self, timeout_s: float) -> bool:
        for _ in range(PING_TURNS):
            await asyncio.sleep(timeout_s / PING_TURNS)
            if self._is_heard or not self.transport.is_reading():
                return True
        return False

    def listen(self, on_messages: Callable[[list[bytes]], None], max_bytes: int) -> None:
        """Passes plain messages to `on_messages` from now on, in batches; it must not raise.

        If the library has already buffered the beginning of a frame, all messages stay with it.
        A request's `ReadHold` that owns the connection may take one instead.
        """
        self._on_messages = on_messages
        self._cutter = MessageCutter(max_bytes, cuts=not self.protocol.reader.buffer)

    def allow(self, max_bytes: int) -> None:
        """Takes messages of up to so many bytes from now on."""
        name = "max_size" if hasattr(self.protocol, "max_size") else "max_message_size"  # 15, 16
        setattr(self.protocol, name, max_bytes)
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

    def send_text_now(self, message: bytes) -> bool:
        """Sends a text message within this turn of the event loop; returns false if it is closing.

        It does not wait for room, so only for what awaits an answer.
        """
        if self.protocol.state is not State.OPEN or self.transport.is_closing():
            return False
        self.transport.write(masked_text(message, urandom(4)))
        return True

    def leave_now(self) -> None:
        """Closes without waiting for an answer, and says that nobody comes back.

        A server that lets the responses of lost connections go on would keep this one's.
        """
        is_open = self.protocol.state is State.OPEN and not self.transport.is_closing()
        if not is_open or self.unsent_bytes:
            self.transport.abort()
            return
        self.transport.write(Frame(Opcode.CLOSE, _NORMAL).serialize(mask=True))
        self.transport.close()

    def data_received(self, data: bytes) -> None:
        self._is_heard = True
        reading = self.reading
        if reading is not None and reading.take_one is not None:
            message = self._cutter.lone(data)
            if message is not None and reading.take_one(message):
                return
        if len(data) >= LARGE_READ_BYTES:
            give_way(self)
        messages, data = self._cutter.feed(data)
        if messages:
            self._on_messages(messages)
        if not data:
            return
        super().data_received(data)
        if self.protocol.parser_exc is not None:
            # The library has sent its close, and would read for 20 s on what it has given up.
            self.transport.abort()
