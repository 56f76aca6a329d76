"""Cuts a WebSocket server's bytes into whole plain messages; what is not plain stays as it came.

`websockets` takes every frame through a generator, an object, a queue and a task that wakes: some
ten microseconds, of which an upstream that sends an event per token would cause most of what its
tokens cost here. An unmasked, unfragmented text or binary frame without extensions, which is all
that such servers send between pings, needs none of that (RFC 6455 5.2). The plain twin is that
library; `tests/unit/backends/net/test_socket_messages.py` compares the two.
"""

_PLAIN = frozenset({0x81, 0x82})  # FIN with text or binary
_KNOWN = _PLAIN | {0x88, 0x89, 0x8A}  # close, ping, pong
_WIDTHS = {126: 2, 127: 8}  # bytes of a longer length; with a mask: none


class MessageCutter:
    """Feed it what arrives, cut anywhere.

    Behind a frame that is neither plain nor control (a fragment, reserved bits, more than
    `max_bytes`) nothing is cut any more: the rest of the connection is left as it comes.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._rest = bytearray()  # of an unfinished frame
        self._num_needed = 0  # bytes that it must have before a look at it can tell more
        self._cuts = True

    def feed(self, arrived: bytes) -> tuple[list[bytes], bytes]:
        """What is now complete: plain messages' payloads; and other frames, byte for byte.

        Control frames may have come between the messages, all others came behind them.
        """
        if not self._cuts:
            return [], arrived
        if self._rest:
            self._rest += arrived
            if len(self._rest) < self._num_needed:
                return [], b""
            arrived = bytes(self._rest)
            self._rest.clear()
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
                if not width or num_bytes > self._max_bytes:
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
        return messages, others
