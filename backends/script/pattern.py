"""Strings that match a simple regular expression.

Understood: literals, `.`, classes, \\d \\w \\s and their opposites, groups, alternatives, anchors
at the ends, and the quantifiers * + ? {n} {n,} {n,m}. Not understood: look-around, back-references,
\\p{...}, inline flags; for those there is no string, and the caller does without.
"""

import re
import string

from backends.script.chance import Chance

MAX_CHARS = 4_096  # of a generated string
MAX_PATTERN_CHARS = 1_000
_MAX_DEPTH = 30

_DIGITS = string.digits
_WORDS = string.ascii_lowercase + string.digits + "_"
_PRINTABLE = string.ascii_letters + string.digits + " _-.,:;/!#$%&()*+<=>?@[]^{|}~"
_CLASSES = {
    "d": _DIGITS,
    "w": _WORDS,
    "s": " ",
    "D": string.ascii_lowercase,
    "W": "-.!",
    "S": _WORDS,
}
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r"}


class _UnsupportedError(Exception):
    """The pattern uses what is not understood."""


class _Node:
    """Alternatives; each is a sequence of (characters to choose from or group, least, most)."""

    __slots__ = ("alternatives",)

    def __init__(self) -> None:
        self.alternatives: list[list[tuple[str | _Node, int, int | None]]] = [[]]


def matching_string(
    pattern: str, chance: Chance, min_chars: int = 0, max_chars: int | None = None
) -> str | None:
    """A string that matches anywhere, as JSON schema wants it, and has a length within bounds.

    None where the pattern is not understood or no try fits.
    """
    if len(pattern) > MAX_PATTERN_CHARS:
        return None
    try:
        node = _Parser(pattern).parse()
        matcher = re.compile(pattern)
    except (_UnsupportedError, re.error):
        return None
    for extra in (0, 1, 2, 4, 8, min_chars, 3, 0, 1):
        try:
            text = _write(node, chance, extra)
        except _UnsupportedError:
            continue
        if not pattern.endswith("$"):
            text = text.ljust(min_chars, "a")
        fits = min_chars <= len(text) and (max_chars is None or len(text) <= max_chars)
        if fits and matcher.search(text):
            return text
    return None


def _write(node: _Node, chance: Chance, extra: int) -> str:
    parts: list[str] = []
    num_chars = 0
    for atom, least, most in chance.pick(node.alternatives):
        number = least + extra if most is None else min(least + extra, most)
        for _ in range(number):
            parts.append(
                chance.pick(atom) if isinstance(atom, str) else _write(atom, chance, extra)
            )
            num_chars += len(parts[-1])
            if num_chars > MAX_CHARS:
                raise _UnsupportedError
    return "".join(parts)


class _Parser:
    """Reads a pattern from left to right."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._depth = 0

    def parse(self) -> _Node:
        node = self._node()
        if self._at < len(self._pattern):
            raise _UnsupportedError
        return node

    def _node(self) -> _Node:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise _UnsupportedError
        node = _Node()
        while (char := self._peek()) not in ("", ")"):
            self._at += 1
            if char == "|":
                node.alternatives.append([])
            elif char not in "^$":
                atom = self._atom(char)
                node.alternatives[-1].append((atom, *self._quantifier()))
        self._depth -= 1
        return node

    def _atom(self, char: str) -> "str | _Node":
        """The characters to choose from, or a group."""
        if char == "(":
            return self._group()
        if char == "[":
            return self._class()
        if char == "\\":
            return self._escape()
        if char in "*+?{":
            raise _UnsupportedError
        return _WORDS if char == "." else char

    def _group(self) -> _Node:
        if self._peek() == "?":
            if self._pattern.startswith("?:", self._at):
                self._at += 2
            elif named := re.match(r"\?P?<[A-Za-z_]\w*>", self._pattern[self._at :]):
                self._at += named.end()
            else:
                raise _UnsupportedError
        node = self._node()
        if self._peek() != ")":
            raise _UnsupportedError
        self._at += 1
        return node

    def _escape(self) -> str:
        char = self._next()
        if char in _CLASSES:
            return _CLASSES[char]
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char.isalnum():
            raise _UnsupportedError
        return char

    def _class(self) -> str:
        negated = self._peek() == "^"
        self._at += negated
        chars = ""
        first = True
        while (char := self._next()) != "]" or first:
            first = False
            low = self._escape() if char == "\\" else char
            if self._peek() == "-" and self._peek(1) not in ("]", "") and len(low) == 1:
                self._at += 1
                high = self._next()
                if high == "\\":
                    high = self._escape()
                if len(high) != 1 or high < low:
                    raise _UnsupportedError
                chars += "".join(map(chr, range(ord(low), min(ord(high), ord(low) + 256) + 1)))
            else:
                chars += low
        if negated:
            chars = "".join(char for char in _PRINTABLE if char not in chars)
        if not chars:
            raise _UnsupportedError
        return chars

    def _quantifier(self) -> tuple[int, int | None]:
        bounds: tuple[int, int | None] = (1, 1)
        char = self._peek()
        if char in ("*", "+", "?"):
            self._at += 1
            bounds = {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
        elif found := re.match(r"\{(\d{1,4})(,?)(\d{0,4})\}", self._pattern[self._at :]):
            self._at += found.end()
            low = int(found[1])
            bounds = (low, int(found[3]) if found[3] else None if found[2] else low)
        if self._peek() == "?" and bounds != (1, 1):
            self._at += 1  # lazy: the same strings match
        return bounds

    def _peek(self, ahead: int = 0) -> str:
        return self._pattern[self._at + ahead : self._at + ahead + 1]

    def _next(self) -> str:
        char = self._peek()
        if not char:
            raise _UnsupportedError
        self._at += 1
        return char
