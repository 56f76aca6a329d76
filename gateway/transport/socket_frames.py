"""Whole WebSocket messages as the frames of a server: a few bytes in front of each.

`websockets` makes an object of a frame, checks it and serializes it through a buffer, at several
microseconds each: a third of what an event costs on its way out. A server's frames are not masked
(RFC 6455 5.1), and ours are whole and without extensions, so that only the length remains (5.2).
The plain twin is `websockets.frames.Frame.serialize`;
`tests/unit/gateway/transport/test_socket_frames.py` compares the two.
"""

from collections.abc import Iterable

TEXT, BINARY = 0x81, 0x82  # FIN, and the opcode (5.2)

_SHORT = 126  # bytes; from here on the length takes two more
_LONG = 65_536  # and from here on eight


def framed(opcode: int, messages: Iterable[bytes]) -> bytes:
    """The messages, each as one frame of that opcode, in order."""
    pieces: list[bytes] = []
    medium = bytes((opcode, 126))
    for message in messages:
        size = len(message)
        if _SHORT <= size < _LONG:
            pieces.append(medium + size.to_bytes(2, "big"))
        elif size < _SHORT:
            pieces.append(bytes((opcode, size)))
        else:
            pieces.append(bytes((opcode, 127)) + size.to_bytes(8, "big"))
        pieces.append(message)
    return b"".join(pieces)
