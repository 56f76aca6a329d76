"""Drops what only frames a task: greetings, tickets' headers, agents' templates, quotes, thanks.

A framing sentence says nothing of the work, so nearly all of its words come from a small
vocabulary, that of `framings.toml`. Such sentences are dropped at both ends of a text, never all of
it, so that a task is judged alike however it is handed over.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from router.classify.words import OPENERS, all_words_of

LINES_PATH = Path(__file__).with_name("framings.toml")
MAX_SENTENCE_CHARS = 240  # a longer one is no framing
MAX_SENTENCES = 24  # dropped at each end
MAX_SPACED_CHARS = 1_024  # of a text whose double spaces are removed; in longer ones few count
MAX_NAME_CHARS = 32  # of a signature
MAX_CLOSING_CHARS = 900  # of a text's end that is looked through
KNOWN_IN_FOUR = 3  # of four words of a framing sentence, so many are in the vocabulary
KNOWN_PAIRS_IN_TEN = 6  # of ten pairs of characters

_SENTENCE = re.compile(
    r"(?:[^\n.!?:,;\]>。！？：，、]|[.!?:,;\]](?![\s\"']))*+(?:[.!?:,;\]>。！？：，、\n]|$)[\s\"'*_`#=>{-]*"
)
# Behind a task only what ends a sentence for sure separates: lines may be wrapped anywhere.
_CLOSING_SENTENCE = re.compile(
    r"(?:[^\n.!?:,;。！？：]|[.!?:;](?!\s)|,(?!\n)|\n(?!\s*\n))*+"
    r"(?:[.!?:;。！？：]|,\n|\n\s*\n|$)[\s\"'*_`#=>{-]*"
)
_THANKS = re.compile(
    r"[\s,.!?(-]*(?:\b(?:many thanks|thanks|thank you|thx|tia|cheers|(?:kind |best )?regards|merci"
    r"|vielen dank|danke|(?:muchas )?gracias|obrigad[oa]|please|pls|plz)\b[\w\s,.!?]{0,40}"
    r"|\[/INST\]|</[\w-]+>|\n\s*(?:A|Answer|Response|Output|Solution):)\s*$",
    re.IGNORECASE,
)
_THANKS_CHARS = 64
_NAME = re.compile(r"[A-Z][a-z]+(?: [A-Z][a-z.]*)?\s*$")
EDGES = " \n\t\r\"'`*#=>-{}[]"
_HEADER = re.compile(r"[\s*#>-]*([^\W\d_]+)(?:[ _]\w+)?\**:\**[^\n]{0,60}\n\s*")
_QUOTED = re.compile(r"^ ?> ?", re.MULTILINE)
_FENCES = re.compile(r"\A\s*(?:```\w*|\"\"\"|~~~)\n|\n(?:```|\"\"\"|~~~)\s*\Z")
_POLITE = re.compile(
    r"(?:(?:hi|hello|hey)\b[\s,.!]*"
    r"|(?:and |so |ok |now )?(?:please|pls|plz|kindly|bitte|por favor|veuillez)\b[\s,]*"
    r"|(?:could|can|would|will) you\b(?: (?:please|kindly|help(?: me)?|maybe|quickly))*(?: to)?\s+"
    r"|(?:i|we)(?:'d| would| really)? (?:want|need|like|love)(?: for)? you to\s+"
    r"|(?:i|we) (?:want|need|have|would like|'d like) to\s+"
    r"|(?:please )?(?:help|assist) (?:me|us)(?: to| with| in)?\s+"
    r"|(?:your|the|my) (?:task|job|goal|assignment) is to\s+"
    r"|(?:go ahead and|let's|let us)\s+"
    r"|(?:my|our) (?:boss|manager|team|client|customer) (?:wants|asked|needs) (?:me|us|you) to\s+"
    r"|(?:kannst|könntest|können|könnten) (?:du|sie)(?: mir)?(?: bitte)?\s+"
    r"|(?:ich|wir) (?:möchte|brauche|möchten|brauchen)\s+"
    r"|(?:peux-tu|pouvez-vous|pourriez-vous|pourrais-tu|s'il te plaît|s'il vous plaît)[\s,]+"
    r"|(?:puedes|podrías|puede|podría|você pode|você poderia|pode|poderia)\s+"
    r"|请(?:你|您)?(?:帮我|帮忙)?|麻烦(?:你|您)?)+",
    re.IGNORECASE,
)
MAX_POLITE_CHARS = 80
_POLITE_STARTS = (
    *("hi", "hello", "hey", "please", "pls", "plz", "kindly", "bitte", "por favor", "veuillez"),
    *("and ", "so ", "ok ", "now ", "could", "can ", "would", "will ", "i ", "i'", "we", "help"),
    *("assist", "your ", "the ", "my ", "our ", "go ", "let", "kann", "könn", "ich ", "wir "),
    *("peux", "pouvez", "pourr", "s'il", "pued", "podr", "você", "pode", "请", "麻烦"),
)
_CLOSES = re.compile(
    r"than|thx|tia|cheer|regard|merci|dank|graci|obrig|pleas|pls|plz|inst\]|</|answer|\na:|respon"
    r"|output|solution"
).search
_FIRST_CHARS = 24
_MARKUP = tuple("<[{>#*-`=\"'")
_QUESTIONS = frozenset(b"what how why which where who when whose".split())  # as the first word


class _Vocabulary:
    """Knows the words of framing sentences, and pairs of Chinese and Japanese characters."""

    def __init__(self, lines: str, never: frozenset[bytes]) -> None:
        words = all_words_of(lines.encode())
        self.words = frozenset(words) - never
        self.never = never | OPENERS - self.words - _QUESTIONS
        self.pairs = frozenset(p for p in pairwise(words) if not (p[0] + p[1]).isascii())

    def holds(self, sentence: str) -> bool:
        """Returns whether nearly all words of a sentence are of this vocabulary."""
        words = all_words_of(sentence.encode("utf-8", "replace"))
        if not sentence.isascii() and len(words) > 1 and _is_character(words[-1]):
            pairs = [*pairwise(words)]
            known = sum([pair in self.pairs for pair in pairs])
            return 10 * known >= KNOWN_PAIRS_IN_TEN * len(pairs)
        if words and max(map(len, words)) == 1:
            return sentence.strip() in ("Q:", "A:")  # rather than the letter of a choice
        known = sum([word in self.words for word in words])
        return 4 * known >= KNOWN_IN_FOUR * len(words) and not self._asks(words)

    def _asks(self, words: list[bytes]) -> bool:
        """Returns whether a sentence of plain words asks for something after all."""
        is_question = words[:1] and words[0] in _QUESTIONS and b"you" not in words
        return bool(is_question) or not self.never.isdisjoint(words)


def _is_character(word: bytes) -> bool:
    return len(word) == 3 and word[0] >= 0xE3


def _vocabularies(lines: Mapping[str, str]) -> tuple[_Vocabulary, _Vocabulary]:
    never = frozenset(all_words_of(lines["never"].encode()))
    parts = [
        "\n".join([text for name, text in lines.items() if name.startswith(kind)])
        for kind in ("opening", "closing")
    ]
    return _Vocabulary(parts[0], never), _Vocabulary("\n".join(parts), never)


_LINES: Mapping[str, str] = tomllib.loads(LINES_PATH.read_text("utf-8"))
_OPENING, _CLOSING = _vocabularies(_LINES)
_HEADERS = frozenset(_LINES["headers"].split())


def has_no_framing(words: Sequence[bytes]) -> bool:
    """Returns whether a text surely has no framing, by its words: as most requests."""
    return bool(words) and words[0] in _OPENING.never and words[-1] not in _CLOSING.words


def without_framing(text: str, *, before: bool = True, behind: bool = True) -> str:
    """Returns a text without framing at its ends and without double spaces; never nothing of it."""
    text = text.strip()
    while len(text) <= MAX_SPACED_CHARS and "  " in text:
        text = text.replace("  ", " ")
    if text.startswith(">") or "\n> " in text[:200]:
        text = _QUOTED.sub("", text)
    if text.startswith(("```", '"""', "~~~")) or text.endswith(("```", '"""', "~~~")):
        text = _FENCES.sub("", text).strip()
    start = _opening_end(text) if before and _may_open(text) else 0
    if start >= len(text):  # nothing else: then it is the task
        return text
    end = _closing_start(text, start) if behind else len(text)
    if start >= end:
        return text
    text = text[start:end].rstrip()
    if behind and _CLOSES(text[-_THANKS_CHARS:].lower()) is not None:
        thanks = _THANKS.search(text, max(0, len(text) - _THANKS_CHARS))
        if thanks is not None and thanks.start() > 0:
            text = text[: thanks.start()]
    text = text.lstrip(EDGES) if before else text
    text = text.rstrip(EDGES + ".") if behind else text
    if before and text[:16].lower().startswith(_POLITE_STARTS):
        polite = _POLITE.match(text, 0, MAX_POLITE_CHARS)
        if polite is not None and polite.end() < len(text):
            if " you" in polite[0].lower():
                text = text.removesuffix("?")  # it was no question
            text = text[polite.end() :]
    return text


def _may_open(text: str) -> bool:
    """Returns whether a text may begin with framing, by its first words; most do not."""
    words = all_words_of(text[:_FIRST_CHARS].encode("utf-8", "replace"))
    if text[:1] in _MARKUP or not words:
        return True
    return words[0] in _OPENING.words or (":" in text[:32] and words[0] not in _OPENING.never)


def _opening_end(text: str) -> int:
    """Returns where the framing before a task ends."""
    at = 0
    for _ in range(MAX_SENTENCES):
        header = _HEADER.match(text, at)
        if header is not None and header[1].lower() in _HEADERS:
            at = header.end()
            continue
        sentence = _SENTENCE.match(text, at, at + MAX_SENTENCE_CHARS)
        if sentence is None or not _OPENING.holds(sentence[0]):
            break
        at = sentence.end()
        if at >= len(text):
            break
    return at


def _last_sentence(text: str) -> str:
    end = len(text) - 2
    first = max(0, end - MAX_SENTENCE_CHARS)
    starts = [text.rfind(mark, first, end) for mark in (". ", "! ", "? ", ": ", "\n\n", "。", "！")]
    starts += [text.rfind(mark, first, end) for mark in ("; ", ",\n", ".\n", "!\n", "?\n", ":\n")]
    return text[max(first, *starts) :]


def _closing_start(text: str, start: int) -> int:
    """Returns where the framing behind a task begins."""
    end = len(text)
    first = max(start, end - MAX_CLOSING_CHARS)
    words = all_words_of(text[-MAX_NAME_CHARS:].encode("utf-8", "replace"))
    is_framing = words and (words[-1] in _CLOSING.words or not words[-1].isascii())
    if not is_framing and "\n" not in text[-MAX_NAME_CHARS:]:
        return end  # as most texts
    if is_framing and not _CLOSING.holds(_last_sentence(text)):
        return end
    sentences = [match[0] for match in _CLOSING_SENTENCE.finditer(text, first) if match[0]]
    is_name = _NAME.match(sentences[-1]) is not None
    if is_name and len(sentences) > 1 and _CLOSING.holds(sentences[-2]):
        end -= len(sentences.pop())
    for sentence in sentences[: -1 - MAX_SENTENCES : -1]:
        if len(sentence) > MAX_SENTENCE_CHARS or not _CLOSING.holds(sentence):
            break
        end -= len(sentence)
    return end
