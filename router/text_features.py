"""What the trained classifier sees of an ask: its words, pairs of words, and its shape in numbers.

A short text is all ask. Of a long one only the head and the tail are read, so the cost is bounded
at any size. If its first or last paragraph begins with a verb that asks (`OPENERS`), that paragraph
is the ask and the rest counts for nothing, so that a trivial ask in front of a long paste stays
trivial; else both are the ask, and what is between them hardly counts. Training and serving call
the same functions, and there is one path for all lengths.
"""

from itertools import pairwise

import msgspec

HEAD_CHARS, TAIL_CHARS = 1_024, 512  # what is read of a text; more costs time and adds no accuracy
ASK_CHARS = 900  # a text up to this long is all ask
LEAD_CHARS, CLOSE_CHARS = 420, 300  # longer: at most this much of its first and last paragraph is
MAX_COURTESY_CHARS = 40  # of a greeting or a line of thanks
MIN_LEAD_CHARS = 12  # a shorter first line ("Hi,", "# Task") takes the next one along
STEM_BYTES = 5  # an unknown word is known by its beginning
MAX_COUNT = 4 * max(ASK_CHARS, LEAD_CHARS + CLOSE_CHARS)  # of anything in an ask: its bytes

# Said or not said, they ask for nothing; without them politeness cannot change a decision.
COURTESIES = frozenset(
    b"please pls plz kindly thanks thank thx cheers hi hello hey you could would can advance "
    b"appreciate appreciated".split()
)

# A paragraph that begins like this is the ask: then the other end of a long text is context.
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

Term = bytes | tuple[bytes, bytes]  # a word, or two neighbours

_UPPER = bytes(range(ord("A"), ord("Z") + 1))


def _word_table() -> bytes:
    """Byte -> itself in lower case if it belongs to a word, else a space.

    All of a multi-byte character belongs to a word, so any script has words, if unknown ones.
    """
    table = bytearray(b" " * 128 + bytes(range(128, 256)))
    for char in b"0123456789abcdefghijklmnopqrstuvwxyz":
        table[char] = char
    for char in _UPPER:
        table[char] = char + 32
    return bytes(table)


_WORD_TABLE = _word_table()


class Reading(msgspec.Struct, frozen=True, gc=False):
    """A text as the classifier sees it."""

    ask: bytes  # UTF-8
    words: list[bytes]  # of the ask: lower case, in order, without courtesies
    context_words: list[bytes]  # of what was read around it and may belong to it
    num_chars: int  # of all that counts: the ask, and the context unless it is known to be one


def read(text: str) -> Reading:
    """Find the ask in a text, and the words. Reads its head and tail, however long it is."""
    num_chars = len(text)
    if num_chars <= ASK_CHARS:
        ask = text.strip().encode("utf-8", "replace")
        words = ask.translate(_WORD_TABLE).split()
        if not COURTESIES.isdisjoint(words):
            ask = _without_courtesies(text.strip()).encode("utf-8", "replace")
            words = words_of(ask)
        return Reading(ask, words, [], num_chars)
    if num_chars > HEAD_CHARS + TAIL_CHARS:
        text = f"{text[:HEAD_CHARS]}\n\n{text[-TAIL_CHARS:]}"
    parts = _parts(text)
    lead, middle, close = (part.encode("utf-8", "replace") for part in parts)
    lead_words, close_words = words_of(lead), words_of(close)
    if lead_words and lead_words[0] in OPENERS:
        return Reading(lead, lead_words, [], len(parts[0]))
    if close_words and close_words[0] in OPENERS:
        return Reading(close, close_words, [], len(parts[2]))
    return Reading(lead + close, lead_words + close_words, words_of(middle), num_chars)


def _without_courtesies(text: str) -> str:
    """The text without a greeting at its head and a line of thanks at its end."""
    head, comma, rest = text[:MAX_COURTESY_CHARS].partition(",")
    if comma and not words_of(head.encode("utf-8", "replace")):
        text = rest.lstrip() + text[MAX_COURTESY_CHARS:]
    last_line = text.rfind("\n", -MAX_COURTESY_CHARS)
    if last_line >= 0 and not words_of(text[last_line:].encode("utf-8", "replace")):
        text = text[:last_line].rstrip()
    return text


def _parts(text: str) -> tuple[str, str, str]:
    """The first paragraph (or line), what is between, and the last paragraph; bounded."""
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
    """The words of a UTF-8 text, in lower case and in order, without courtesies."""
    words = text.translate(_WORD_TABLE).split()
    if COURTESIES.isdisjoint(words):
        return words
    if b"advance" in words and words[words.index(b"advance") - 1] == b"in":
        del words[words.index(b"advance") - 1]
    return [word for word in words if word not in COURTESIES]


def terms(words: list[bytes]) -> list[Term]:
    """The distinct words, then the distinct pairs of neighbours, each by first appearance."""
    return [*dict.fromkeys(words), *dict.fromkeys(pairwise(words))]


def _log2_table() -> tuple[float, ...]:
    """log2(1 + n), linear between powers of two: no libm, so the same bits on every machine."""
    table = []
    for n in range(MAX_COUNT + 1):
        exponent = (n + 1).bit_length() - 1
        table.append(exponent + (n + 1) / (1 << exponent) - 1)
    return tuple(table)


_LOG2 = _log2_table()

# Counted in the ask; what it is called when a decision is explained.
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
    """The shape of an ask: one number from 0 to 16 for each of `DENSE_NAMES`; counts as log2."""
    log2, words, ask = _LOG2, reading.words, reading.ask
    num_words = len(words)
    num_bytes = len(ask)
    num_capitals = num_bytes - len(ask.translate(None, _UPPER))
    num_digits = num_bytes - len(ask.translate(None, b"0123456789"))
    count = ask.count
    return [
        log2[num_words],
        log2[len(set(words))],
        min(16.0, len(b"".join(words)) / num_words) if words else 0.0,
        16 * num_digits / num_bytes if ask else 0.0,
        16 * num_capitals / num_bytes if ask else 0.0,
        float(num_words >= 60),
        log2[min(reading.num_chars >> 5, MAX_COUNT)],
        log2[len(reading.context_words)],
        *[log2[count(mark)] for mark in _MARKS],
    ]
