"""Drops what only frames a task: greetings, tickets' headers, agents' templates, quotes, thanks.

A framing sentence says nothing of the work, so nearly all of its words come from a small
vocabulary, that of `framings.toml`. Such sentences are dropped at both ends of a text, never all of
it, so that a task is judged alike however it is handed over.
"""

import re
import tomllib
from collections.abc import Mapping
from itertools import filterfalse, pairwise
from pathlib import Path

import msgspec

from router.classify.courtesies import without_please, without_thanks
from router.classify.words import OPENERS, all_words_of

LINES_PATH = Path(__file__).with_name("framings.toml")
MAX_SENTENCE_CHARS = 240  # a longer one is no framing
MAX_SENTENCES = 24  # dropped at each end
MAX_SPACED_CHARS = 1_024  # of a text whose double spaces are removed; in longer ones few count
MAX_NAME_CHARS = 32  # of a signature
MAX_CLOSING_CHARS = 900  # of a text's end that is looked through
NUM_LAST_WORDS = 3  # of a text, all of which are known where it ends with a framing sentence
_LAST_CHARS = 140  # where most of the last sentences begin
KNOWN_IN_TEN = 7.5  # of ten words of a framing sentence, so many are in the vocabulary
KNOWN_IN_TEN_APART = 5  # in one that stands apart, of so many words
MIN_APART_WORDS, MAX_APART_WORDS, MAX_APART_CHARACTERS = 3, 12, 20
KNOWN_IN_TEN_OUTSIDE = 2.5  # in a paragraph behind the task, or one before it that ends in a colon
KNOWN_PAIRS_IN_TEN = 6  # of ten pairs of characters

# Runs of characters that end nothing are matched at once: so it is several times as quick.
_SENTENCE = re.compile(
    r"[^\n.!?:,;\]>。！？：，、]*+(?:[.!?:,;\]](?![\s\"'])[^\n.!?:,;\]>。！？：，、]*+)*+"
    r"(?:[.!?:,;\]>。！？：，、\n]|$)[\s\"'*_`#=>{-]*"
)
# Behind a task only what ends a sentence for sure separates: lines may be wrapped anywhere.
_CLOSING_SENTENCE = re.compile(
    r"[^\n.!?:,;。！？：]*+"
    r"(?:(?:[.!?:;](?!\s)|(?<=\s[A-Z])\.|,(?!\n)|\n(?!\s*\n))[^\n.!?:,;。！？：]*+)*+"
    r"(?:[.!?:;。！？：]|,\n|\n\s*\n|$)[\s\"'*_`#=>{-]*"
)
_NAME = re.compile(r"(?:[A-Z][a-z]*\.? ){0,2}[A-Z][a-z]*\.?\s*$")
EDGES = " \n\t\r\"'`*#=>-{}[]"
_END_EDGES = EDGES + "."
_LINE = re.compile(r"[^\n]+\n[\s\"'*_`#=>{-]*")
MAX_LINE_CHARS = 120
MAX_APART_CHARS = 100
MAX_FAREWELL_WORDS = 2
_BROKEN = re.compile(r"(?:\n|[.!?:;,]\s)\W*\w").search  # whether a sentence or clause ends before
_ENDED = re.compile(r"[.!?][ \n]|\n\n").search
_LAST_END = re.compile(r"(?s:.*)([.!?][ \n]|\n\n)").match
MAX_ADDRESS_WORDS, MAX_ADDRESS_CHARACTERS = 3, 5  # "Dear colleagues," and such
_HEADER = re.compile(r"[\s*#>-]*([^\W\d_]+)(?:[ _]\w+)?\**:\**[^\n]{0,60}\n\s*")
# Tags around a task, and headers between dashed lines, as of Markdown files.
_TAGS_BEFORE = re.compile(r"(?:<[^<>\n]{1,80}>\s*)+")
_TAGS_BEHIND = re.compile(r"(?:\s*</[^<>\n]{1,40}>)+\s*$")
_FRONT_MATTER = re.compile(r"---\n(?:[^\n]{0,80}\n){1,12}?---\n")
_LAST_HEADER = re.compile(r"[\s*#>(-]*([^\W\d_]+)(?:[ _]\w+)?\**:\**[^\n]*$")
MAX_HEADER_CHARS = 80
MAX_TAGS_CHARS = 120
_OBJECT = msgspec.json.Decoder(dict[str, object])
# "[09:14] Ana: " before each line of a chat.
_SPEAKERS = re.compile(
    r"^\[?\d{1,2}:\d\d(?::\d\d)?(?: ?[AaPp][Mm])?\]? [<@]?\w[\w.-]{0,23}(?: \w[\w.-]{0,23})?>?: ?",
    re.MULTILINE,
)
# A few words below a line of dashes, as what an app or a mail adds: "Sent from my phone".
_BELOW_LINE = re.compile(r"\n\s*(?:-{2,}|_{3,}|\*{3,})[ \t]*\n\s*([^\n]{0,80})$")
MAX_BELOW_LINE_CHARS = 100
_NOTIFY = re.compile(r"(?i)\btell me (?:when|once|as soon as)\b")
# What somebody said, with who said it before, and little behind.
_SPEECH = re.compile(r'([^"]{4,120}[:,] ?)"([^"]{24,})"([^"]{0,80})$')
# A line in bold, or behind "#": a form's "**Describe what you need**".
_HEADING = re.compile(r"(?:\*\*)?[^\n*#]{1,60}\*\*:?\s*\n\s*|#{1,4} [^\n*#]{1,60}\n\s*")
_QUOTED = re.compile(r"^ ?> ?", re.MULTILINE)
_CDATA = "<![CDATA["
_FENCES = re.compile(r"\A\s*(?:```\w*|\"\"\"|~~~)\n|\n(?:```|\"\"\"|~~~)\s*\Z")
_FIRST_CHARS = 24
_MARKUP = frozenset("<[{>#*-`=\"'")
_FENCE_MARKS = ("```", '"""', "~~~")
_END_MARKUP = (">", "]", ":", "```", '"""', "~~~")
_QUOTE_CHARS = 200  # of a text's start, where quoted lines are looked for
_MARKS = frozenset("!:,\n\u3001\uff01\uff0c\uff1a")  # that may end an address or an introduction
_BULLETS = ("\n*", "\n-")
_CHOICE = re.compile(r"(?:[A-Z]|\d+)[.)] ").match
_CHOICE_END = re.compile(r"(?:\b[A-Z]|\d)$").search
_US = frozenset(b"we us i me".split())  # "How should we react?" is no question of its own
_QUESTIONS = frozenset(b"what how why which where who when whose".split())  # as the first word


