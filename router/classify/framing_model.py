"""Tells the sentences that hand a task over from the task itself, by a linear model of sentences.

Greetings, headers of tickets, templates of agents and goodbyes say nothing of the work, and have
words of their own in any language, words that tasks do not have, or no word that is known. So each
sentence at both ends of a text has log-odds of being framing: of its words, the first and the last
one, how many there are, the mark it ends with, and whether it has a line of its own. From either
end those sentences are dropped whose log-odds add up to most, so that a doubtful one between two
certain ones goes with them. `router.training.handovers` fits the weights.

It imports by name the file that has them: reading it needs numpy, and a command that only reads a
configuration, which knows this module, does not.
"""

import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from itertools import filterfalse, repeat
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

from router.classify.signals import SECURITY_FIRST_WORDS, security_terms
from router.classify.spelling import Spelling
from router.classify.words import all_words_of, asks

BEFORE, BEHIND = 0, 1  # the task
MAX_SENTENCE_CHARS = 400  # a longer one is no framing
MAX_SENTENCES = 24  # looked at, at each end
MAX_CLOSING_CHARS = 900  # of a text's end that is looked through
NUM_SPELLED = 4_000  # most frequent words of tasks, whose misspellings are recognised
MAX_SPELLED_WORDS = 12  # of a sentence in which one slip counts
UNKNOWN = b"?"  # stands for any word that is not known
# A sentence counts as framing from here. A doubtful one goes: a sentence less of a task changes a
# lane more rarely than one of framing that stays.
MIN_LOG_ODDS = -1.25
# Where a text has a sentence that clearly is a task's, others need less to count as framing.
CLEAR_LOG_ODDS = -4.25  # of such a sentence
SHIFT, MAX_SHIFT = 0.5, 2.0  # of what is needed, for each that it is below
MAX_LOSS = 1.5  # of the log-odds' sum, by doubtful sentences; behind more nothing is framing
MAX_ASKING_WEIGHT = -0.3  # of a first word; a lower one begins tasks
MAX_QUIET_LOSS = 4.0  # by sentences that ask for nothing
MAX_GLUED_CHARS = 70  # of a goodbye that follows a task without a full stop
MIN_GLUED_LOG_ODDS = 1.0
MIN_OPENER_LOG_ODDS = 0.4  # of its first word, as names have none
_NO_ENDS = frozenset(" \n\t,;:-(&/+ABCDEFGHIJKLMNOPQRSTUVWXYZ")  # before a goodbye
# Where a task may begin behind a few words without a mark at their end: "ok so Rename the file".
_LED_IN = re.compile(r"(?<=[\])|\u2026]) (?=\S)|(?<=[\w,]) (?=[A-Z\u00c0-\u00de](?![A-Z]))")
MAX_LEAD_CHARS = 48
_LAST_CHARS = (96, 300)  # where most of the last sentences begin
_RULER = re.compile(r"[^\n]{0,60}[=_*-]{10}\s*\Z")  # the end of a line that parts
CLEAR_LOSS = -3.5  # of a sentence that clearly is a task's
ANNOUNCING_LOG_ODDS = 2.5  # of one that clearly is framing: what is before it goes with it

