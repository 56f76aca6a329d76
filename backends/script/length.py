"""How long an answer should be, from the ask alone."""

import re

import msgspec

from backends.script.words import word_set

AIM_TOKENS = 400  # an answer aimed at fewer may come out much shorter
CUT_TOKENS = 16  # more than the limit, so that the cut shows as one
MAX_UNITS = 100_000  # of whatever is asked for; an answer is cut to the request's limit later

_UNIT = re.compile(
    r"(?<![\w.])(?P<number>\d[\d,_]{0,8}|\d+(?:\.\d+)?k)[ -](?:\w+[ -]){0,2}?"
    r"(?P<unit>tokens?|words?|lines?|paragraphs?|sentences?|characters?|"
    r"items?|ideas?|bullets?|points?|examples?|steps?|tests?|functions?|reasons?|names?)\b",
    re.IGNORECASE,
)
_SPELLED = {
    "one": "1", "two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7",
    "eight": "8", "nine": "9", "ten": "10", "twelve": "12", "twenty": "20", "fifty": "50",
    "hundred": "100", "a hundred": "100", "a thousand": "1000",
}  # fmt: skip
_FORMS = {"haiku": 3, "limerick": 5, "sonnet": 14, "poem": 12}  # and their lines
_SPELLED_WORD = re.compile(rf"\b({'|'.join(sorted(_SPELLED, key=len, reverse=True))})\b", re.I)
_LISTED = word_set("item idea bullet point example step reason name")
_SHORT = re.compile(
    r"\b(?:short(?:ly)?|brief(?:ly)?|concise(?:ly)?|in one (?:word|line|sentence|paragraph)|"
    r"tl;?dr)\b",
    re.IGNORECASE,
)
# In instructions, which say much else, only a sentence about answers counts.
_SHORT_ANSWERS = re.compile(
    r"\b(?:answer|reply|respond)\b[^.\n]{0,40}"
    r"\b(?:short|brief(?:ly)?|concise(?:ly)?|one (?:sentence|paragraph|line))\b",
    re.IGNORECASE,
)
_LONG = re.compile(
    r"\b(?:long|detailed|in detail|thorough(?:ly)?|comprehensive|complete|full|in[- ]depth|"
    r"extensive|exhaustive|essay|article|chapter|report|guide|tutorial|design document|"
    r"step by step|everything)\b",
    re.IGNORECASE,
)


class Length(msgspec.Struct, frozen=True):
    """A target in tokens; and, where the ask names a number of something, that number."""

    num_tokens: int
    counts_tokens: bool = False  # the target is to be met exactly
    num_words: int | None = None
    num_lines: int | None = None
    num_paragraphs: int | None = None
    num_sentences: int | None = None
    num_listed: int | None = None  # entries of a list

    def within(self, max_tokens: int) -> "Length":
        """The same, but no more than what a limit cuts anyway: nobody would see the rest."""
        most = max_tokens + CUT_TOKENS
        cut = {
            name: min(number, -(-most // least))
            for name, least in _LEAST_TOKENS.items()
            if (number := getattr(self, name)) is not None
        }
        # Unless it is met exactly, a target may be missed by half; a cut must show all the same.
        target = most if self.counts_tokens else 2 * max_tokens + AIM_TOKENS
        return msgspec.structs.replace(self, num_tokens=min(self.num_tokens, target), **cut)


# What one of each has on average, at the least.
_LEAST_TOKENS = {
    "num_words": 1,
    "num_lines": 4,  # of code
    "num_paragraphs": 32,
    "num_sentences": 8,
    "num_listed": 8,
}


def wants_short_answers(instructions: str | None) -> bool:
    """Whether instructions, in their last lines, ask for short answers whatever the ask."""
    return _SHORT_ANSWERS.search((instructions or "")[-400:]) is not None


def wanted_length(ask: str) -> Length:
    """What the ask says of its answer's length; else what is usual for such an ask."""
    for form, num_lines in _FORMS.items():
        if form in ask.lower():
            return Length(num_lines * 12, num_lines=num_lines)
    found = _UNIT.search(_SPELLED_WORD.sub(lambda spelled: _SPELLED[spelled[0].lower()], ask))
    if found:
        number, unit = _number(found["number"]), found["unit"].lower().rstrip("s")
        match unit:
            case "token":
                return Length(number, counts_tokens=True)
            case "word":
                return Length(number * 3 // 2, num_words=number)
            case "line":
                return Length(number * 12, num_lines=number)
            case "character":
                return Length(max(number // 4, 1), counts_tokens=True)
            case "paragraph":
                return Length(number * 90, num_paragraphs=number)
            case "sentence":
                return Length(number * 22, num_sentences=number)
            case "test" | "function":
                return Length(120 + number * 110)
            case _ if unit in _LISTED:
                return Length(number * 40, num_listed=number)
    if _SHORT.search(ask):
        return Length(60)
    if _LONG.search(ask):
        return Length(1_400)
    num_words = len(ask.split())
    return Length(90 if num_words <= 8 else 260 if num_words <= 30 else 480)


def _number(text: str) -> int:
    folded = text.lower().replace(",", "").replace("_", "")
    number = float(folded[:-1]) * 1000 if folded.endswith("k") else float(folded)
    return max(1, min(int(number), MAX_UNITS))