_Part = tuple[int, int]  # where it starts and ends


class _Vocabulary:
    """Knows the words of framing sentences, and pairs of Chinese and Japanese characters."""

    def __init__(self, lines: str, never: frozenset[bytes], *, closes: bool) -> None:
        self.closes = closes
        words = all_words_of(lines.encode())
        self.words = frozenset(words) - never
        self.never = never | OPENERS - self.words - _QUESTIONS
        self.verbs = self.never & OPENERS
        self.pairs = frozenset(p for p in pairwise(words) if not (p[0] + p[1]).isascii())

    def holds(self, sentence: str, *, apart: bool = False) -> bool:
        """Returns whether nearly all words of a sentence are of this vocabulary.

        Fewer are enough in one that stands apart from the task: before a colon, or in a paragraph
        of its own.
        """
        if "ell me " in sentence:
            sentence = _NOTIFY.sub("", sentence)
        words = all_words_of(sentence.encode("utf-8", "replace"))
        num_words = len(words)
        if not sentence.isascii() and num_words > 1 and _is_character(words[-1]):
            pairs = [*pairwise(words)]
            known = sum([pair in self.pairs for pair in pairs])
            if 10 * known >= KNOWN_PAIRS_IN_TEN * len(pairs):
                return True
            known = sum([word in self.words for word in words])
            return apart and num_words <= MAX_APART_CHARACTERS and 2 * known >= num_words
        if words and len(words[0]) == 1 and max(map(len, words)) == 1:
            return sentence.strip() in ("Q:", "A:")  # rather than the letter of a choice
        others = [*filterfalse(self.words.__contains__, words)]
        known = num_words - len(others)
        if others and not b"".join(others).isalpha():
            known += sum(map(_is_label, others))
        enough = KNOWN_IN_TEN
        apart = apart and num_words <= MAX_APART_WORDS
        if apart and (self.closes or sentence.rstrip().endswith(":")):
            enough = KNOWN_IN_TEN_OUTSIDE
        elif apart or (num_words >= MIN_APART_WORDS and sentence.rstrip().endswith(":")):
            enough = KNOWN_IN_TEN_APART
        if 10 * known < enough * num_words:
            return False
        return not self._asks(words, known == num_words, enough == KNOWN_IN_TEN_OUTSIDE)

    def knows(self, heading: str) -> bool:
        """Returns whether nearly all words of a heading are of this vocabulary, verbs or not."""
        words = all_words_of(heading.encode("utf-8", "replace"))
        known = sum([word in self.words or word in self.verbs for word in words])
        return 10 * known >= KNOWN_IN_TEN * len(words)

    def adds_nothing(self, line: str) -> bool:
        """Returns whether a line that stands apart asks for nothing, whatever its words."""
        words = all_words_of(line.encode("utf-8", "replace"))
        return not words or not self._asks(words, False, True)

    def _asks(self, words: list[bytes], sure: bool, outside: bool) -> bool:
        """Returns whether a sentence of plain words asks for something after all."""
        is_question = words[:1] and words[0] in _QUESTIONS and b"you" not in words
        if is_question and not (sure and self.closes and not _US.isdisjoint(words)):
            return True
        return not (self.verbs if outside else self.never).isdisjoint(words)