MARGIN = " \n\t\r\"'*_`#=>{-"
# Runs of characters that end nothing are matched at once: so it is several times as quick. A line
# as of a ticket, "Reporter: Ann Lee", is one sentence.
_SENTENCE = re.compile(
    r"(?:\A|(?<=\n))[*#>-]*+ ?[^\W\d_]++(?:[ _-]\w++){0,3}+\**:\**(?: [^\s]{1,40}+(?<!:)){1,3}+"
    r"(?:\n|$)[\s\"'*_`#=>{-]*"
    r"|[^\n.!?:;。！？：]*+"
    r"(?:(?:[.!?:;](?![\s\"'])|(?<=\b[A-Z])\.|(?<=\n\d)\.|(?<=\n\d\d)\.)[^\n.!?:;。！？：]*+)*+"
    r"(?:[.!?:;。！？：\n]|$)[\s\"'*_`#=>{-]*"
)
_NAME = re.compile(r"(?:[A-Z][a-z]*\.? ){0,2}[A-Z][a-z]*\.?\s*$")
MAX_NAME_CHARS = 32
NAME_LOG_ODDS = 1.0  # at least, of a last line that may be a name
BESIDE_CHARS = 24
GAP_CHARS = 6  # before a sentence, in which line breaks count
# Words without which sentences of some length hardly are English, and such of other languages.
_ENGLISH_WORDS = frozenset(
    b"the of and for with when is to by from that this it not into if its should are be".split()
)
_OTHER_WORDS = frozenset(
    b"der die das und ist mit nicht auf wir ich sie dem den ein eine einen bitte uns von zu im "
    b"alle alles wie oder aber dass ob sich bei nach aus wird werden kann ohne "
    b"le la les des est pour avec nous vous je un une du au ce ces merci dans sur sans qui pas et "
    b"el los las una que para con por del nos esto lo es gracias sin sobre como pero y en se "
    b"o os um uma com na dos isto obrigado obrigada sem mas mais em ao e "
    b"het een van dit niet voor ik we il che di sono non per grazie ciao".split()
)
_CODE_BYTES = b"`_(){}=/\\<>$"
_DIGITS = b"0123456789"
NO_FRAMING = -20.0  # log-odds
# Words that no task ends with, and a capital letter behind which begins a name.
_GOES_ON = frozenset(
    b"a an the of for with to in on at by from as is are be was were and or not no nor but if "
    b"which its our your my his her their into about via using per than then already when used "
    b"between like how why what where who whether because while does do did has have can should "
    b"will would may every each any some only also we i they show make let get set".split()
)
# Where a goodbye may begin that follows a task without a full stop.
_GLUED = re.compile(
    r" (?:[A-Z\u00c0-\u00de\u0410-\u042f](?![A-Z])[^\W\d_]*+(?:'[a-z]++)?(?![\w(])|--? |\("
    r"|[\u3040-\u9fff\uac00-\ud7af])"
)

MARKS = ":?!.,;：？！。，"  # that a sentence may end with
FIRST_MARKS = "[(<|@/·•・+0"  # that one may begin with; 0 is any digit
LENGTHS = (0, 1, 2, 3, 4, 5, 6, 10, 16)  # the least number of words of each class of lengths
SHAPES = (
    "bias",
    "line",  # of its own
    "apart",  # by an empty line
    "capitals",
    "capital first",
    "code",
    "digits",
    "field",  # as of a ticket, "Reporter: Ann Lee"
    "other language",  # than what is beside it, which is English
    *(f"ends with {mark}" for mark in MARKS),
    *(f"begins with {mark}" for mark in FIRST_MARKS),
    *(f"from {length} words" for length in LENGTHS),
)
_MARKS_AT = SHAPES.index(f"ends with {MARKS[0]}")
_FIRST_MARKS_AT = SHAPES.index(f"begins with {FIRST_MARKS[0]}")
_LENGTHS_AT = SHAPES.index("from 0 words")
_CLASS_OF_LENGTH = tuple(
    max(at for at, least in enumerate(LENGTHS) if n >= least) for n in range(MAX_SENTENCE_CHARS + 1)
)
_ROOTS = tuple(math.sqrt(n) for n in range(MAX_SENTENCE_CHARS + 1))

Singles: TypeAlias = Any  # an array of float32
_Part = tuple[int, int, float]  # where it starts and ends, and its log-odds less the least
_LOG_ODDS = itemgetter(2)


class _Side(NamedTuple):
    """Holds the weights of a sentence's shape before or behind the task."""

    by_gap: Sequence[float]  # by the line breaks to what is beside it, at most two
    capitals: float
    capital_first: float
    code: float
    digits: float
    field: float
    other_language: float
    by_mark: Mapping[str, float]
    by_first_mark: Mapping[str, float]
    by_length: Sequence[float]  # with the bias, by the number of words


