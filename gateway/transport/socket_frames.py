"""Writes whole WebSocket messages as a server's frames, and reads a client's that is whole.

`websockets` makes, checks and serializes an object for each frame, which takes several
microseconds: a third of the cost of sending an event. A server's frames are not masked (RFC 6455
5.1), and ours are whole and without extensions, so only the length remains (5.2). The plain twins
are `websockets.frames.Frame.serialize` and `parse`;
`tests/unit/gateway/transport/test_socket_frames.py` compares them.
"""

from collections.abc import Sequence
from itertools import chain

from websockets.frames import apply_mask  # type: ignore[attr-defined] # in C where there is one

TEXT, BINARY = 0x81, 0x82  # FIN, and the opcode (5.2)

_MASKED = 0x80
_MASK_BYTES, _HEAD_BYTES = 4, 6  # the mask's own, and those of a short message's head with it
_SHORT = 126  # bytes; from here on the length takes two bytes more
_LONG = 65_536  # from here on eight


class _Heads(dict[int, bytes]):
    """Keeps the heads of an opcode's frames by their messages' sizes, but for long ones."""

    def __init__(self, opcode: int) -> None:
        super().__init__()
        self._opcode = opcode

    def __missing__(self, size: int) -> bytes:
        if size >= _LONG:
            return bytes((self._opcode, 127)) + size.to_bytes(8, "big")
        if size >= _SHORT:
            head = bytes((self._opcode, _SHORT)) + size.to_bytes(2, "big")
        else:
            head = bytes((self._opcode, size))
        self[size] = head
        return head


_HEADS = {TEXT: _Heads(TEXT), BINARY: _Heads(BINARY)}


def framed(opcode: int, messages: Sequence[bytes]) -> bytes:
    """Joins the messages, each as one frame of that opcode."""
    heads = _HEADS[opcode]
    if len(messages) == 1:  # most writes
        return heads[len(messages[0])] + messages[0]
    pieces = zip(map(heads.__getitem__, map(len, messages)), messages, strict=True)
    return b"".join(chain.from_iterable(pieces))


def whole_text(arrived: bytes) -> bytes | None:
    """Returns the text if the bytes are exactly one frame of a client with a whole text message.

    None is anything else, also what is no frame: that is for the library to read.
    """
    size, start = len(arrived), _HEAD_BYTES
    if size < start or arrived[0] != TEXT:
        return None
    num_bytes = arrived[1] - _MASKED
    if num_bytes == _SHORT:
        num_bytes, start = int.from_bytes(arrived[2:4], "big"), start + 2
    elif num_bytes > _SHORT:
        return None  # the length takes eight bytes
    if num_bytes != size - start:  # as well where it is below 0: no client's frame
        return None
    text: bytes = apply_mask(arrived[start:], arrived[start - _MASK_BYTES : start])
    return text