def _is_character(word: bytes) -> bool:
    return len(word) == 3 and word[0] >= 0xE3


def _is_label(word: bytes) -> bool:
    """Returns whether a word is a number, a label such as P2, or an emoji."""
    return not word.isalpha() and (word.isascii() or word.startswith(b"\xf0\x9f"))


def _vocabularies(lines: Mapping[str, str]) -> tuple[_Vocabulary, _Vocabulary]:
    never = frozenset(all_words_of(lines["never"].encode()))
    parts = [
        "\n".join([text for name, text in lines.items() if name.startswith(kind)])
        for kind in ("opening", "closing")
    ]
    parts[0] += lines["headers"]
    opening = _Vocabulary(parts[0], never, closes=False)
    return opening, _Vocabulary("\n".join(parts), never, closes=True)


_LINES: Mapping[str, str] = tomllib.loads(LINES_PATH.read_text("utf-8"))
_OPENING, _CLOSING = _vocabularies(_LINES)
_HEADERS = frozenset(_LINES["headers"].split())


def without_framing(text: str, *, before: bool = True, behind: bool = True) -> str:
    """Returns a text without framing at its ends and without double spaces; never nothing of it."""
    text = text.strip()
    while len(text) <= MAX_SPACED_CHARS and "  " in text:
        text = text.replace("  ", " ")
    if before and behind and text.startswith("{") and text.endswith("}"):
        text = _unwrapped(text)
    if before and behind and text.count('"') == 2:
        text = _as_said(text)
    # Courtesies go first, so that a text is the same with and without them to all that follows.
    text = without_thanks(text) if behind else text
    text = without_please(text) if before else text
    if (
        text[:1] in _MARKUP
        or text.endswith(_END_MARKUP)
        or "\n> " in text[:_QUOTE_CHARS]
        or "\n--" in text[-MAX_BELOW_LINE_CHARS:]
    ):
        text = _without_markup(text, before, behind)
    opening = _opening_parts(text) if before and _may_open(text) else []
    start = opening[-1][1] if opening else 0
    end = len(text)
    closing: list[_Part] = []
    if behind:
        end, closing = _closing_parts(text, start)
        end = closing[-1][0] if closing else end
    if len(opening) > 1 and _is_signed(text[slice(*opening[-1])], text[start:end]):
        end = start = opening.pop()[0]
    if start >= end and (opening or closing):  # nothing else: then one of them is the task
        start, end = _likeliest(text, [*opening, *closing])
    if start or end < len(text):
        text = text[start:end].rstrip()
        text = without_thanks(text) if behind else text
        text = without_please(text.lstrip(EDGES)) if before else text
    text = text.lstrip(EDGES) if before else text
    return text.rstrip(_END_EDGES) if behind else text


def _without_markup(text: str, before: bool, behind: bool) -> str:
    """Removes marks of quotes, fences, tags and front matter around a text."""
    if _CDATA in text[:_QUOTE_CHARS]:
        text = text.replace(_CDATA, "", 1).replace("]]>", "", 1)
    if text.startswith(">") or "\n> " in text[:_QUOTE_CHARS]:
        text = _QUOTED.sub("", text)
    if _SPEAKERS.match(text):
        text = _SPEAKERS.sub("", text)
    if text.startswith(_FENCE_MARKS) or text.endswith(_FENCE_MARKS):
        text = _FENCES.sub("", text).strip()
    if before and text.startswith(("<", "---\n")):
        wrapped = _TAGS_BEFORE.match(text) or _FRONT_MATTER.match(text)
        text = text[wrapped.end() :] if wrapped and wrapped.end() < len(text) else text
    if behind and "\n--" in text[-MAX_BELOW_LINE_CHARS:]:
        below = _BELOW_LINE.search(text, max(0, len(text) - MAX_BELOW_LINE_CHARS))
        if below is not None and below.start() and _CLOSING.holds(below[1]):
            text = text[: below.start()].rstrip()
    if behind and text.endswith(">"):
        tags = _TAGS_BEHIND.search(text, max(0, len(text) - MAX_TAGS_CHARS))
        text = text[: tags.start()] if tags and tags.start() else text
    return text