class FramingModel:
    """Holds the weights, immutable.

    Args:
        words: Known words, and two that a sentence begins or ends with; the first is `UNKNOWN`.
        word_weights: Shape (words, 3): of a word anywhere in a sentence, first in it, last in it.
        shape_weights: Shape (2, shapes): for sentences before and behind a task.
    """

    def __init__(
        self, words: Sequence[bytes], word_weights: Singles, shape_weights: Singles
    ) -> None:
        self.words = tuple(words)
        self.word_weights, self.shape_weights = word_weights, shape_weights
        # One object for each number, and most words stand nowhere first or last: so little is kept
        # that it stays in the processor's cache.
        numbers: dict[float, float] = {}
        anywhere, first, last = (
            [numbers.setdefault(number, number) for number in column]
            for column in word_weights.T.tolist()
        )
        self._anywhere = dict(zip(words, anywhere, strict=True))
        self._first = {word: weight for word, weight in zip(words, first, strict=True) if weight}
        self._last = {word: weight for word, weight in zip(words, last, strict=True) if weight}
        self._spelling = Spelling(word for word in words[1:NUM_SPELLED] if word.isalpha())
        self._unknown, self._unknown_first, self._unknown_last = anywhere[0], first[0], last[0]
        self._sides = tuple(map(_side, shape_weights.tolist()))

    def log_odds(self, sentence: str, side: int, beside: str = "", *, gap: int) -> float:
        """Returns the log-odds that a sentence of up to `MAX_SENTENCE_CHARS` is framing.

        `beside` are the `BESIDE_CHARS` next to it, on the task's side, `gap` line breaks away, of
        which two count.
        """
        shape = self._sides[side]
        encoded = sentence.encode("utf-8", "replace")
        words = all_words_of(encoded)
        num_words = len(words)
        if num_words <= MAX_SPELLED_WORDS and encoded.isascii():
            words = self._spelled(words, encoded)
        found = shape.by_length[num_words] + shape.by_gap[gap]
        if num_words:
            summed: float = sum(map(self._anywhere.get, words, repeat(self._unknown)))
            found += summed / _ROOTS[num_words]
            known, first, last = self._anywhere, words[0], words[-1]
            found += self._first.get(first, 0.0 if first in known else self._unknown_first)
            found += self._last.get(last, 0.0 if last in known else self._unknown_last)
            if num_words > 1:
                found += self._first.get(words[0] + b" " + words[1], 0.0)
                found += self._last.get(words[-2] + b" " + words[-1], 0.0)
        bare = sentence.strip(MARGIN)
        found += shape.by_mark.get(bare[-1:], 0.0) + shape.by_first_mark.get(sentence[:1], 0.0)
        if ": " in bare:
            found += shape.field
        if len(encoded.translate(None, _DIGITS)) < len(encoded):
            found += shape.digits
        if bare[:1].isupper():
            found += shape.capital_first + (shape.capitals if bare.isupper() else 0.0)
        if len(encoded.translate(None, _CODE_BYTES)) < len(encoded) or "." in bare[:-1]:
            found += shape.code
        if _is_other_language(encoded, words, beside):
            found += shape.other_language
        if not SECURITY_FIRST_WORDS.isdisjoint(words) and security_terms(words, set(words)):
            return NO_FRAMING
        return found

    def _spelled(self, words: list[bytes], encoded: bytes) -> list[bytes]:
        """Corrects slips in a short sentence, where one makes a task of many words framing.

        What has a capital within the sentence is a name.
        """
        unknown = [*filterfalse(self._anywhere.__contains__, words)]
        if not unknown or not _OTHER_WORDS.isdisjoint(words):
            return words
        slips = self._spelling.slips([w for w in unknown if w in encoded or w == words[0]])
        return [slips.get(word, word) for word in words] if slips else words

    def task_in(self, text: str, *, before: bool, behind: bool) -> tuple[int, int]:
        """Returns where the task in a text begins and ends; never nothing of it."""
        size = len(text)
        start, first = self._openings(text) if before else (0, [])
        if not behind:
            return start, size
        if before and not first and size <= MAX_SENTENCE_CHARS:  # one sentence
            end = self._glued(text, 0)
            end = end if text[:end].strip(MARGIN) else size
            return self._led_in(text, 0, end), end
        doubtful = [part for part in first if part[1] <= start and part[2] < 0]
        if doubtful:
            # If all that is behind the likeliest task among them is framing, too, it is the task.
            begin, task_end, _ = min(doubtful, key=_LOG_ODDS)
            if self._closings(text, begin)[0] == task_end:
                return begin, task_end
        end, last = self._closings(text, start)
        if end == size:
            end = self._glued(text, last[0][0] if last else start)
        if start and not last and size - start <= MAX_SENTENCE_CHARS:
            # One sentence is left, which may be framing, too.
            found = self.log_odds(text[start:], BEHIND, gap=0) - MIN_LOG_ODDS
            last.append((start, size, found))
            if found > 0:
                start = end
        if text[start:end].strip(MARGIN):
            start, end = _wider(text, start, end, first, last)
            return (self._led_in(text, start, end) if before else start), end
        # All of it looks like framing: then the likeliest task of its sentences is one.
        return min([*first, *last], key=_LOG_ODDS, default=(0, size, 0.0))[:2]

    def _openings(self, text: str) -> tuple[int, list[_Part]]:
        """Returns where the task begins, and the sentences that were looked at."""
        at, start, size = 0, 0, len(text)
        total = best = 0.0
        parts: list[_Part] = []
        while len(parts) < MAX_SENTENCES and total >= best - MAX_QUIET_LOSS:
            end = _end_of(text, at)
            if end >= size or end - at > MAX_SENTENCE_CHARS:
                break
            found = self._opening(text, at, end)
            parts.append((at, end, found))
            sentence, at = text[at:end], end
            total += found
            if total > best:
                best, start = total, end
            elif total < best - MAX_LOSS and self._asks(sentence):
                break
        return self._announced(text, start, parts), parts

    def _announced(self, text: str, start: int, parts: list[_Part]) -> int:
        """Returns where the task begins behind what clearly is framing, or a line that parts.

        What is before that goes, too, if a sentence behind it is more like a task's.
        """
        if not parts or (start == 0 and parts[0][2] < CLEAR_LOSS):
            return start
        seen = [part for part in parts if part[0] >= start]
        at, behind, least = start, start, 0.0
        for number in range(MAX_SENTENCES - len(parts) + len(seen)):
            if number < len(seen):
                _, end, found = seen[number]
            else:
                end = _end_of(text, at)
                if end == at or end - at > MAX_SENTENCE_CHARS:
                    break
                found = self._opening(text, at, end)
            sentence, at = text[at:end], end
            if found < least and not _is_name(text, at - len(sentence)):
                start, least = behind, found
            if _RULER.match(sentence) or found >= ANNOUNCING_LOG_ODDS:
                behind = end
            elif found < CLEAR_LOSS or (found < 0 and asks(_words(sentence))):
                break
        return start

    def _opening(self, text: str, at: int, end: int) -> float:
        """Returns the log-odds, less the least, of a sentence before the task."""
        sentence, beside = text[at:end], text[end : end + BESIDE_CHARS]
        return self.log_odds(sentence, BEFORE, beside, gap=gap_in(sentence)) - MIN_LOG_ODDS

    def _closings(self, text: str, start: int) -> tuple[int, list[_Part]]:
        """Returns where the task ends, and the sentences that were looked at, the last first."""
        size = cut = len(text)
        total = best = 0.0
        parts: list[_Part] = []
        for stretch in (*_LAST_CHARS, MAX_CLOSING_CHARS):
            first = max(start, size - stretch)
            begins = [match.start() for match in _SENTENCE.finditer(text, first)]
            # The first one may have begun before. What is left of a text is the task.
            del begins[0]
            if begins and begins[-1] == size:
                begins.pop()
            del begins[len(begins) - len(parts) :]
            end = parts[-1][0] if parts else size
            while begins and len(parts) < MAX_SENTENCES:
                begin = begins.pop()
                if end - begin > MAX_SENTENCE_CHARS:
                    return cut, parts
                gap = gap_in(text[max(0, begin - GAP_CHARS) : begin])
                beside = text[max(start, begin - BESIDE_CHARS) : begin]
                found = self.log_odds(text[begin:end], BEHIND, beside, gap=gap) - MIN_LOG_ODDS
                if not parts and _is_name(text, begin):
                    found = max(found, NAME_LOG_ODDS)
                parts.append((begin, end, found))
                end = begin
                total += found
                if total > best:
                    best, cut = total, begin
                elif total < best - MAX_LOSS and (
                    total < best - MAX_QUIET_LOSS or self._asks(text[begin:end])
                ):
                    return cut, parts
            if first == start:
                break
        return cut, parts

    def _asks(self, sentence: str) -> bool:
        """Returns whether a sentence asks for work, by any word or, in any language, its first."""
        words = _words(sentence)
        first = self._first.get(words[0], 0.0) if words else 0.0
        return first < MAX_ASKING_WEIGHT or asks(words)

    def _glued(self, text: str, begin: int) -> int:
        """Returns where a goodbye begins that follows a task without a full stop."""
        end = len(text)
        best, cut = MIN_GLUED_LOG_ODDS, end
        for match in _GLUED.finditer(text, max(begin + 1, end - MAX_GLUED_CHARS), end):
            at = match.start()
            is_character = text[at + 1] > "\u3000"
            if text[at - 1] in _NO_ENDS or (is_character and not text[begin:at].isascii()):
                continue
            if text[at + 1].isupper() and not self._begins_anew(text, begin, at):
                continue
            beside = text[max(begin, at - BESIDE_CHARS) : at]
            found = self.log_odds(text[at + 1 : end], BEHIND, beside, gap=0) - MIN_LOG_ODDS
            if found > best:
                best, cut = found, at + 1
        return cut

    def _led_in(self, text: str, begin: int, end: int) -> int:
        """Returns where the task begins behind a few words that lead to it in the same sentence."""
        best, cut = MIN_GLUED_LOG_ODDS, begin
        for match in _LED_IN.finditer(text, begin + 1, min(begin + MAX_LEAD_CHARS, end)):
            at = match.start()
            if text[text.rfind(" ", begin, at) + 1 : at].lower().encode() in _GOES_ON:
                continue
            beside = text[at + 1 : at + 1 + BESIDE_CHARS]
            found = self.log_odds(text[begin:at], BEFORE, beside, gap=0) - MIN_LOG_ODDS
            if found > best:
                best, cut = found, at + 1
        return cut

    def _begins_anew(self, text: str, begin: int, at: int) -> bool:
        """Returns whether the capital behind a space begins a goodbye's sentence, and no name."""
        before = text[text.rfind(" ", begin, at) + 1 : at]
        if before.lower().encode() in _GOES_ON or before[:1].isupper():
            return False
        word = text[at + 1 : at + 1 + MAX_NAME_CHARS].partition(" ")[0].lower().encode()
        opener = all_words_of(word)[:1]
        found = sum(self._anywhere.get(each, 0.0) + self._first.get(each, 0.0) for each in opener)
        return found >= MIN_OPENER_LOG_ODDS


