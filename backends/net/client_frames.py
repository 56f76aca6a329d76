"""Writes a whole text message as a WebSocket client's frame (RFC 6455 5.2), masked (5.3).

`websockets` sends one through a context manager, a frame object and a wait for the transport. The
plain twin is `websockets.frames.Frame.serialize`;
`tests/unit/backends/net/test_client_frames.py` compares the two.
"""

from websockets.frames import apply_mask  # type: ignore[attr-defined] # in C where there is one

_TEXT = 0x81  # FIN, and the opcode
_MASKED = 0x80
_SHORT = 126  # bytes; from here on the length takes two bytes more
_LONG = 65_536  # from here on eight


def masked_text(message: bytes, mask: bytes) -> bytes:
    """Returns the message as one frame; `mask` is four bytes that nobody can guess (10.3)."""
    size = len(message)
    if size < _SHORT:
        head = bytes((_TEXT, _MASKED | size))
    elif size < _LONG:
        head = b"%c\xfe%b" % (_TEXT, size.to_bytes(2, "big"))
    else:
        head = b"%c\xff%b" % (_TEXT, size.to_bytes(8, "big"))
    return b"%b%b%b" % (head, mask, apply_mask(message, mask))
