"""What a supervisor and its workers say to each other: msgpack frames, each after its length.

Either side asks by a word and answers what it is asked; the supervisor begins with `Begin`, a
worker says `Serving` once it serves, and `Farewell` when it ends as it should.
"""

import msgspec

LENGTH_BYTES = 4
MAX_FRAME_BYTES = 64 << 20


class Begin(msgspec.Struct, frozen=True, array_like=True, tag="begin"):
    """The first frame: what to be."""

    config: bytes  # JSON
    number: int  # 1, 2 and so on; 0: the engines
    listener: int | None  # a listening socket's file descriptor; None: make one of its own
    key: str  # to the engines, which are no tenant's


class Serving(msgspec.Struct, frozen=True, array_like=True, tag="serving"):
    """It serves."""


class Farewell(msgspec.Struct, frozen=True, array_like=True, tag="farewell"):
    """A worker's last: it ends now."""

    metrics: bytes


class Query(msgspec.Struct, frozen=True, array_like=True, tag="ask"):
    """A question, by a word."""

    id: int
    word: str


class Reply(msgspec.Struct, frozen=True, array_like=True, tag="answer"):
    """To the question of that id."""

    id: int
    body: bytes


Frame = Begin | Serving | Farewell | Query | Reply

_decoder = msgspec.msgpack.Decoder(Frame)
_encoder = msgspec.msgpack.Encoder()


def encoded(frame: Frame) -> bytes:
    """The frame after its length."""
    body = _encoder.encode(frame)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def decoded(body: bytes) -> Frame:
    """A frame without its length."""
    frame: Frame = _decoder.decode(body)
    return frame