def _wider(
    text: str, start: int, end: int, first: list[_Part], last: list[_Part]
) -> tuple[int, int]:
    """Returns where the task begins and ends, if a sentence that clearly is its own is found."""
    least = min(map(_LOG_ODDS, (*first, *last)), default=0.0)
    shift = min(MAX_SHIFT, SHIFT * (CLEAR_LOG_ODDS - MIN_LOG_ODDS - least))
    if shift <= 0:
        return start, end
    if (number := _reach(first, least, shift)) >= 0:
        start = max(start, first[number][1])
    if (number := _reach(last, least, shift)) >= 0 and start < last[number][0] < end:
        words = text[start : last[number][0]].split()
        if words and words[-1].lower().encode() not in _GOES_ON:
            end = last[number][0]
    return start, end


def _reach(parts: list[_Part], least: float, shift: float) -> int:
    """Returns up to which part the sum is highest, before the one that is the clearest task."""
    total = best = 0.0
    found = -1
    for number, (_, _, log_odds) in enumerate(parts):
        if log_odds == least:
            break
        total += log_odds + shift
        if total > best:
            best, found = total, number
    return found


def _end_of(text: str, at: int) -> int:
    match = _SENTENCE.match(text, at, at + MAX_SENTENCE_CHARS + 1)
    return match.end() if match is not None else len(text)


