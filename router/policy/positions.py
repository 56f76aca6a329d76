"""Where each value of a TOML or JSON document stands, so that an error can point at it.

The parsers of the standard library say what a document holds, not where. These scanners walk a
document that one of them has accepted already, so they need not check it again.
"""

import re
from bisect import bisect_right
from typing import NamedTuple

Path = tuple[str | int, ...]  # keys of tables, places in arrays


class Position(NamedTuple):
    """Line and column, both from 1."""

    line: int
    column: int


class Entry(NamedTuple):
    """Where an entry begins: its key (for an array's item: itself) and its value."""

    key: Position
    value: Position


Positions = dict[Path, Entry]


class _Lines:
    """Offset -> line and column."""

    def __init__(self, text: str) -> None:
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def position(self, offset: int) -> Position:
        line = bisect_right(self._starts, offset)
        return Position(line, offset - self._starts[line - 1] + 1)


_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_SCALAR = re.compile(r"[^,\]}#\n]+")
_BASIC = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_LITERAL = re.compile(r"'[^']*'")
_LONG_BASIC = re.compile(r'"""(?:[^\\]|\\.)*?"{3,5}(?!")', re.DOTALL)
_LONG_LITERAL = re.compile(r"'''.*?'{3,5}(?!')", re.DOTALL)
_ESCAPE = re.compile(r'\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(["\\bfnrt/e]))')
_ESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "e": "\x1b"}


def toml_positions(text: str) -> Positions:
    """The places in a TOML document that `tomllib` accepts (version 1.0)."""
    return _Toml(text.replace("\r\n", " \n")).scan()


class _Toml:
    """A cursor over a valid document; each `_take` leaves it behind what it took."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._lines = _Lines(text)
        self._positions: Positions = {}
        self._counts: dict[Path, int] = {}  # array of tables -> tables so far

    def scan(self) -> Positions:
        table: Path = ()
        while self._skip(_BLANK) < len(self._text):
            if self._text.startswith("[", self._at):
                table = self._take_header()
            else:
                self._take_pair(table)
        return self._positions

    def _skip(self, pattern: re.Pattern[str]) -> int:
        match = pattern.match(self._text, self._at)
        self._at = match.end() if match else self._at
        return self._at

    def _take_header(self) -> Path:
        is_array = self._text.startswith("[[", self._at)
        self._at += 2 if is_array else 1
        self._skip(_SPACE)
        position = self._lines.position(self._at)
        keys = self._take_keys()
        path = self._note_parents((), keys, position)
        if is_array:
            count = self._counts[path] = self._counts.get(path, 0) + 1
            path = (*path, count - 1)
            self._positions[path] = Entry(position, position)
        self._at += 2 if is_array else 1
        return path

    def _note_parents(self, table: Path, keys: list[str], position: Position) -> Path:
        """The path that dotted keys name below a table; what they imply begins here, too."""
        path = table
        for number, key in enumerate(keys):
            path = (*path, key)
            self._positions.setdefault(path, Entry(position, position))
            if path in self._counts and number < len(keys) - 1:
                path = (*path, self._counts[path] - 1)  # the last table of the array
        return path

    def _take_keys(self) -> list[str]:
        keys = [self._take_key()]
        while True:
            self._skip(_SPACE)
            if not self._text.startswith(".", self._at):
                return keys
            self._at += 1
            self._skip(_SPACE)
            keys.append(self._take_key())

    def _take_key(self) -> str:
        start = self._at
        quote = self._text[start]
        if quote == '"':
            self._skip(_BASIC)
            return _unescaped(self._text[start + 1 : self._at - 1])
        if quote == "'":
            self._skip(_LITERAL)
            return self._text[start + 1 : self._at - 1]
        self._skip(_BARE_KEY)
        return self._text[start : self._at]

    def _take_pair(self, table: Path) -> None:
        key_position = self._lines.position(self._at)
        keys = self._take_keys()
        path = self._note_parents(table, keys, key_position)
        self._at += 1  # =
        self._skip(_SPACE)
        self._positions[path] = Entry(key_position, self._lines.position(self._at))
        self._take_value(path)

    def _take_value(self, path: Path) -> None:
        head = self._text[self._at]
        if head == "[":
            self._take_array(path)
        elif head == "{":
            self._take_inline_table(path)
        elif head in "\"'":
            self._take_string(head)
        else:
            self._skip(_SCALAR)

    def _take_string(self, quote: str) -> None:
        is_long = self._text.startswith(3 * quote, self._at)
        if quote == '"':
            self._skip(_LONG_BASIC if is_long else _BASIC)
        else:
            self._skip(_LONG_LITERAL if is_long else _LITERAL)

    def _take_array(self, path: Path) -> None:
        self._at += 1
        index = 0
        while True:
            self._skip(_BLANK)
            if self._text[self._at] == "]":
                self._at += 1
                return
            position = self._lines.position(self._at)
            self._positions[*path, index] = Entry(position, position)
            self._take_value((*path, index))
            index += 1
            self._skip(_BLANK)
            if self._text[self._at] == ",":
                self._at += 1

    def _take_inline_table(self, path: Path) -> None:
        self._at += 1
        while True:
            self._skip(_BLANK)
            if self._text[self._at] == "}":
                self._at += 1
                return
            self._take_pair(path)
            self._skip(_BLANK)
            if self._text[self._at] == ",":
                self._at += 1


def json_positions(text: str) -> Positions:
    """The places in a JSON document that `json` accepts."""
    lines = _Lines(text)
    positions: Positions = {}
    at = 0

    def skip() -> None:
        nonlocal at
        at = _JSON_BLANK.match(text, at).end()  # type: ignore[union-attr]  # it matches nothing, too

    def take_string() -> str:
        nonlocal at
        start = at
        at = _BASIC.match(text, at).end()  # type: ignore[union-attr]
        return _unescaped(text[start + 1 : at - 1])

    def take_value(path: Path) -> None:
        nonlocal at
        if text[at] in "{[":
            take_entries(path, close="}" if text[at] == "{" else "]")
        elif text[at] == '"':
            take_string()
        else:
            at = _JSON_SCALAR.match(text, at).end()  # type: ignore[union-attr]

    def take_entries(path: Path, close: str) -> None:
        nonlocal at
        at += 1
        index = 0
        while True:
            skip()
            if text[at] == close:
                at += 1
                return
            key_position = lines.position(at)
            step: str | int = index
            if close == "}":
                step = take_string()
                skip()
                at += 1  # :
                skip()
            positions[*path, step] = Entry(key_position, lines.position(at))
            take_value((*path, step))
            index += 1
            skip()
            if text[at] == ",":
                at += 1

    skip()
    take_value(())
    return positions


_JSON_BLANK = re.compile(r"[ \t\r\n]*")
_JSON_SCALAR = re.compile(r"[^,\]}\s]+")


def _unescaped(text: str) -> str:
    """A string's content as it is meant; JSON's pairs of surrogates are put together."""

    def plain(match: re.Match[str]) -> str:
        code = match[1] or match[2]
        return chr(int(code, 16)) if code else _ESCAPED.get(match[3], match[3])

    if "\\" not in text:
        return text
    raw = _ESCAPE.sub(plain, text)
    return raw.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def nearest(positions: Positions, path: Path, *, key: bool) -> Position | None:
    """Where a path stands, or what encloses it; `key`: its key, else its value."""
    for length in range(len(path), 0, -1):
        entry = positions.get(path[:length])
        if entry is not None:
            return entry.key if key else entry.value
    return None
