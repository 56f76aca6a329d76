"""Generates strings that match a simple regular expression.

Supported: literals, `.`, classes, \\d \\w \\s and their opposites, groups, alternatives, anchors
at the ends, and the quantifiers * + ? {n} {n,} {n,m} up to 1,000. Not supported: look-around,
back-references, \\p{...}, inline flags, and more than 20,000 parts with repetitions written out;
patterns with those get no string.

The pattern is the client's, so RE2 checks what was written: it takes linear time and bounded memory
for any pattern, where `re` may search for ever.
"""

import re
import string
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from backends.client_patterns import compiled
from backends.script.chance import Chance

MAX_CHARS = 4_096  # of a generated string
MAX_PATTERN_CHARS = 1_000
MAX_PIECES = 20_000  # written in all attempts at one string; an empty one counts
# Work, in characters of plain text:
PIECE_WORK = 3  # of writing a piece
READ_WORK = 500  # of reading a pattern, however short
PART_WORK = 12  # of compiling each of its parts
SEARCHED_PER_WORK = 10  # characters times parts: RE2 may look at each part at each character
MAX_KEPT = 64  # read patterns, for later answers; an answer keeps its own
_MAX_DEPTH = 30

_WORDS = string.ascii_lowercase + string.digits + "_"
_PRINTABLE = string.ascii_letters + string.digits + " _-.,:;/!#$%&()*+<=>?@[]^{|}~"
_ESCAPES = {
    "d": string.digits, "w": _WORDS, "s": " ", "D": string.ascii_lowercase, "W": "-.!", "S": _WORDS,
    "n": "\n", "t": "\t", "r": "\r",
}  # fmt: skip
_TOKEN = re.compile(
    r"\\."  # an escape
    r"|\[\^?\]?(?:\\.|[^\]\\])*\]"  # a class
    r"|\((?:\?:|\?P?<[A-Za-z_]\w*>)?"  # a group's beginning
    r"|(?:[*+?]|\{\d{1,4}(?:,\d{0,4})?\})\??"  # a quantifier; a lazy one matches the same strings
    r"|.",
    re.DOTALL,
)
_RANGE = re.compile(r"(\\.|[^\\])(?:-(\\.|[^\\]))?", re.DOTALL)

# Alternatives; each is a sequence of (characters to choose from or a group, least, most).
_Group = list[list[tuple["str | _Group", int, int | None]]]


class ReadPattern(NamedTuple):
    """Holds a pattern to check with and to write from; without a matcher neither can be done."""

    matcher: Any
    group: _Group
    num_parts: int  # with repetitions written out
    work: int  # of reading it, in characters of plain text


_NONE = ReadPattern(None, [], 0, READ_WORK)


