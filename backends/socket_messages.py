"""Cuts a WebSocket server's bytes into whole plain messages; what is not plain stays as it came.

`websockets` takes every frame through a generator, an object, a queue and a task that wakes: some
ten microseconds, of which an upstream that sends an event per token would cause most of what its
tokens cost here. An unmasked, unfragmented text or binary frame without extensions, which is all
that such servers send between pings, needs none of that (RFC 6455 5.2). The plain twin is that
library; `tests/unit/backends/test_socket_messages.py` compares the two.
"""

from typing import NamedTuple

_PLAIN = frozenset({0x81, 0x82})  # FIN with text or binary
_CONTROL = frozenset({0x88, 0x89, 0x8A})  # close, ping, pong


class Piece(NamedTuple):
    """A plain message's payload; or whole frames of another kind, byte for byte."""

    is_message: bool
    content: bytes


class MessageCutter:
    """Feed it what arrives, cut anywhere.

    Behind a frame that is neither plain nor control (a fragment, reserved bits, more than
    `max_bytes`) nothing is cut any more: the rest of the connection is one kind of piece.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._rest = bytearray()  # of an unfinished frame
        self._cuts = True

    def feed(self, arrived: bytes) -> list[Piece]:
        """The pieces that are now complete, in order."""
        if not self._cuts:
            return [Piece(False, arrived)]
        buffer: bytes | bytearray = arrived
        if self._rest:
            self._rest += arrived
            buffer = self._rest
        pieces: list[Piece] = []
        at, size = 0, len(buffer)
        while size - at >= 2:
            first, num_bytes, start = buffer[at], buffer[at + 1], at + 2
            if num_bytes >= 126:
                width = {126: 2, 127: 8}.get(num_bytes, 0)  # with a mask: 0
                start += width
                if size < start:
                    break
                num_bytes = int.from_bytes(buffer[at + 2 : start], "big")
                if not width or num_bytes > self._max_bytes:
                    first = 0
            end = start + num_bytes
            if first in _PLAIN:
                if end > size:
                    break
                pieces.append(Piece(True, bytes(buffer[start:end])))
            elif first in _CONTROL:
                if end > size:
                    break
                pieces.append(Piece(False, bytes(buffer[at:end])))
            else:
                self._cuts = False
                pieces.append(Piece(False, bytes(buffer[at:])))
                end = size
            at = end
        if buffer is self._rest:
            del self._rest[:at]
        elif at < size:
            self._rest += buffer[at:]
        return pieces
