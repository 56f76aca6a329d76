"""Unpacks bodies that a client has compressed, within the size that a body may have.

It imports by name: `zstandard` and `brotli` are loaded when the first body of theirs comes, and
where one is not installed its coding is not taken. Output is bounded while it is made, so that a
small body cannot unpack to a large one. This is an edge.
"""

import importlib
import importlib.util
import zlib
from collections.abc import Callable
from typing import Any

from gateway.wire.errors import ProtocolError, too_large


def unpacked(content: bytes, coding: str, max_bytes: int) -> bytes:
    """Returns a body without its `Content-Encoding`.

    Raises `ProtocolError` if the coding is not taken, the body is not of it, or holds too much.
    """
    coding = coding.strip().lower()
    if coding == "identity":
        return content
    if coding not in accepted():
        names = ", ".join(accepted())
        message = f"Content-Encoding {coding[:64]!r} is not taken here: expected one of {names}."
        raise ProtocolError("unsupported_encoding", message, headers={"accept-encoding": names})
    try:
        body = _CODINGS[coding][1](content, max_bytes + 1)
    except Exception as error:  # each library has its own
        message = f"The body is not {coding}, as its Content-Encoding says: {error}."
        raise ProtocolError("invalid_value", message) from None
    if len(body) > max_bytes:
        raise too_large(max_bytes, len(body))
    return body


def accepted() -> tuple[str, ...]:
    """Names the codings that are taken."""
    return tuple(
        name
        for name, (module, _) in _CODINGS.items()
        if module is None or importlib.util.find_spec(module) is not None
    )


def _inflated(content: bytes, max_bytes: int) -> bytes:
    # "deflate" has zlib's header by RFC 9110, and none by some clients.
    has_header = content[:1] == b"\x1f" or (content[:1] or b"\0")[0] & 0x0F == 8
    unpacker = zlib.decompressobj(47 if has_header else -15)
    body = unpacker.decompress(content, max_bytes)
    if len(body) < max_bytes and not unpacker.eof:
        raise ValueError("it ends too early")
    return body


def _unpacked_zstd(content: bytes, max_bytes: int) -> bytes:
    zstandard: Any = importlib.import_module("zstandard")
    unpacker = zstandard.ZstdDecompressor(max_window_size=1 << 27)
    reader = unpacker.stream_reader(content, read_across_frames=True)
    pieces, num_bytes = [], 0
    while num_bytes < max_bytes and (piece := reader.read(max_bytes - num_bytes)):
        pieces.append(piece)
        num_bytes += len(piece)
    return b"".join(pieces)


def _unpacked_br(content: bytes, max_bytes: int) -> bytes:
    unpacker: Any = importlib.import_module("brotli").Decompressor()
    body: bytes = unpacker.process(content, output_buffer_limit=max_bytes)
    if len(body) < max_bytes and not unpacker.is_finished():
        raise ValueError("it ends too early")
    return body


# Each coding's package, and what unpacks at most so many bytes of it.
_CODINGS: dict[str, tuple[str | None, Callable[[bytes, int], bytes]]] = {
    "gzip": (None, _inflated),
    "x-gzip": (None, _inflated),
    "deflate": (None, _inflated),
    "zstd": ("zstandard", _unpacked_zstd),
    "br": ("brotli", _unpacked_br),
}
