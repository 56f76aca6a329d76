"""Finds the position of each value of a TOML or JSON document, so that an error can point at it.

The standard library's parsers give no positions. The scanner walks a document that one of them has
accepted already, so it checks nothing.
"""

import re
from bisect import bisect_right
from typing import NamedTuple

Path = tuple[str | int, ...]  # keys of tables, indices of arrays


class Position(NamedTuple):
    """Holds a line and a column, both counted from 1."""

    line: int
    column: int


class Entry(NamedTuple):
    """Holds where an entry's key and value begin; the two are equal for an array's item."""

    key: Position
    value: Position


Positions = dict[Path, Entry]

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_SCALAR = re.compile(r"[^,\]}#\n]+")
_BASIC = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_LITERAL = re.compile(r"'[^']*'")
_LONG_BASIC = re.compile(r'"""(?:[^\\]|\\.)*?"{3,5}(?!")', re.DOTALL)
_LONG_LITERAL = re.compile(r"'''.*?'{3,5}(?!')", re.DOTALL)
_ESCAPE = re.compile(r'\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(["\\bfnrt/e]))')
_ESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "e": "\x1b"}


def positions_of(text: str) -> Positions:
    """Returns all positions in a document that `tomllib` (TOML 1.0) or `json` accepts."""
    # A JSON object reads like an inline table of TOML, but for the sign behind its keys.
    scanner = _Scanner(text)
    return scanner.scan_json() if text.lstrip().startswith("{") else scanner.scan_toml()


class _Scanner:
    """Moves a cursor over a valid document; each `_take...` method consumes one element."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._line_starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self._positions: Positions = {}
        self._counts: dict[Path, int] = {}  # array of tables -> tables so far

    def scan_json(self) -> Positions:
        self._skip(_BLANK)
        self._take_value(())
        return self._positions

    def scan_toml(self) -> Positions:
        table: Path = ()
        while head := self._next():
            if head == "[":
                table = self._take_header()
            else:
                self._take_pair(table)
        return self._positions

    def _skip(self, pattern: re.Pattern[str]) -> None:
        match = pattern.match(self._text, self._at)
        self._at = match.end() if match else self._at

    def _next(self) -> str:
        """Skips blanks and comments; returns the next character, which is empty at the end."""
        self._skip(_BLANK)
        return self._text[self._at : self._at + 1]

    def _position(self) -> Position:
        line = bisect_right(self._line_starts, self._at)
        return Position(line, self._at - self._line_starts[line - 1] + 1)

    def _take_header(self) -> Path:
        num_brackets = 2 if self._text.startswith("[[", self._at) else 1
        self._at += num_brackets
        self._next()
        position = self._position()
        path = self._note_parents((), self._take_keys(), position)
        if num_brackets == 2:
            count = self._counts[path] = self._counts.get(path, 0) + 1
            path = (*path, count - 1)
            self._positions[path] = Entry(position, position)
        self._at += num_brackets
        return path

    def _note_parents(self, table: Path, keys: list[str], position: Position) -> Path:
        """Returns the path of dotted keys below a table; tables that they imply begin here."""
        path = table
        for number, key in enumerate(keys):
            path = (*path, key)
            self._positions.setdefault(path, Entry(position, position))
            if path in self._counts and number < len(keys) - 1:
                path = (*path, self._counts[path] - 1)  # the last table of the array
        return path

    def _take_keys(self) -> list[str]:
        keys = [self._take_key()]
        while self._next() == ".":
            self._at += 1
            self._next()
            keys.append(self._take_key())
        return keys

    def _take_key(self) -> str:
        start = self._at
        quote = self._text[start]
        if quote not in "\"'":
            self._skip(_BARE_KEY)
            return self._text[start : self._at]
        self._skip(_BASIC if quote == '"' else _LITERAL)
        content = self._text[start + 1 : self._at - 1]
        return _unescaped(content) if quote == '"' else content

    def _take_pair(self, table: Path) -> None:
        key_position = self._position()
        path = self._note_parents(table, self._take_keys(), key_position)
        self._at += 1  # the sign between key and value
        self._next()
        self._positions[path] = Entry(key_position, self._position())
        self._take_value(path)

    def _take_value(self, path: Path) -> None:
        head = self._text[self._at]
        is_long = self._text.startswith(3 * head, self._at)
        if head in "[{":
            self._take_entries(path, close="]" if head == "[" else "}")
        elif head == '"':
            self._skip(_LONG_BASIC if is_long else _BASIC)
        elif head == "'":
            self._skip(_LONG_LITERAL if is_long else _LITERAL)
        else:
            self._skip(_SCALAR)

    def _take_entries(self, path: Path, close: str) -> None:
        self._at += 1
        index = 0
        while self._next() != close:
            if close == "}":
                self._take_pair(path)
            else:
                position = self._position()
                self._positions[*path, index] = Entry(position, position)
                self._take_value((*path, index))
                index += 1
            if self._next() == ",":
                self._at += 1
        self._at += 1


def _unescaped(text: str) -> str:
    """Resolves a string's escapes, and JSON's pairs of surrogates."""

    def plain(match: re.Match[str]) -> str:
        code = match[1] or match[2]
        return chr(int(code, 16)) if code else _ESCAPED.get(match[3], match[3])

    if "\\" not in text:
        return text
    raw = _ESCAPE.sub(plain, text)
    return raw.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def nearest(positions: Positions, path: Path, *, key: bool) -> Position | None:
    """Returns the position of a path's key or value, or else of what encloses it."""
    for length in range(len(path), 0, -1):
        entry = positions.get(path[:length])
        if entry is not None:
            return entry.key if key else entry.value
    return None
