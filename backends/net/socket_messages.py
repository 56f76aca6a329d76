"""Cuts a WebSocket server's bytes into whole plain messages, and leaves other frames as they are.

`websockets` takes every frame through a generator, an object, a queue and a task that wakes: some
ten microseconds, most of what a token costs here when an upstream sends an event for each. An
unmasked, unfragmented text or binary frame without extensions, which is all that such servers send
between pings, needs none of that (RFC 6455 5.2). The plain twin is that library;
`tests/unit/backends/net/test_socket_messages.py` compares the two.
"""

import struct
from operator import itemgetter

_PLAIN = frozenset({0x81, 0x82})  # FIN with text or binary
_KNOWN = _PLAIN | {0x88, 0x89, 0x8A}  # close, ping, pong
_WIDTHS = {126: 2, 127: 8}  # length marker -> bytes of the extended length
_TEXT_HEAD = 0x817E << 16  # with a length of two bytes behind it
_TEXT_START = b"\x81~"  # the same
_LEAST_BYTES = 126  # of a message with such a head
_told_bytes = struct.Struct(">H").unpack_from  # a length of two bytes
_behind_length = itemgetter(slice(2, None))

LONE_BYTES = 2_048  # at most, of a message that `lone` returns; a token's has 150 to 500


class MessageCutter:
    """Cuts a stream of bytes, which may arrive in pieces of any size.

    After a frame that is neither plain nor control (fragmented, reserved bits, over `max_bytes`)
    it stops cutting: the rest of the connection is returned as it comes.
    """

    def __init__(self, max_bytes: int, *, cuts: bool = True) -> None:
        """Returns everything as it comes, from the beginning, unless it `cuts`."""
        self.max_bytes = max_bytes
        self._lone_bytes = min(max_bytes, LONE_BYTES)
        # At most, of a message that `lone` takes now; -1 amid a frame, and where nothing is cut.
        self._max_lone_bytes = self._lone_bytes if cuts else -1
        self._rest = bytearray()  # of an unfinished frame
        self._num_needed = 0  # bytes of it that must have come before it is parsed again
        self._cuts = cuts

    def lone(self, arrived: bytes) -> bytes | None:
        """Returns the text message that a read is, if it is exactly one and not long.

        None if it is not: then nothing was taken, and `feed` takes it.
        """
        size = len(arrived) - 4  # of the message, if its length takes two bytes (5.2)
        if size > self._max_lone_bytes or int.from_bytes(arrived[:4], "big") != _TEXT_HEAD + size:
            return None
        return arrived[4:]

    def feed(self, arrived: bytes) -> tuple[list[bytes], bytes]:
        """Returns the payloads of complete plain messages, and the bytes of other frames.

        Control frames may have come between the messages; all other frames came after them.
        """
        if not self._cuts:
            return [], arrived
        if self._rest:
            self._rest += arrived
            if len(self._rest) < self._num_needed:
                return [], b""
            arrived = bytes(self._rest)
            self._rest.clear()
        if (texts := _texts_of(arrived, self.max_bytes)) is not None:
            self._max_lone_bytes = self._lone_bytes
            return texts, b""
        messages: list[bytes] = []
        others = b""
        at, size, num_needed = 0, len(arrived), 2
        while size - at >= 2:
            first, num_bytes, start = arrived[at], arrived[at + 1], at + 2
            if num_bytes >= 126:
                width = _WIDTHS.get(num_bytes, 0)
                start += width
                if size < start:
                    num_needed = start - at
                    break
                num_bytes = int.from_bytes(arrived[at + 2 : start], "big")
                if not width or num_bytes > self.max_bytes:
                    first = 0
            end = start + num_bytes
            if first not in _KNOWN:
                self._cuts = False
                others += arrived[at:]
                at = size
                break
            if end > size:
                num_needed = end - at
                break
            if first in _PLAIN:
                messages.append(arrived[start:end])
            else:
                others += arrived[at:end]
            at = end
        if at < size:
            self._rest += arrived[at:]
            self._num_needed = num_needed
        is_between = self._cuts and not self._rest
        self._max_lone_bytes = self._lone_bytes if is_between else -1
        return messages, others


def _texts_of(arrived: bytes, max_bytes: int) -> list[bytes] | None:
    """Returns the messages of a read that is whole text frames of 126 bytes to 64 KiB alone.

    None of any other, and where a message has the bytes of a head within it: cut at these, its
    pieces are not as long as they say.
    """
    before, *frames = arrived.split(_TEXT_START)
    if before or not frames:
        return None
    texts = list(map(_behind_length, frames))
    sizes = list(map(len, texts))
    if min(sizes) < _LEAST_BYTES or max(sizes) > max_bytes:
        return None
    told = list(map(_told_bytes, frames))
    return texts if told == list(zip(sizes, strict=True)) else None
