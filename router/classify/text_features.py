"""Extracts the classifier's features of a prompt: words, pairs of words, and shape.

A short text is all prompt. Of a long one only head and tail are read, so the cost is bounded. If
its first or last paragraph begins like a request (`OPENERS`), that paragraph is the prompt and the
rest does not count, so that a trivial prompt before a long paste stays trivial; else both are the
prompt, and the text between them hardly counts. Training and serving call the same functions.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import TypeVar

import msgspec

HEAD_CHARS, TAIL_CHARS = 1_024, 512  # what is read of a text; more costs time and adds no accuracy
PROMPT_CHARS = 900  # a text up to this long is all prompt
LEAD_CHARS, CLOSE_CHARS = 420, 300  # at most, of a longer text's first and last paragraph
MAX_SCANNED_CHARS = 2 * (HEAD_CHARS + TAIL_CHARS)  # with double spaces and courtesies
MAX_COURTESY_CHARS = 60  # of a greeting, or of thanks
MIN_LEAD_CHARS = 12  # a shorter first line ("Hi,", "# Task") is joined with the next one
MAX_KEPT, MAX_KEPT_CHARS = 512, 2_048  # cached texts
STEM_BYTES = 5  # of unknown words
USUAL_LENGTH = 5.0  # log2 of words; used for multiple choice, whose length is that of the choices
MAX_COUNT = 4 * max(PROMPT_CHARS, LEAD_CHARS + CLOSE_CHARS)  # bytes of a prompt

# Ignored, so that politeness cannot change a decision.
COURTESIES = frozenset(
    b"please pls plz kindly thanks thank thx cheers hi hello hey you could would can advance "
    b"appreciate appreciated".split()
)

# A paragraph that begins like this is the prompt, and the rest of a long text is context.
OPENERS = frozenset(
    b"add adjust allow analyse analyze answer append apply are audit benchmark bring build bump "
    b"calculate center change check clean compare complete compute convert copy correct count "
    b"create debug define delete derive describe design develop disable do document does draft "
    b"drop enable escape evaluate examine explain export extend extract figure find fix format "
    b"generate get give handle help hide how i implement import improve increase in inline insert "
    b"install integrate introduce investigate is let list log lower make mark merge migrate mock "
    b"modify move now optimise optimize parse patch pin plan port prevent print propose prove "
    b"provide put raise read rebase redesign reduce refactor reformat remove rename reorder "
    b"replace reproduce resolve restructure return revert review rewrite rotate round run set "
    b"shorten should show simplify skip solve sort split summarise summarize support swap tell "
    b"test tighten track translate turn undo unify update upgrade use validate verify wait was "
    b"we what when where which who why work wrap write".split()
)

_Found = TypeVar("_Found")
Term = bytes | tuple[bytes, bytes]  # a word, or two neighbours

CAPITALS = bytes(range(ord("A"), ord("Z") + 1))

# Byte -> itself in lower case if it belongs to a word, else a space. Multi-byte characters belong
# to words, so any script has words, if unknown ones.
_WORD_TABLE = bytes(
    ord(chr(byte).lower()) if byte < 128 and chr(byte).isalnum() else byte if byte >= 128 else 32
    for byte in range(256)
)


class Reading(msgspec.Struct, frozen=True, gc=False, eq=False):
    """Holds a text as the classifier sees it; compared by identity, for the caches of `once`."""

    prompt: bytes  # UTF-8
    words: list[bytes]  # of the prompt: lower case, in order, without courtesies
    context_words: list[bytes]  # of the text around it
    num_chars: int  # of the prompt, and of the whole text unless an opener marked the prompt


def once(function: Callable[[Reading], _Found]) -> Callable[[Reading], _Found]:
    """Caches a pure function of a reading; callers share the results.

    An agent's loop decides on the same words for each of its tool results, as does a retry.
    """
    return lru_cache(MAX_KEPT)(function)


def read(text: str) -> Reading:
    """Finds prompt and words in a text, of which it reads head and tail; caches short texts."""
    return _known_readings(text) if len(text) <= MAX_KEPT_CHARS else _read(text)


def forget_readings() -> None:
    """Empties the cache of readings, and so those of `once`."""
    _known_readings.cache_clear()


def _read(text: str) -> Reading:
    num_chars = len(text)
    if num_chars > MAX_SCANNED_CHARS:
        text = f"{text[: 2 * HEAD_CHARS]}\n\n{text[-2 * TAIL_CHARS :]}"
    text = _plain(text)
    if num_chars <= MAX_SCANNED_CHARS:
        num_chars = len(text)
    if len(text) <= PROMPT_CHARS:
        prompt = text.encode("utf-8", "replace")
        return Reading(prompt, words_of(prompt), [], num_chars)
    if len(text) > HEAD_CHARS + TAIL_CHARS:
        text = f"{text[:HEAD_CHARS]}\n\n{text[-TAIL_CHARS:]}"
    parts = _parts(text)
    lead, middle, close = (part.encode("utf-8", "replace") for part in parts)
    lead_words, close_words = words_of(lead), words_of(close)
    if lead_words and lead_words[0] in OPENERS:
        return Reading(lead, lead_words, [], len(parts[0]))
    if close_words and close_words[0] in OPENERS:
        return Reading(close, close_words, [], len(parts[2]))
    return Reading(lead + close, lead_words + close_words, words_of(middle), num_chars)


_known_readings = lru_cache(MAX_KEPT)(_read)

_GREETING = re.compile(
    r"(?:(?:hi|hello|hey)\b[\s,.!]*"
    r"|(?:please|pls|plz|kindly)\b[\s,]*"
    r"|(?:could|can|would|will) you\b[\s,]*)+",
    re.IGNORECASE,
)
_THANKS = re.compile(
    r"[\s,.!?]*\b(?:thank you|thanks|thx|cheers|please|pls|plz)\b"
    r"[\s,]*(?:in advance|so much|very much|a lot)?[\s,.!?]*$",
    re.IGNORECASE,
)
_THANKS_END = ("you", "thanks", "thx", "cheers", "please", "pls", "plz", "advance", "much", "lot")


def _plain(text: str) -> str:
    """Removes double spaces, a greeting at the start and thanks at the end."""
    text = text.strip()
    while "  " in text:
        text = text.replace("  ", " ")
    if text[-MAX_COURTESY_CHARS:].rstrip(" \n,.!?").lower().endswith(_THANKS_END):
        thanks = _THANKS.search(text, max(0, len(text) - MAX_COURTESY_CHARS))
        if thanks is not None:
            text = text[: thanks.start()]
    greeting = _GREETING.match(text, 0, MAX_COURTESY_CHARS)
    if greeting is not None:
        if " you" in greeting[0].lower():
            text = text.removesuffix("?")  # it was no question
        text = text[greeting.end() :]
    return text


def _parts(text: str) -> tuple[str, str, str]:
    """Splits into first line, middle and last paragraph, with bounded first and last."""
    lead_end = text.find("\n", MIN_LEAD_CHARS, LEAD_CHARS)
    if lead_end < 0:
        lead_end = text.rfind(" ", MIN_LEAD_CHARS, LEAD_CHARS)
    if lead_end < 0:
        lead_end = LEAD_CHARS
    close_start = text.rfind("\n\n", len(text) - CLOSE_CHARS)
    if close_start < 0:
        close_start = len(text)
    return text[:lead_end], text[lead_end:close_start], text[close_start:]


def words_of(text: bytes) -> list[bytes]:
    """Returns the words of a UTF-8 text, in lower case and in order, without courtesies."""
    words = text.translate(_WORD_TABLE).split()
    if COURTESIES.isdisjoint(words):
        return words
    if b"advance" in words and words[words.index(b"advance") - 1] == b"in":
        del words[words.index(b"advance") - 1]
    return [word for word in words if word not in COURTESIES]


def terms(words: list[bytes]) -> list[Term]:
    """Returns the distinct words, then the distinct pairs of neighbours, by first appearance."""
    return [*dict.fromkeys(words), *dict.fromkeys(pairwise(words))]


# log2(1 + n), linear between powers of two: no libm, so the same bits on every machine.
_LOG2 = tuple(
    exponent + n / (1 << exponent) - 1
    for n in range(1, MAX_COUNT + 2)
    for exponent in (n.bit_length() - 1,)
)


def _log2_of_32nds(count: int) -> float:
    """Interpolates log2(1 + count / 32), so that one more character changes little."""
    whole = min(count >> 5, MAX_COUNT - 1)
    return _LOG2[whole] + (_LOG2[whole + 1] - _LOG2[whole]) * (count & 31) / 32


# Counted in the prompt -> its name in explanations.
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
_MARKS = tuple(mark for mark, _ in MARKS)
SHAPES: tuple[str, ...] = (
    "length in words",
    "length of prose",
    "different words",
    "length of the words",
    "digits",
    "capitals",
    "many words",
    "length with context",
    "words of context",
)
DENSE_NAMES: tuple[str, ...] = SHAPES + tuple(name for _, name in MARKS)


def dense(reading: Reading) -> list[float]:
    """Computes a number from 0 to 16 for each of `DENSE_NAMES`; counts are log2(1 + n)."""
    log2, words, prompt = _LOG2, reading.words, reading.prompt
    num_words = len(words)
    num_bytes = len(prompt)
    num_capitals = num_bytes - len(prompt.translate(None, CAPITALS))
    num_digits = num_bytes - len(prompt.translate(None, b"0123456789"))
    count = prompt.count
    return [
        log2[num_words],
        USUAL_LENGTH if b"\nB" in prompt else log2[num_words],
        log2[len(set(words))],
        min(16.0, len(b"".join(words)) / num_words) if words else 0.0,
        16 * num_digits / num_bytes if prompt else 0.0,
        16 * num_capitals / num_bytes if prompt else 0.0,
        float(num_words >= 60),
        _log2_of_32nds(reading.num_chars),
        log2[len(reading.context_words)],
        *[log2[count(mark)] for mark in _MARKS],
    ]