def _as_said(text: str) -> str:
    """Returns what is quoted, if the words around it ask for nothing."""
    said = _SPEECH.match(text)
    if said is None or not (_CLOSING.adds_nothing(said[1]) and _CLOSING.adds_nothing(said[3])):
        return text
    return said[2].strip()


def _unwrapped(text: str) -> str:
    """Returns the longest text of a JSON object that wraps one."""
    try:
        values: list[object] = [*_OBJECT.decode(text).values()]
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return text
    for value in values:  # those of objects within follow
        if isinstance(value, dict):
            values.extend(value.values())
    texts = [value.strip() for value in values if isinstance(value, str)]
    longest = max(texts, key=len, default="")
    return longest if " " in longest else text


def _may_open(text: str) -> bool:
    """Returns whether a text may begin with framing, by its first words; most do not."""
    words = all_words_of(text[:_FIRST_CHARS].encode("utf-8", "replace"))
    if text[:1] in _MARKUP or not words:
        return True
    if words[0] in _OPENING.words:
        return True
    return words[0] not in _OPENING.never and not _MARKS.isdisjoint(text[:40])


def _may_close(tail: str) -> bool:
    """Returns whether a text may end with a framing sentence, by its last words; most do not."""
    words = all_words_of(tail.encode("utf-8", "replace"))
    known = _CLOSING.words
    if not words or (words[-1] not in known and words[-1].isalpha()):
        return not words
    if not tail.isascii() or _BROKEN(tail) is not None:
        return True
    last = words[1:][-NUM_LAST_WORDS:-1]  # the first one may be cut
    return all(word in known or not word.isalpha() for word in last)


def _opening_parts(text: str) -> list[_Part]:
    """Finds the headers, lines and sentences before a task that only frame it."""
    parts: list[_Part] = []
    at = 0
    is_addressed = False
    while at < len(text) and len(parts) < MAX_SENTENCES:
        end = _part_end(text, at)
        if end is None and not is_addressed:
            # Once: "Dear colleagues," is an address, the words of a list are not.
            end = _address_end(text, at)
            is_addressed = True
        if end is None:
            break
        parts.append((at, end))
        at = end
    return parts


def _part_end(text: str, at: int) -> int | None:
    """Returns where a header, line or sentence that only frames a task ends."""
    header = _HEADER.match(text, at)
    if header is not None and header[1].lower() in _HEADERS:
        return header.end()
    heading = _HEADING.match(text, at)
    if heading is not None and _OPENING.knows(heading[0]):
        return heading.end()
    line = _LINE.match(text, at, at + MAX_LINE_CHARS)
    if line is not None and _OPENING.holds(line[0]):
        return line.end()
    sentence = _SENTENCE.match(text, at, at + MAX_SENTENCE_CHARS)
    if sentence is None:
        return None
    found, is_line = sentence[0], line is not None and sentence.end() == line.end()
    apart = "\n\n" in found
    if is_line and not apart:
        return None  # as it has been looked at
    return sentence.end() if _OPENING.holds(found, apart=apart) else None


def _address_end(text: str, at: int) -> int | None:
    sentence = _SENTENCE.match(text, at, at + MAX_SENTENCE_CHARS)
    return sentence.end() if sentence is not None and _addresses(sentence[0]) else None


def _addresses(sentence: str) -> bool:
    """Returns whether a few words name somebody, or are a heading of what follows."""
    mark = sentence.rstrip()[-1:]
    if mark not in _MARKS or (mark == ":" and "\n" not in sentence):
        return False
    words = all_words_of(sentence.encode("utf-8", "replace"))
    length = MAX_ADDRESS_CHARACTERS if not sentence.isascii() else MAX_ADDRESS_WORDS
    return len(words) <= length and _OPENING.never.isdisjoint(words)


def _last_sentence(text: str) -> str:
    text = text.rstrip()
    end = len(text) - 2
    first = max(0, end - MAX_SENTENCE_CHARS)
    starts = [text.rfind(mark, first, end) for mark in (". ", "! ", "? ", ": ", "\n\n", "。", "！")]
    starts += [text.rfind(mark, first, end) for mark in ("; ", ",\n", ".\n", "!\n", "?\n", ":\n")]
    return text[max(first, *starts) :]


