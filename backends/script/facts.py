"""What a conversation has said, so that an answer can show it was read.

Statements such as "the code word is BLUE-HERON", "my name is Ada", "remember: our port is 8443" or
"Password: swordfish" are facts: a subject and what was said of it. The last word on a subject
counts. This reads plain English statements; it does not reason.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec

from backends.script.words import fold, word_set

MAX_SCANNED_CHARS = 1_000_000  # of a context, the newest first; bounds the work on one question
MAX_PLACES = 20  # of one word in one message, the last ones
MAX_NOTED_PLACES = 2_000  # of all words in all messages
MAX_READ_CHARS = 16_000  # read for statements on one question, the likeliest places first
PLACE_CHARS = 150  # looked at before a word, and twice as many after it


class Fact(msgspec.Struct, frozen=True):
    """Something stated."""

    subject: str  # as stated: "my favourite colour"
    value: str
    words: frozenset[str]  # the subject's content words


_VALUE = r"(?P<value>\"[^\"\n]{1,200}\"|'[^'\n]{1,200}'|`[^`\n]{1,200}`|[^\n]{1,200}?)"
_END = (
    r"(?=\s*(?:[.!;](?:\s|$)|,\s+(?:and|but|so)\b|\s(?:and|but)\s+(?:i|we|my|our|the|you)\b|\n|$))"
)
_IS = r"\s+(?:is|are|was|equals|will be|has been set to|is now|should be)(?:\s+now)?:?\s+"

_TOLD = (
    r"\b(?:remember|memori[sz]e|note|note down|keep in mind|store|save)\s+(?:that\s+)?"
    r"(?P<subject>(?:the|this|these|my|our)\s+[\w -]{2,40}?)"
)

_STATEMENTS = (
    re.compile(
        # Atomic: what is no statement at its first "is" is none at its second.
        r"\b(?>(?P<subject>(?:the|my|our|your|this|its)\s+[a-z][\w' -]{1,60}?)"
        + _IS
        + ")"
        + _VALUE
        + _END,
        re.IGNORECASE | re.MULTILINE,
    ),
    re.compile(
        r"(?:^[ \t>*-]{0,20}|[.;:]\s{1,4})"
        r"(?!(?:please|remember|note|store|save|memori[sz]e|keep|for later)\b)"
        r"(?P<subject>[A-Za-z][A-Za-z _-]{1,40}?)\s*[:=]\s*" + _VALUE + _END,
        re.IGNORECASE | re.MULTILINE,
    ),
    re.compile(
        _TOLD + r"\s*[:=]\s*" + _VALUE + _END,
        re.IGNORECASE | re.MULTILINE,
    ),
    # Without a colon, only what looks like a value is one.
    re.compile(
        _TOLD + r"\s+(?P<value>\"[^\"\n]{1,200}\"|'[^'\n]{1,200}'|`[^`\n]{1,200}`"
        r"|(?-i:[A-Z0-9][\w-]*))" + _END,
        re.IGNORECASE | re.MULTILINE,
    ),
)
# What may precede a subject without being part of it.
_COMMAND = re.compile(
    r"^(?:(?:please|remember|note|memori[sz]e|store|save|keep in mind|down|important|that|"
    r"for later)[\s:,]+)+",
    re.IGNORECASE,
)
_NAMED = re.compile(
    r"\b(?i:call me|I am called|I'm called|people call me|I am|I'm)\s+(?P<value>[A-Z][\w-]+)\b"
)
_LIVING = re.compile(r"\bI (?P<verb>live in|work at|work for|come from)\s+(?P<value>[A-Z][\w -]+)")
_LIVING_SUBJECTS = {
    "live in": "my home city",
    "work at": "my employer",
    "work for": "my employer",
    "come from": "my origin",
}

# Questions about these words may be answered by such an introduction, however it begins.
_INTRODUCED_WORDS = word_set("name home city employer origin")
_INTRODUCTIONS = ("call me", "i am ", "i'm ", "called ", "i live", "i work", "i come")

_WORD = re.compile(r"[A-Za-z0-9]+")
_FILLER = word_set(
    "a an the my our your this that these its it is are was were be been what whats which who "
    "whom where when how tell me us again please can could would you i we do did does of for to "
    "in on at and or remember recall remind know gave give given told said say mentioned "
    "earlier before just now still ask asked have has had first last previous conversation "
    "exactly only reply answer with one"
)

_COMPOUND = re.compile(r"\b(code|pass|key|user)(word|phrase|name)\b", re.IGNORECASE)

_QUESTION = re.compile(
    r"\b(?:what(?:'s| is| was| were| are)|which|who(?:'s| is| am)|where (?:do|am)|"
    r"tell me|recall|remind me(?: of)?|repeat|give me|state|do you (?:remember|recall|know))\s+"
    r"(?P<subject>[^?.!\n]{2,120})",
    re.IGNORECASE,
)
_CLAUSE = re.compile(r"\s(?:did|do|that|which|i|we|you)\b", re.IGNORECASE)
_OF_CONTEXT = re.compile(
    r"\b(?:my|our|code ?word|pass(?:word|phrase|code)|secret|remember|recall|remind|"
    r"(?:i|we) (?:told|gave|said|mentioned|asked|set|chose|picked)|told you|gave you|"
    r"earlier|previously)\b",
    re.IGNORECASE,
)


def find_facts(texts: Iterable[str], question: str = "") -> list[Fact]:
    """Facts stated in texts, which come newest first; so do the facts.

    With a question, only what stands near one of its words is looked at.
    """
    words = content_words(question)
    # The first letters of a word survive spelling variants and plurals.
    stems = sorted({word[:4] for word in words})
    if words & _INTRODUCED_WORDS:
        stems += _INTRODUCTIONS
    found: list[tuple[int, int, Fact]] = []
    for order, start, piece in _likeliest(list(_pieces(texts, stems))):
        read = (*_stated(piece, start), *_introduced(piece, start))
        found += [(order, -at, fact) for at, fact in read]
    found.sort(key=lambda entry: entry[:2])
    return [fact for _, _, fact in found]


def recall(question: str, facts: Iterable[Fact]) -> Fact | None:
    """The newest fact that best matches what the question is about, if any does."""
    words = content_words(question)
    best: tuple[int, Fact] | None = None
    for fact in facts:
        shared = len(fact.words & words)
        # Every word of the subject must be asked for, or everything asked for be in the subject.
        if not shared or not (fact.words <= words or words <= fact.words):
            continue
        if best is None or shared > best[0]:
            best = (shared, fact)
    return best[1] if best else None


def question_subject(text: str) -> str | None:
    """What a question is about: "what is the code word?" is about "the code word"."""
    found = _QUESTION.search(text)
    if not found:
        return None
    subject = _CLAUSE.split(found["subject"], maxsplit=1)[0]
    return subject.strip(" '\"") or None


def is_about_context(text: str) -> bool:
    """Whether a question can only be answered from what was said before."""
    return _OF_CONTEXT.search(text) is not None


def content_words(text: str) -> frozenset[str]:
    """A text's telling words, folded."""
    words = [fold(word) for word in _WORD.findall(_COMPOUND.sub(r"\1 \2", text))]
    return frozenset(word for word in words if word not in _FILLER)


