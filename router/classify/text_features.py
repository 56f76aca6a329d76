"""Extracts the classifier's features of a text: words, pairs of words, and shape.

Greetings, headers of tickets, templates of agents and thanks at both ends are dropped (`framing`).
Of a long text the head, the tail and three windows at places that its length fixes are read, so the
cost is bounded. If its first or last paragraph begins like a request (`OPENERS`), or a line beside
a paste of any length asks about it, or is all that is said beside code, that weighs more than the
rest, so that a trivial prompt before a paste stays trivial, and one that needs thought does not
become trivial by a trivial paste. Training and serving call the same functions.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import chain, pairwise
from typing import TypeVar

import msgspec

from router.classify.framing import without_framing
from router.classify.words import (
    COURTESIES,
    OPENERS,
    all_words_of,
    asks,
    asks_about,
    asks_beside_code,
    leaves_to_paste,
    without_courtesies,
)

WINDOW_CHARS = 512
HEAD_CHARS, TAIL_CHARS, NUM_MIDDLE = 640, 384, 3
MAX_READ_CHARS = HEAD_CHARS + TAIL_CHARS + NUM_MIDDLE * WINDOW_CHARS  # longer texts are sampled
MIN_WINDOW_CHARS = 192  # a shorter rest joins the window before it
WHOLE_CHARS = 1_024  # up to so long a text is one window, in which no paragraph weighs more
MAX_FRAMING_CHARS = 1_024  # that head and tail of a long text may have besides
LEAD_CHARS, CLOSE_CHARS = 420, 300  # at most, of a longer text's first and last paragraph
MIN_PASTE_LINES = 6  # of a text of one window, in which an ask about a paste is looked for
_CHOICES = "\nB"  # of a question with several answers, which is no paste
MAX_ASK_CHARS, MAX_ASK_LINES = 200, 3  # of the lines beside a paste that may ask about it
# Code, a table or a log has more marks, digits and indentation a byte than this. Of the commit
# messages of several paragraphs that we trained on 3 to 4 % do, which have code in them.
CODE_SHARE = 0.09
MAX_CODE_LINES, MAX_CODE_CHARS = 8, 400  # of a paste that are looked at for that
MAX_ASK_MARKS = 0.04  # a byte, of what is said beside code, which is no code itself
MIN_LEAD_CHARS = 12  # a shorter first line ("Hi,", "# Task") is joined with the next one
MAX_KEPT, MAX_KEPT_CHARS = 512, 2_048  # cached texts
STEM_BYTES = 5  # of unknown words
USUAL_LENGTH = 5.0  # log2 of words; used for multiple choice, whose length is that of the choices
MAX_COUNT = 4 * MAX_READ_CHARS  # bytes that are read, of whatever characters

AROUND_CHARS = 1_024  # of a text's beginning and end, in which something is said beside code
_MARKS_OF_CODE = b'{}()[]=;<>_\\|+@&%~^/:"0123456789'
_COMMENTS = ("#", "//", "/*", "--", "*", ";", '"', "'", "<")
_MARKS_OF_ENDS = ".!?:。！？："
_SENTENCE_ENDS = re.compile(r"(?<=[.!?:]) +|(?<=[。！？：])")

_Found = TypeVar("_Found")
Term = bytes | tuple[bytes, bytes]  # a word, or two neighbours

CAPITALS = bytes(range(ord("A"), ord("Z") + 1))


class View(msgspec.Struct, frozen=True, gc=False):
    """Holds a stretch of text and its words: all that is read of a text, or its request."""

    prompt: bytes  # UTF-8
    words: list[bytes]  # in lower case and in order, without courtesies
    distinct: Mapping[bytes, None]  # words, by first appearance


class Reading(msgspec.Struct, frozen=True, gc=False, eq=False):
    """Holds a text as the classifier sees it; compared by identity, for the caches of `once`."""

    prompt: bytes  # all that is read, UTF-8
    words: list[bytes]  # of that
    distinct: Mapping[bytes, None]  # words, by first appearance
    windows: tuple[list[bytes], ...]  # the same words, by stretches of some `WINDOW_CHARS`
    request: View | None  # of a text with a paste, or a long one: what asks for something
    num_chars: int  # of the whole text, without its framing


def once(function: Callable[[Reading], _Found]) -> Callable[[Reading], _Found]:
    """Caches a pure function of a reading; callers share the results.

    An agent's loop decides on the same words for each of its tool results, as does a retry.
    """
    return lru_cache(MAX_KEPT)(function)


def read(text: str) -> Reading:
    """Finds words and windows of a text, without its framing; caches short texts."""
    return _known_readings(text) if len(text) <= MAX_KEPT_CHARS else _read(text)


def forget_readings() -> None:
    """Empties the cache of readings, and so those of `once`."""
    _known_readings.cache_clear()


def _read(text: str) -> Reading:
    num_chars, whole = len(text), text
    if num_chars <= MAX_READ_CHARS + 2 * MAX_FRAMING_CHARS:
        text = close = without_framing(text)
        num_chars = len(text)
    if num_chars <= WHOLE_CHARS:
        prompt = text.encode("utf-8", "replace")
        words, distinct = _words_of(prompt)
        request = None
        if whole.count("\n") >= MIN_PASTE_LINES and _CHOICES not in whole:
            lines = whole.split("\n")
            request = _ask_about(lines) or _ask_about(lines[::-1])
            if request is None and len(whole) > WINDOW_CHARS:  # of less code all counts alike
                request = _said_beside_code(lines) or _said_beside_code(lines[::-1])
        return Reading(prompt, words, distinct, (words,), request, num_chars)
    if num_chars > MAX_READ_CHARS:
        text, middle, close, num_chars = _sampled(text)
        stretches = [*_windows(text), *middle, close]
    else:
        stretches = _windows(text)
    encoded = [stretch.encode("utf-8", "replace") for stretch in stretches]
    windows = [*map(all_words_of, encoded)]
    words = [*chain.from_iterable(windows)]
    distinct = dict.fromkeys(words)
    polite = distinct.keys() & COURTESIES
    if polite:
        windows = [*map(without_courtesies, windows)]
        words = [*chain.from_iterable(windows)]
        if b"advance" in polite:  # with which an "in" may have gone
            distinct = dict.fromkeys(words)
        else:
            for word in polite:
                del distinct[word]
    # In the whole text, since by its words such an ask may be framing of a task.
    request = (
        _ask_about(whole[:LEAD_CHARS].split("\n"))
        or _request(text, close)
        or _ask_about(whole[-CLOSE_CHARS:].split("\n")[::-1])
        or _said_beside_code(whole[:AROUND_CHARS].split("\n"))
        or _said_beside_code(whole[-AROUND_CHARS:].split("\n")[::-1])
    )
    return Reading(b"".join(encoded), words, distinct, tuple(windows), request, num_chars)


def _words_of(prompt: bytes) -> tuple[list[bytes], dict[bytes, None]]:
    """Returns the words without courtesies, and the distinct ones by first appearance."""
    words = all_words_of(prompt)
    distinct = dict.fromkeys(words)
    if distinct.keys().isdisjoint(COURTESIES):
        return words, distinct
    words = without_courtesies(words)
    return words, dict.fromkeys(words)


_known_readings = lru_cache(MAX_KEPT)(_read)


def _sampled(text: str) -> tuple[str, list[str], str, int]:
    """Takes head, windows and tail of a long text, at places that only its length decides.

    Returns them, and the length without framing.
    """
    head = text[: HEAD_CHARS + MAX_FRAMING_CHARS]
    tail = text[-TAIL_CHARS - MAX_FRAMING_CHARS :]
    bare_head, bare_tail = without_framing(head, behind=False), without_framing(tail, before=False)
    first = len(head) - len(bare_head)
    num_chars = len(text) - first - (len(tail) - len(bare_tail))
    step = (num_chars - HEAD_CHARS - TAIL_CHARS) / NUM_MIDDLE
    half = WINDOW_CHARS // 2
    places = [first + HEAD_CHARS + int(step * (number + 0.5)) for number in range(NUM_MIDDLE)]
    middle = [text[place - half : place + half] for place in places]
    return bare_head[:HEAD_CHARS], middle, bare_tail[-TAIL_CHARS:], num_chars


def _windows(text: str) -> list[str]:
    """Cuts a text between words into stretches of up to `WINDOW_CHARS`."""
    stretches = []
    start = 0
    while len(text) - start > WINDOW_CHARS + MIN_WINDOW_CHARS:
        end = text.rfind(" ", start + WINDOW_CHARS - MIN_LEAD_CHARS * 2, start + WINDOW_CHARS)
        end = start + WINDOW_CHARS if end < 0 else end
        stretches.append(text[start:end])
        start = end
    return [*stretches, text[start:]]


def _request(text: str, close: str) -> View | None:
    """Returns the first or last paragraph if it begins like a request."""
    for found in (_lead(text), _close(close)):
        prompt = found.encode("utf-8", "replace")
        words, distinct = _words_of(prompt)
        if words and words[0] in OPENERS:
            first_line = all_words_of(prompt.lstrip().partition(b"\n")[0])
            if not leaves_to_paste(without_courtesies(first_line)):
                return View(prompt, words, distinct)
    return None


def _ask_about(lines: Sequence[str]) -> View | None:
    """Returns what the lines beside a paste, the outermost first, ask about it; None: nothing."""
    for line in [stripped for line in lines if (stripped := line.strip())][:MAX_ASK_LINES]:
        if len(line) > MAX_ASK_CHARS:
            return None
        for sentence in filter(None, _SENTENCE_ENDS.split(line)[::-1]):
            prompt = sentence.encode("utf-8", "replace")
            words, distinct = _words_of(prompt)
            if asks_about(words, sentence[-1]):
                return View(prompt, words, distinct)
            if asks(words):
                return None
    return None


def _said_beside_code(lines: Sequence[str]) -> View | None:
    """Returns the line in words beside code, a table or a log that asks, the outermost line first.

    It stands apart from that, by an empty line, a fence or the mark at its end.
    """
    said, num_said = "", 0
    for number, line in enumerate(lines):
        stripped = line.strip()
        is_apart = not stripped or stripped.startswith("```")
        may_end = said and (is_apart or said[-1] in _MARKS_OF_ENDS)
        if may_end and is_code("\n".join(lines[number : number + MAX_CODE_LINES])):
            found = _asked_in(said)
            if found is not None:
                return found
        if is_apart:
            continue
        num_said += 1
        if num_said > MAX_ASK_LINES or len(stripped) > MAX_ASK_CHARS or line[0].isspace():
            return None
        said = stripped
    return None


def _asked_in(line: str) -> View | None:
    """Returns a line beside code as a request, if it is one and no line of code or heading."""
    prompt = line.encode("utf-8", "replace")
    if line.startswith(_COMMENTS) or _num_marks(prompt) > MAX_ASK_MARKS * len(prompt):
        return None
    words, distinct = _words_of(prompt)
    return View(prompt, words, distinct) if asks_beside_code(words, line) else None


def is_code(text: str) -> bool:
    """Returns whether a text begins with as many marks, digits and indented lines as code has."""
    paste = text[:MAX_CODE_CHARS].encode("utf-8", "replace")
    indented = paste.count(b"\n ") + paste.count(b"\n\t")
    return _num_marks(paste) + 2 * indented > CODE_SHARE * len(paste)


def _num_marks(prompt: bytes) -> int:
    return len(prompt) - len(prompt.translate(None, _MARKS_OF_CODE))


def _lead(text: str) -> str:
    end = text.find("\n", MIN_LEAD_CHARS, LEAD_CHARS)
    if end < 0:
        end = text.rfind(" ", MIN_LEAD_CHARS, LEAD_CHARS)
    return text[: LEAD_CHARS if end < 0 else end]


def _close(text: str) -> str:
    start = text.rfind("\n\n", max(0, len(text) - CLOSE_CHARS))
    return "" if start < 0 else text[start:]


def terms(words: Sequence[bytes]) -> list[Term]:
    """Returns the distinct words, then the distinct pairs of neighbours, by first appearance."""
    return [*dict.fromkeys(words), *dict.fromkeys(pairwise(words))]


def num_terms(words: Sequence[bytes]) -> int:
    """Counts the words and pairs of neighbours, repeated ones too."""
    return max(0, 2 * len(words) - 1)


# This is log2(1 + n), linear between powers of two: without libm it has the same bits on every
# machine.
_LOG2 = tuple(
    exponent + n / (1 << exponent) - 1
    for n in range(1, MAX_COUNT + 2)
    for exponent in (n.bit_length() - 1,)
)


def _log2_of_32nds(count: int) -> float:
    """Interpolates log2(1 + count / 32), so that one more character changes little."""
    whole = min(count >> 5, MAX_COUNT - 1)
    return _LOG2[whole] + (_LOG2[whole + 1] - _LOG2[whole]) * (count & 31) / 32


# Counted in the prompt -> its name in explanations; single bytes first.
MARKS: tuple[tuple[bytes, str], ...] = (
    (b"\n", "lines"),
    (b"`", "inline code"),
    (b"?", "questions"),
    (b",", "commas"),
    (b".", "full stops"),
    (b":", "colons"),
    (b"(", "brackets"),
    (b"\\", "backslashes"),
    (b"*", "asterisks"),
    (b"#", "hash signs"),
    (b"-", "hyphens"),
    (b"$", "dollar signs"),
    (b"^", "carets"),
    (b"\nB", "multiple choice"),
    (b" and ", "enumerations"),
)
_MARKS = tuple(mark for mark, _ in MARKS if len(mark) == 1)
_DIGITS = b"0123456789"
_UNCOUNTED = bytes(
    byte
    for byte in range(256)
    if bytes((byte,)) not in _MARKS and not 65 <= byte < 91 and not 48 <= byte < 58
)
SHAPES: tuple[str, ...] = (
    "length in words",
    "length of prose",
    "different words",
    "length of the words",
    "digits",
    "capitals",
    "many words",
    "length with context",
)
DENSE_NAMES: tuple[str, ...] = SHAPES + tuple(name for _, name in MARKS)


# In UTF-8 these begin characters of scripts that training hardly has: letters of two bytes (Greek,
# Cyrillic, Arabic, ...) and of three (Hindi, Thai, ...), and Korean syllables, of two letters or
# three in as many bytes.
_OF_TWO, _OF_THREE = bytes(range(0xCE, 0xE0)), bytes((0xE0, 0xE1))
_SYLLABLES = bytes(range(0xEA, 0xEE))


def _num_letters(letters: bytes) -> int:
    """Counts the letters of words in such a script; in any other its bytes, as training did.

    By its bytes any Russian word is as long as the longest English ones, which deep work has.
    """
    of_one = len(letters) - len(letters.translate(None, _OF_TWO + _SYLLABLES))
    of_two = len(letters) - len(letters.translate(None, _OF_THREE))
    return len(letters) - of_one - 2 * of_two


def dense(view: View | Reading, num_chars: int) -> list[float]:
    """Computes a number from 0 to 16 for each of `DENSE_NAMES`; counts are log2(1 + n).

    `num_chars` is the length of the text that the view stands for.
    """
    log2, words, prompt = _LOG2, view.words, view.prompt
    num_words = len(words)
    num_bytes = len(prompt)
    # Most bytes are small letters and spaces; what remains is counted quickly.
    rest = prompt.translate(None, _UNCOUNTED)
    marks = [*map(rest.count, _MARKS)]
    without_capitals = rest.translate(None, CAPITALS)
    num_capitals = len(rest) - len(without_capitals)
    num_digits = len(without_capitals) - len(without_capitals.translate(None, _DIGITS))
    num_choices = prompt.count(b"\nB")
    letters = b"".join(words)
    num_letters = len(letters) if letters.isascii() else _num_letters(letters)
    return [
        log2[num_words],
        USUAL_LENGTH if num_choices else log2[num_words],
        log2[len(view.distinct)],
        min(16.0, num_letters / num_words) if words else 0.0,
        16 * num_digits / num_bytes if prompt else 0.0,
        16 * num_capitals / num_bytes if prompt else 0.0,
        float(num_words >= 60),
        _log2_of_32nds(num_chars),
        *[log2[count] for count in marks],
        log2[num_choices],
        log2[prompt.count(b" and ")],
    ]
