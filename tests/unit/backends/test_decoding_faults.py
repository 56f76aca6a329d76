"""Tests what is said of a document's wrong value: what stands there, and what may stand there."""

from typing import Annotated, Literal

import msgspec
import pytest

from backends.decoding_faults import got_at, literals_at


class Tool(msgspec.Struct):
    """Has a literal behind a bound and a union."""

    kind: Annotated[Literal["a", "b"] | None, msgspec.Meta(title="kind")] = None


class Body(msgspec.Struct):
    """Has a list of tools."""

    tools: list[Tool] = []


@pytest.mark.parametrize(
    ("text", "path", "said"),
    [
        (b'{"temperature": 2.1}', ".temperature", ", got 2.1"),
        ('{"n": 0}', ".n", ", got 0"),
        (b'{"a": [1, {"b": "four"}]}', ".a[1].b", ", got 4 characters"),
        (b'{"a": [1, {"b": "four"}]}', ".a", ", got 2 entries"),
        (b'{"a": {"b": 1}}', ".a", ", got 1 fields"),
        (msgspec.Raw(b"12.50"), "", ", got 12.5"),
        (b'{"n": 1' + b"0" * 60 + b"}", ".n", ", got 1" + "0" * 31),
        (b'{"a": null}', ".a", ""),
        (b'{"a": {"b": 1}}', ".a[...]", ""),
        (b'{"a": [1]}', ".a[3]", ""),
        (b'{"a": [1]}', ".a.b", ""),
        (b'{"a": 3, and no more JSON', ".a", ""),
        (b"[" * 100_000, ".a", ""),
    ],
)
def test_what_stands_there_is_said_where_it_can_be(
    text: bytes | str | msgspec.Raw, path: str, said: str
) -> None:
    assert got_at(text, path) == said


def test_a_literal_is_found_behind_lists_unions_and_bounds() -> None:
    assert literals_at(Body, ".tools[...].kind") == ["a", "b"]
    assert literals_at(Body, ".tools") == []