def _likeliest(text: str, parts: list[_Part]) -> _Part:
    """Returns the part with the most words that are no framing's, of equal ones the longest.

    Headers, introductions, and one or two words, which may be a name, come last.
    """

    def size(part: _Part) -> tuple[bool, int, int]:
        found = text[slice(*part)].rstrip()
        words = all_words_of(found.encode("utf-8", "replace"))
        own = sum([word not in _CLOSING.words and not _is_label(word) for word in words])
        is_task = len(words) > MAX_FAREWELL_WORDS and not found.endswith(":")
        return (is_task and _HEADER.match(text, *part) is None, own, part[1] - part[0])

    return max(parts, key=size)


def _closing_parts(text: str, start: int) -> tuple[int, list[_Part]]:
    """Finds the end of a text without its signature, and the framing sentences before that."""
    end = len(text)
    tail = text[-MAX_NAME_CHARS:]
    may_close = "\n\n" in text[-MAX_APART_CHARS:] or _may_close(tail)
    if not may_close and _ENDED(tail) is None and not _may_be_signed(text, tail):
        return end, []  # as most texts
    bare = max(start, _without_signature(text))
    if bare < end or start > end - MAX_APART_CHARS:
        end = bare
        tail = text[max(start, end - MAX_NAME_CHARS) : end]
        may_close = "\n\n" in text[max(start, end - MAX_APART_CHARS) : end] or _may_close(tail)
    first = max(start, end - MAX_CLOSING_CHARS)
    parts = _framing_before(text, first, end) if may_close else []
    return (end if parts else _without_farewell(text, first, end)), parts


def _may_be_signed(text: str, tail: str) -> bool:
    return "\n" in tail and _NAME.match(tail, tail.rindex("\n") + 1) is not None


def _is_signed(farewell: str, name: str) -> bool:
    """Returns whether what is left of a text is a name: "Best regards, Ana"."""
    is_short = len(all_words_of(farewell.encode("utf-8", "replace"))) <= MAX_FAREWELL_WORDS
    return is_short and farewell.rstrip().endswith(",") and _NAME.fullmatch(name) is not None


def _framing_before(text: str, first: int, end: int) -> list[_Part]:
    """Finds the sentences that only frame a task, from the last of a stretch backwards."""
    parts: list[_Part] = []
    for start in (max(first, end - _LAST_CHARS), first):
        begins = [match.start() for match in _CLOSING_SENTENCE.finditer(text, start, end)]
        if begins[-1] == end:
            begins.pop()
        parts = _framing_sentences(text, begins, end)
        # The first one may have begun before the start; if that is framing, too, all of it counts.
        if len(parts) < len(begins):
            break
    return parts


def _framing_sentences(text: str, begins: list[int], end: int) -> list[_Part]:
    parts: list[_Part] = []
    for begin in begins[: -1 - MAX_SENTENCES : -1]:
        apart = "\n\n" in text[max(0, begin - 4) : begin]
        if end - begin > MAX_SENTENCE_CHARS or _is_item(text, begin):
            break
        if not _CLOSING.holds(text[begin:end], apart=apart):
            break
        parts.append((begin, end))
        end = begin
    return parts


def _is_item(text: str, begin: int) -> bool:
    """Returns whether a sentence is a point of a list, or a choice: what is asked, not framing."""
    return text[max(0, begin - 3) : begin - 1] in _BULLETS or _CHOICE(text, begin) is not None


def _without_farewell(text: str, first: int, end: int) -> int:
    """Returns where a last sentence of one or two words begins, if it asks for nothing."""
    ended = _LAST_END(text, max(first, end - MAX_NAME_CHARS), end - 2)
    at = ended.start(1) if ended is not None else 0
    if at < 1 or _CHOICE_END(text, max(0, at - 4), at) is not None:  # "2. click" is of a list
        return end
    words = all_words_of(text[at:end].encode("utf-8", "replace"))
    asks = not _QUESTIONS.isdisjoint(words) or not _OPENING.never.isdisjoint(words)
    return end if asks or len(words) > MAX_FAREWELL_WORDS else at + 1


def _without_signature(text: str) -> int:
    """Returns where a task ends before headers behind it, and before a name below a greeting."""
    end = len(text)
    for _ in range(MAX_SENTENCES):
        line = text.rfind("\n", 0, end) + 1
        if not line or end - line > MAX_HEADER_CHARS:
            break
        header = _LAST_HEADER.match(text, line, end)
        if header is not None and (header[1].lower() in _HEADERS or text[end - 1] == ":"):
            end = line - 1
            continue
        if _NAME.match(text, line, end) and _CLOSING.holds(_last_sentence(text[:line])):
            end = line
        break
    return end
