"""Tests places: every path of a document is found, at the text that stands for it."""

import json
import tomllib
from collections.abc import Iterator
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

from router.policy.positions import Path, Position, nearest, positions_of

TOML = """\
# c
a = 1
"q.x" . 'b' = \"\"\"x
 \\\"\"" y\"\"\"
[t.u]
z = [1, { k = 'v', l.m = 2 }, # ]
  [ "a]", '''
'x''' ], ]
[[r]]
n = 1
[r.w]
d = 1979-05-27 07:32:00
[[r]]
n = 2
[[r.s]]
x = {}
[[r.s]]
x = "a]b#\\u0041"
"\\u0041" = 0x1F # end"""

# path, line and column of its key, of its value
PLACES: list[tuple[Path, Position, Position]] = [
    (("a",), Position(2, 1), Position(2, 5)),
    (("q.x", "b"), Position(3, 1), Position(3, 15)),
    (("t", "u", "z", 1, "l", "m"), Position(6, 20), Position(6, 26)),
    (("t", "u", "z", 2, 1), Position(7, 11), Position(7, 11)),
    (("r", 0, "w", "d"), Position(12, 1), Position(12, 5)),
    (("r", 1), Position(13, 3), Position(13, 3)),
    (("r", 1, "s", 1, "x"), Position(18, 1), Position(18, 5)),
    (("r", 1, "s", 1, "A"), Position(19, 1), Position(19, 12)),
]


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    if path:
        yield path
    if isinstance(value, dict):
        for key, entry in value.items():
            yield from paths(entry, (*path, key))
    if isinstance(value, list):
        for index, entry in enumerate(value):
            yield from paths(entry, (*path, index))


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_toml(newline: str) -> None:
    text = TOML.replace("\n", newline)
    found = positions_of(text)
    assert set(found) == set(paths(tomllib.loads(text)))
    for path, key, value in PLACES:
        assert found[path] == (key, value), path


def test_json() -> None:
    text = '{"a": [1,\n {"b\\"c": {}}], "\\ud83d\\ude00": "x]"}'
    found = positions_of(text)
    assert set(found) == set(paths(json.loads(text)))
    assert found["a",] == (Position(1, 2), Position(1, 7))
    assert found["a", 1, 'b"c'] == (Position(2, 3), Position(2, 11))


def test_what_has_no_place_of_its_own_stands_where_its_table_does() -> None:
    found = positions_of("[a]\nb = { c = 1 }")
    assert nearest(found, ("a", "b", "x"), key=False) == Position(2, 5)
    assert nearest(found, ("a", "b", "c"), key=True) == Position(2, 7)
    assert nearest(found, ("z",), key=False) is None


KEYS = st.text(max_size=6)
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.floats(-1, 1), st.text())
TREES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4)
)


@hypothesis.given(st.dictionaries(KEYS, TREES, max_size=4), st.sampled_from([None, 1, 4]))
def test_every_path_of_any_json_document_has_its_place(tree: Any, indent: int | None) -> None:
    text = json.dumps(tree, indent=indent)
    found = positions_of(text)
    assert set(found) == set(paths(json.loads(text)))
    lines = text.splitlines()
    for path in paths(tree):
        line, column = found[path].value
        value = tree
        for step in path:
            value = value[step]
        if not isinstance(value, dict | list):
            assert lines[line - 1][column - 1 :].startswith(json.dumps(value))
