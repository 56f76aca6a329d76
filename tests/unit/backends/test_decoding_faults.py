"""Tests what is said of a document's wrong value: what stands there, and what may stand there."""

from typing import Annotated, Literal

import msgspec
import pytest

from backends.decoding_faults import got_at, literals_at, wrong_key


class Tool(msgspec.Struct):
    """Has a literal behind a bound and a union."""

    kind: Annotated[Literal["a", "b"] | None, msgspec.Meta(title="kind")] = None


class Body(msgspec.Struct):
    """Has a list of tools, and maps."""

    tools: list[Tool] = []
    labels: dict[Annotated[str, msgspec.Meta(max_length=3)], str] = {}
    parts: list["Body"] = []


class Left(Body, tag="left"):
    """Is one of two kinds."""


class Right(msgspec.Struct, tag="right"):
    """Is the other."""

    labels: dict[str, int] = {}


@pytest.mark.parametrize(
    ("text", "path", "said"),
    [
        (b'{"temperature": 2.1}', ".temperature", ", got 2.1"),
        ('{"n": 0}', ".n", ", got 0"),
        (b'{"a": [1, {"b": "four"}]}', ".a[1].b", ", got 4 characters"),
        (b'{"a": [1, {"b": "four"}]}', ".a", ", got 2 entries"),
        (b'{"a": {"b": 1}}', ".a", ", got 1 field"),
        (b'{"a": {}}', ".a", ", got 0 fields"),
        (b'{"a": [{"b": 1}]}', ".a", ", got 1 entry"),
        (b'{"a": "b"}', ".a", ", got 1 character"),
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


# kind, document, path, the key that is wrong there
ENTRIES: list[tuple[object, str, str, str | None]] = [
    (Body, '{"labels": {"a": "", "b": 1, "c": 2}}', ".labels", "b"),
    (Body, '{"labels": {"a": "", "long": ""}}', ".labels", "long"),
    (Body, '{"parts": [{}, {"labels": {"a.b": [], "c": 1}}]}', ".parts[1].labels", "a.b"),
    (Left | Right, '{"type": "left", "labels": {"a": "", "b": 1}}', ".labels", "b"),
    (Left | Right, '{"type": "right", "labels": {"a": 1, "b": ""}}', ".labels", "b"),
    (Body, '{"labels": {"a": 1, "a": "the last of a name counts"}}', ".labels", None),
    (Body, '{"labels": {"a": 1}, and no more JSON', ".labels", None),
    (Body, '{"labels": 1}', ".labels", None),
    (Body, '{"labels": {"a": 1}}', ".parts", None),
]


@pytest.mark.parametrize(("kind", "text", "path", "key"), ENTRIES)
def test_the_key_of_a_wrong_entry_is_found(
    kind: object, text: str, path: str, key: str | None
) -> None:
    assert wrong_key(kind, text, path) == key


def test_what_stands_at_a_key_is_said() -> None:
    assert got_at('{"labels": {"a.b": "four"}}', ".labels", "a.b") == ", got 4 characters"
    text = '{"limits": {"fast": {"per_min": -1}}}'
    assert got_at(text, ".limits", "fast", ".per_min") == ", got -1"
    assert got_at(text, ".limits", "fast", "[...]") == ""
