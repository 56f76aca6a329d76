"""Finds statements in a conversation, so that an answer can show it was read.

Statements such as "the code word is BLUE-HERON", "my name is Ada", "remember: our port is 8443" or
"Password: swordfish" are facts: a subject and its value. The latest statement on a subject counts.
This reads plain English statements; it does not reason.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec

from backends.script.last_message import short_gaps
from backends.script.topic import FUNCTION_WORDS, fold, word_set

MAX_SCANNED_CHARS = 1_000_000  # of a context, the newest first; bounds the cost of one question
MAX_OCCURRENCES = 20  # of one word in one message, the latest
MAX_WINDOWS = 2_000  # around all words in all messages
MAX_READ_CHARS = 16_000  # for one question, the likeliest windows first
WINDOW_CHARS = 150  # before a word; twice as many after it


class Fact(msgspec.Struct, frozen=True):
    """Is a statement about a subject."""

    subject: str  # as stated: "my favourite colour"
    value: str
    words: frozenset[str]  # the subject's content words


_QUOTED = r"\"[^\"\n]{1,200}\"|'[^'\n]{1,200}'|`[^`\n]{1,200}`"
_VALUE = rf"(?P<value>{_QUOTED}|[^\n]{{1,200}}?)"
_END = (
    r"(?=\s*(?:[.!;](?:\s|$)|,\s+(?:and|but|so)\b|\s(?:and|but)\s+(?:i|we|my|our|the|you)\b|\n|$))"
)
_IS = r"\s+(?:is|are|was|equals|will be|has been set to|is now|should be)(?:\s+now)?:?\s+"

_REMEMBER = (
    r"\b(?:remember|memori[sz]e|note|note down|keep in mind|store|save)\s+(?:that\s+)?"
    r"(?P<subject>(?:the|this|these|my|our)\s+[\w -]{2,40}?)"
)

_STATEMENTS = (
    # Atomic: a text without a statement at its first "is" has none at its second.
    r"\b(?>(?P<subject>(?:the|my|our|your|this|its)\s+[a-z][\w' -]{1,60}?)" + _IS + ")" + _VALUE,
    r"(?:^[ \t>*-]{0,20}|[.;:]\s{1,4})"
    r"(?!(?:please|remember|note|store|save|memori[sz]e|keep|for later)\b)"
    r"(?P<subject>[A-Za-z][A-Za-z _-]{1,40}?)\s*[:=]\s*" + _VALUE,
    _REMEMBER + r"\s*[:=]\s*" + _VALUE,
    # Without a colon, only text that looks like a value is one.
    _REMEMBER + rf"\s+(?P<value>{_QUOTED}|(?-i:[A-Z0-9][\w-]*))",
)
_PATTERNS = [re.compile(text + _END, re.IGNORECASE | re.MULTILINE) for text in _STATEMENTS]
# What may precede a subject without being part of it.
_COMMAND = re.compile(
    r"(?i)^(?:(?:please|remember|note|memori[sz]e|store|save|keep in mind|down|important|that|"
    r"for later)[\s:,]+)+"
)
# What people say of themselves without naming the subject, and the subject.
_SELF_STATEMENTS = (
    (re.compile(r"\b(?i:call me|(?:I am|I'm)(?: called)?)\s+([A-Z][\w-]+)\b"), "my name"),
    (re.compile(r"\bI live in\s+([A-Z][\w -]+)"), "my home city"),
    (re.compile(r"\bI work (?:at|for)\s+([A-Z][\w -]+)"), "my employer"),
    (re.compile(r"\bI come from\s+([A-Z][\w -]+)"), "my origin"),
)

# Questions about these words may be answered by such an introduction, however it begins.
_INTRODUCED_WORDS = frozenset(("name", "home", "city", "employer", "origin"))
_INTRODUCTIONS = ("call me", "i am ", "i'm ", "called ", "i live", "i work", "i come")

_WORD = re.compile(r"[A-Za-z0-9]+")
_FILLER = FUNCTION_WORDS | word_set(
    "whats tell again remember recall remind know gave give told said say mentioned earlier "
    "before just now still ask asked have has had first last previous conversation exactly only "
    "reply answer"
)

_COMPOUND = re.compile(r"(?i)\b(code|pass|key|user)(word|phrase|name)\b")

_QUESTION = re.compile(
    r"(?i)\b(?:what(?:'s| is| was| were| are)|which|who(?:'s| is| am)|where (?:do|am)|"
    r"tell me|recall|remind me(?: of)?|repeat|give me|state|do you (?:remember|recall|know))\s+"
    r"(?P<subject>[^?.!\n]{2,120})"
)
_CLAUSE = re.compile(r"(?i)\s(?:did|do|that|which|i|we|you)\b")
_OF_CONTEXT = re.compile(
    r"(?i)\b(?:my|our|code ?word|pass(?:word|phrase|code)|secret|remember|recall|remind|"
    r"(?:i|we) (?:told|gave|said|mentioned|asked|set|chose|picked)|told you|gave you|"
    r"earlier|previously)\b"
)


def find_facts(texts: Iterable[str], question: str = "") -> list[Fact]:
    """Finds the facts stated in texts; texts and facts are newest first.

    With a question, only text near one of its words is searched.
    """
    words = content_words(question)
    # The first letters of a word survive spelling variants and plurals.
    stems = sorted({word[:4] for word in words})
    if words & _INTRODUCED_WORDS:
        stems += _INTRODUCTIONS
    found: list[tuple[int, int, Fact]] = []
    left = MAX_READ_CHARS
    # Windows with the most stems come first, and of those the newest.
    for _, order, start, text in sorted(_windows(texts, stems), key=lambda window: -window[0]):
        if left <= 0:
            break
        facts = _stated(text[-left:], start)
        found += [(order, -position, fact) for position, fact in facts]
        left -= len(text)
    found.sort(key=lambda entry: entry[:2])
    return [fact for _, _, fact in found]


def recall(question: str, facts: Iterable[Fact]) -> Fact | None:
    """Finds the newest fact that best matches a question's subject, if any does."""
    words = content_words(question)
    # Either the question has every word of the subject, or the subject every word of the question.
    fitting = (fact for fact in facts if fact.words <= words or words <= fact.words)
    best = max(fitting, key=lambda fact: len(fact.words & words), default=None)
    return best if best is not None and best.words & words else None