def _words(sentence: str) -> list[bytes]:
    return all_words_of(sentence.encode("utf-8", "replace"))


def _is_name(text: str, begin: int) -> bool:
    """Returns whether the last line of a text is one to three words as of a signature."""
    signed = len(text) - begin <= MAX_NAME_CHARS and text[begin - 1 : begin] == "\n"
    return signed and _NAME.match(text, begin) is not None


def _side(weights: Sequence[float]) -> _Side:
    by_class = weights[_LENGTHS_AT:]
    by_mark = dict(zip(FIRST_MARKS, weights[_FIRST_MARKS_AT:_LENGTHS_AT], strict=True))
    return _Side(
        by_gap=(0.0, weights[SHAPES.index("line")], weights[SHAPES.index("apart")]),
        capitals=weights[SHAPES.index("capitals")],
        capital_first=weights[SHAPES.index("capital first")],
        code=weights[SHAPES.index("code")],
        digits=weights[SHAPES.index("digits")],
        field=weights[SHAPES.index("field")],
        other_language=weights[SHAPES.index("other language")],
        by_mark=dict(zip(MARKS, weights[_MARKS_AT:_FIRST_MARKS_AT], strict=True)),
        by_first_mark=by_mark | dict.fromkeys("0123456789", by_mark["0"]),
        by_length=[weights[0] + by_class[at] for at in _CLASS_OF_LENGTH],
    )