def matching_string(
    pattern: str,
    chance: Chance,
    min_chars: int = 0,
    max_chars: int = MAX_CHARS,
    spend: Callable[[int], None] = lambda _: None,
    known: dict[str, ReadPattern] | None = None,
) -> str | None:
    """Generates a string within the bounds that matches anywhere, as JSON schema wants it.

    It is None if the pattern is not supported or no attempt fits. `spend` is called with the work
    of reading the pattern, unless it is among those `known`, and of each attempt, and may raise.
    """
    if len(pattern) > MAX_PATTERN_CHARS:
        return None
    known = {} if known is None else known
    if pattern not in known:
        known[pattern] = _read(pattern)
        spend(known[pattern].work)
    matcher, group, num_parts, _ = known[pattern]
    if matcher is None:
        return None
    writer = _Writer(chance)
    for extra in (0, 1, 2, 4, 8, min_chars, 3, 0, 1):
        left = writer.num_left
        text = writer.write(group, extra)
        spend(PIECE_WORK * (left - writer.num_left + len(text or "")))
        if text is None:
            continue
        if not pattern.endswith("$"):
            text = text.ljust(min_chars, "a")
        if min_chars <= len(text) <= max_chars:
            spend(len(text) * num_parts // SEARCHED_PER_WORK)
            if matcher.search(text):
                return text
    return None


@lru_cache(MAX_KEPT)
def _read(pattern: str) -> ReadPattern:
    """Reads a pattern; only one that can be written is compiled."""
    try:
        group = _parsed(_TOKEN.findall(pattern)[::-1], 0)
    except (ValueError, IndexError, RecursionError):  # IndexError: a parenthesis is missing
        return _NONE
    num_parts = _num_parts(group)
    if num_parts > MAX_PIECES:
        return _NONE
    work = READ_WORK + PART_WORK * num_parts + _num_chars(group)
    return ReadPattern(compiled(pattern), group, num_parts, work)


def _num_parts(group: _Group) -> int:
    """Counts the parts of a group with repetitions written out, as RE2 compiles it."""
    return sum(
        (1 if isinstance(atom, str) else _num_parts(atom)) * max(1, most or least)
        for sequence in group
        for atom, least, most in sequence
    )


def _num_chars(group: _Group) -> int:
    """Counts the characters that there are to choose from in all parts, each taken once."""
    return sum(
        len(atom) if isinstance(atom, str) else _num_chars(atom)
        for sequence in group
        for atom, _, _ in sequence
    )


class _Writer:
    """Writes strings of a pattern, with bounded work for all of them together."""

    def __init__(self, chance: Chance) -> None:
        self._chance = chance
        self.num_left = MAX_PIECES

    def write(self, group: _Group, extra: int) -> str | None:
        """Writes a group with `extra` more repetitions; None if the string gets too long."""
        text = ""
        for atom, least, most in self._chance.pick(group):
            number = least + extra if most is None else min(least + extra, most)
            for _ in range(number):
                self.num_left -= 1
                piece = self._piece(atom, extra)
                if piece is None or len(text) + len(piece) > MAX_CHARS:
                    return None
                text += piece
        return text

    def _piece(self, atom: "str | _Group", extra: int) -> str | None:
        if self.num_left < 0:
            return None
        return self._chance.pick(atom) if isinstance(atom, str) else self.write(atom, extra)


def _parsed(tokens: list[str], depth: int) -> _Group:
    """Parses a group off the end of a pattern's tokens; raises ValueError if unsupported."""
    if depth > _MAX_DEPTH:
        raise ValueError("too deep")
    group: _Group = [[]]
    while tokens and tokens[-1] != ")":
        token = tokens.pop()
        if token == "|":
            group.append([])
        elif token not in "^$":
            group[-1].append((_atom(token, tokens, depth), *_quantity(tokens)))
    return group


def _atom(token: str, tokens: list[str], depth: int) -> "str | _Group":
    if token[0] == "(":
        group = _parsed(tokens, depth + 1)
        tokens.pop()  # the parenthesis
        return group
    if token[0] in "*+?{":
        raise ValueError("nothing to repeat, or an extension")
    if len(token) > 1 and token[0] == "[":
        return _class(token[1:-1])
    return _WORDS if token == "." else _chars(token)


def _chars(token: str) -> str:
    if token[0] != "\\":
        return token
    if token[1].isalnum() and token[1] not in _ESCAPES:
        raise ValueError("an escape that is not understood")
    return _ESCAPES.get(token[1], token[1])


def _class(body: str) -> str:
    chars = ""
    for low, high in _RANGE.findall(body.removeprefix("^")):
        chars += _chars(low)
        if high:
            first, last = ord(_chars(low)), ord(_chars(high))
            chars += "".join(map(chr, range(first + 1, min(last, first + 256) + 1)))
    if body[0] == "^":
        chars = "".join(char for char in _PRINTABLE if char not in chars)
    if not chars:
        raise ValueError("no character is left")
    return chars


def _quantity(tokens: list[str]) -> tuple[int, int | None]:
    """Parses the bounds of a repetition; without a quantifier they are 1 and 1."""
    if not tokens or tokens[-1][0] not in "*+?{" or tokens[-1] == "{":
        return 1, 1
    token = tokens.pop()
    if token[0] != "{":
        return {"*": (0, None), "+": (1, None), "?": (0, 1)}[token[0]]
    low, _, high = token.rstrip("?")[1:-1].partition(",")
    return int(low), int(high) if high else None if "," in token else int(low)