class _Piece(msgspec.Struct, frozen=True):
    """A part of a text that may hold a statement."""

    order: int  # of its text, newest first
    start: int  # where in its text
    text: str
    num_stems: int  # how many of the stems it has


def _pieces(texts: Iterable[str], stems: list[str]) -> Iterator[_Piece]:
    """What surrounds the stems in each text, or whole texts where there are no stems."""
    left = MAX_SCANNED_CHARS
    num_places = 0
    for order, text in enumerate(texts):
        if left <= 0 or num_places >= MAX_NOTED_PLACES:
            return
        scanned = text[-left:]
        left -= len(scanned)
        lowered = scanned.lower()
        for start, end in _places(lowered, stems) if stems else [(0, len(scanned))]:
            num_places += 1
            num_stems = sum(lowered.find(stem, start, end) >= 0 for stem in stems)
            yield _Piece(order, start, scanned[start:end], num_stems)


def _likeliest(pieces: list[_Piece]) -> Iterator[tuple[int, int, str]]:
    """As much as may be read: what has the most stems first, and of those the newest."""
    left = MAX_READ_CHARS
    for piece in sorted(pieces, key=lambda piece: -piece.num_stems):
        if left <= 0:
            return
        yield piece.order, piece.start, piece.text[-left:]
        left -= len(piece.text)


def _places(lowered: str, stems: list[str]) -> list[tuple[int, int]]:
    """Where a text has a stem: the last occurrences with what surrounds them, the last first."""
    places: list[tuple[int, int]] = []
    for stem in stems:
        at = len(lowered)
        for _ in range(MAX_PLACES):
            at = lowered.rfind(stem, 0, at)
            if at < 0:
                break
            line = lowered.rfind("\n", max(at - PLACE_CHARS, 0), at) + 1
            places.append((line or max(at - PLACE_CHARS, 0), at + 2 * PLACE_CHARS))
    merged: list[tuple[int, int]] = []
    for start, end in sorted(places, reverse=True):
        if merged and merged[-1][0] - start < PLACE_CHARS // 2:
            end = merged.pop()[1]  # neighbours share nearly all of what surrounds them
        merged.append((start, end))
    return merged


def _stated(text: str, start: int) -> Iterator[tuple[int, Fact]]:
    """Statements in a piece of text that begins at `start`; each with where it is."""
    for pattern in _STATEMENTS:
        for found in pattern.finditer(text):
            yield from _fact(start + found.start(), found["subject"], found["value"])


def _introduced(text: str, start: int) -> Iterator[tuple[int, Fact]]:
    """What people say of themselves without naming the subject: "I'm Ada"."""
    for found in islice(_NAMED.finditer(text), MAX_PLACES):
        yield from _fact(start + found.start(), "my name", found["value"])
    for found in islice(_LIVING.finditer(text), MAX_PLACES):
        yield from _fact(start + found.start(), _LIVING_SUBJECTS[found["verb"]], found["value"])


def _fact(at: int, subject: str, value: str) -> Iterator[tuple[int, Fact]]:
    subject = _COMMAND.sub("", subject)
    value = value.strip().strip("\"'`").rstrip(" .!,;")
    words = content_words(subject)
    if value and words and not value.endswith("?"):
        yield at, Fact(subject.strip(), value, words)