def _is_other_language(encoded: bytes, words: list[bytes], beside: str) -> bool:
    """Returns whether a sentence is not English, but what is beside it."""
    if _OTHER_WORDS.isdisjoint(words) and (encoded.isascii() or all(map(bytes.isascii, words))):
        return False
    if not _ENGLISH_WORDS.isdisjoint(words) or not beside.isascii():
        return False
    others = all_words_of(beside.encode())
    return bool(others) and _OTHER_WORDS.isdisjoint(others)


def shapes_of(sentence: str, words: list[bytes], beside: str = "", *, gap: int) -> list[int]:
    """Lists which of `SHAPES` a sentence has, as `log_odds` sees them."""
    num_words = len(words)
    bare = sentence.strip(MARGIN)
    found = [0, _LENGTHS_AT + _CLASS_OF_LENGTH[min(num_words, MAX_SENTENCE_CHARS)]]
    if gap:
        found.append(SHAPES.index(("line", "apart")[gap - 1]))
    if ": " in bare:
        found.append(SHAPES.index("field"))
    if bare[:1].isupper():
        found.append(SHAPES.index("capital first"))
        if bare.isupper():
            found.append(SHAPES.index("capitals"))
    encoded = sentence.encode("utf-8", "replace")
    if len(encoded.translate(None, _CODE_BYTES)) < len(encoded) or "." in bare[:-1]:
        found.append(SHAPES.index("code"))
    if len(encoded.translate(None, _DIGITS)) < len(encoded):
        found.append(SHAPES.index("digits"))
    if _is_other_language(encoded, words, beside):
        found.append(SHAPES.index("other language"))
    if bare and bare[-1] in MARKS:
        found.append(_MARKS_AT + MARKS.index(bare[-1]))
    first = sentence[:1]
    first = "0" if first.isascii() and first.isdigit() else first
    if first and first in FIRST_MARKS:
        found.append(_FIRST_MARKS_AT + FIRST_MARKS.index(first))
    return found


def gap_in(text: str) -> int:
    """Counts the line breaks in a few characters, of which two count."""
    return ("\n" in text) + ("\n\n" in text)


def sentences(text: str) -> list[str]:
    """Cuts a text into sentences, each with the spaces and marks behind it."""
    ends = [match.end() for match in _SENTENCE.finditer(text)]
    return [text[start:end] for start, end in zip([0, *ends], ends, strict=False) if start < end]


@cache
def served_framing() -> FramingModel:
    """Returns the model of this release; loaded when first asked for, as numpy is with it."""
    model: FramingModel = import_module("router.classify.framing_file").load_framing()
    return model
