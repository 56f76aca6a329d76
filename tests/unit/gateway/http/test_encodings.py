"""Tests bodies that a client has packed: nothing of them is lost without a word."""

import gzip
import zlib
from collections.abc import Callable

import brotli  # type: ignore[import-untyped]
import pytest
import zstandard

from gateway.http.encodings import unpacked
from gateway.wire.errors import ProtocolError

LINES = [b'{"id": "%d", "text": "line %d"}\n' % (n, n * 7919) for n in range(3_000)]
BODY = b"".join(LINES)
MANY = 1 << 20

PACKED: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("gzip", gzip.compress),
    ("deflate", zlib.compress),
    ("zstd", zstandard.ZstdCompressor(write_content_size=False).compress),
    ("zstd", zstandard.ZstdCompressor(write_checksum=True).compress),
    ("br", brotli.compress),
]


@pytest.mark.parametrize(("coding", "pack"), PACKED)
def test_a_body_that_was_cut_anywhere_is_refused(
    coding: str, pack: Callable[[bytes], bytes]
) -> None:
    whole = pack(BODY)
    assert unpacked(whole, coding, MANY) == BODY
    for num_bytes in (1, 3, 4, 5, 9, len(whole) // 2, len(whole) - 12):
        with pytest.raises(ProtocolError, match=r"ends too early|not zstd"):
            unpacked(whole[:-num_bytes], coding, MANY)


@pytest.mark.parametrize(("coding", "pack"), [PACKED[0], PACKED[2]])
def test_all_members_of_a_body_are_read(coding: str, pack: Callable[[bytes], bytes]) -> None:
    packed = b"".join(map(pack, LINES[:600]))
    assert unpacked(packed, coding, MANY) == b"".join(LINES[:600])
    with pytest.raises(ProtocolError, match=r"ends too early|not zstd"):
        unpacked(packed[:-5], coding, MANY)


def test_a_gzip_may_be_padded_and_nothing_else_may_follow_it() -> None:
    assert unpacked(gzip.compress(BODY) + b"\0" * 512, "gzip", MANY) == BODY
    for coding, whole in (("gzip", gzip.compress(BODY)), ("deflate", zlib.compress(BODY))):
        with pytest.raises(ProtocolError, match="follows its end"):
            unpacked(whole + BODY, coding, MANY)


@pytest.mark.parametrize(("coding", "pack"), PACKED)
def test_no_more_is_unpacked_than_a_body_may_hold(
    coding: str, pack: Callable[[bytes], bytes]
) -> None:
    assert len(unpacked(pack(b" " * 9_999), coding, 9_999)) == 9_999
    with pytest.raises(ProtocolError) as refused:
        unpacked(pack(b" " * 10_000), coding, 9_999)
    assert refused.value.code == "message_too_large"


def test_a_gzip_has_a_bound_of_members() -> None:
    with pytest.raises(ProtocolError, match="more than 4096 members"):
        unpacked(gzip.compress(b"") * 5_000, "gzip", MANY)
