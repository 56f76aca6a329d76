"""Writes whole WebSocket messages as a server's frames, with a few bytes in front of each.

`websockets` makes, checks and serializes an object for each frame, which takes several
microseconds: a third of the cost of sending an event. A server's frames are not masked (RFC 6455
5.1), and ours are whole and without extensions, so only the length remains (5.2). The plain twin is
`websockets.frames.Frame.serialize`; `tests/unit/gateway/transport/test_socket_frames.py` compares
the two.
"""

from collections.abc import Sequence

TEXT, BINARY = 0x81, 0x82  # FIN, and the opcode (5.2)

_SHORT = 126  # bytes; from here on the length takes two bytes more
_LONG = 65_536  # from here on eight


def framed(opcode: int, messages: Sequence[bytes]) -> bytes:
    """Joins the messages, each as one frame of that opcode."""
    if len(messages) == 1 and _SHORT <= (size := len(messages[0])) < _LONG:  # most writes
        return b"%c\x7e%b%b" % (opcode, size.to_bytes(2, "big"), messages[0])
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