def question_subject(text: str) -> str | None:
    """Returns a question's subject: "what is the code word?" is about "the code word"."""
    if found := _QUESTION.search(text):
        return _CLAUSE.split(found["subject"], maxsplit=1)[0].strip(" '\"") or None
    return None


def is_about_context(text: str) -> bool:
    """Returns whether only the conversation can answer a question."""
    return _OF_CONTEXT.search(text) is not None


def content_words(text: str) -> frozenset[str]:
    """Returns a text's telling words, normalised by `fold`."""
    words = map(fold, _WORD.findall(_COMPOUND.sub(r"\1 \2", text)))
    return frozenset(word for word in words if word not in _FILLER)


def _windows(texts: Iterable[str], stems: list[str]) -> Iterator[tuple[int, int, int, str]]:
    """Yields the text around the stems in each text, or whole texts if there are no stems.

    Each comes with the number of its stems, its text's index, and its start in that text.
    """
    left = MAX_SCANNED_CHARS
    num_windows = 0
    for order, text in enumerate(texts):
        if left <= 0 or num_windows >= MAX_WINDOWS:
            return
        scanned = text[-left:]
        left -= len(scanned)
        lowered = scanned.lower()
        for start, end in _spans(lowered, stems) if stems else [(0, len(scanned))]:
            num_windows += 1
            num_stems = sum(lowered.find(stem, start, end) >= 0 for stem in stems)
            yield num_stems, order, start, scanned[start:end]


def _spans(lowered: str, stems: list[str]) -> list[tuple[int, int]]:
    """Finds the text around the last occurrences of each stem, the last first."""
    spans: list[tuple[int, int]] = []
    for stem in stems:
        found = len(lowered)
        for _ in range(MAX_OCCURRENCES):
            found = lowered.rfind(stem, 0, found)
            if found < 0:
                break
            first = max(found - WINDOW_CHARS, 0)
            start = lowered.rfind("\n", first, found) + 1 or first
            spans.append((start, found + 2 * WINDOW_CHARS))
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans, reverse=True):
        if merged and merged[-1][0] - start < WINDOW_CHARS // 2:
            end = merged.pop()[1]  # neighbours nearly share their windows
        merged.append((start, end))
    return merged


def _stated(text: str, start: int) -> Iterator[tuple[int, Fact]]:
    """Yields the statements in a piece of text that begins at `start`, with their positions."""
    text = short_gaps(text)
    named = [(m.start(), m["subject"], m["value"]) for p in _PATTERNS for m in p.finditer(text)]
    introduced = [
        (found.start(), subject, found[1])
        for pattern, subject in _SELF_STATEMENTS
        for found in islice(pattern.finditer(text), MAX_OCCURRENCES)
    ]
    for position, subject, value in named + introduced:
        subject = _COMMAND.sub("", subject)
        value = value.strip().strip("\"'`").rstrip(" .!,;")
        words = content_words(subject)
        if value and words and not value.endswith("?"):
            yield start + position, Fact(subject.strip(), value, words)
