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

_FED_BYTES = 1 << 16  # to zlib at once
_MAX_MEMBERS = 4_096  # of one gzip; each takes a new unpacker
_MARK = b"the end of a body that came whole"


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
    unpacker, is_gzip = zlib.decompressobj(47 if has_header else -15), content[:1] == b"\x1f"
    pieces, num_bytes, num_members = [], 0, 1
    # What is left behind a member is copied for each, so it is fed in pieces.
    for start in range(0, len(content), _FED_BYTES):
        fed = content[start : start + _FED_BYTES]
        while fed:
            if unpacker.eof:
                fed = fed.lstrip(b"\0")  # as gzip itself does, of what pads a file
                if not fed:
                    break
                num_members += 1
                _check_member(fed, num_members, is_gzip=is_gzip)
                unpacker = zlib.decompressobj(31)
            pieces.append(unpacker.decompress(fed, max_bytes - num_bytes))
            num_bytes += len(pieces[-1])
            if num_bytes >= max_bytes:
                return b"".join(pieces)
            fed = unpacker.unused_data
    if not unpacker.eof:
        raise ValueError("it ends too early")
    return b"".join(pieces)


def _check_member(fed: bytes, number: int, *, is_gzip: bool) -> None:
    """Raises ValueError for what follows an end, unless it is one more member of a gzip."""
    if not is_gzip or fed[0] != 0x1F:
        raise ValueError("something that is not packed follows its end")
    if number > _MAX_MEMBERS:
        raise ValueError(f"it has more than {_MAX_MEMBERS} members")


def _unpacked_zstd(content: bytes, max_bytes: int) -> bytes:
    zstandard: Any = importlib.import_module("zstandard")
    unpacker = zstandard.ZstdDecompressor(max_window_size=1 << 27)
    # The reader does not tell a body that was cut. So a frame of ours follows, which comes out
    # whole only if all before it was.
    content += zstandard.ZstdCompressor(write_content_size=False).compress(_MARK)
    reader = unpacker.stream_reader(content, read_across_frames=True)
    pieces, num_left = [], max_bytes + len(_MARK)
    while num_left and (piece := reader.read(num_left)):
        pieces.append(piece)
        num_left -= len(piece)
    body = b"".join(pieces)
    if not num_left:
        return body[:max_bytes]
    if not body.endswith(_MARK):
        raise ValueError("it ends too early")
    return body[: -len(_MARK)]


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
