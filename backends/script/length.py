"""Decides how long an answer should be, from the prompt alone."""

import re

import msgspec

AIM_TOKENS = 400  # a shorter answer may fall far below its aim
CUT_TOKENS = 16  # above the limit, so that the cut is visible
MAX_UNITS = 100_000  # of the unit; an answer is cut to the request's limit later

_UNIT = re.compile(
    r"(?i)(?<![\w.])(?P<number>\d[\d,_]{0,8}|\d+(?:\.\d+)?k)[ -](?:\w+[ -]){0,2}?"
    r"(?P<unit>token|word|line|paragraph|sentence|character|"
    r"item|idea|bullet|point|example|step|test|function|reason|name)s?\b"
)
_SPELLED = {
    "one": "1", "two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7",
    "eight": "8", "nine": "9", "ten": "10", "twelve": "12", "twenty": "20", "fifty": "50",
    "hundred": "100", "a hundred": "100", "a thousand": "1000",
}  # fmt: skip
_SPELLED_WORD = re.compile(rf"(?i)\b({'|'.join(sorted(_SPELLED, key=len, reverse=True))})\b")
_FORMS = {"haiku": 3, "limerick": 5, "sonnet": 14, "poem": 12}  # and their lines
# A unit usually has so many tokens, and at least so many on average.
_UNIT_TOKENS = {
    "word": (1.5, 1), "line": (12, 4), "paragraph": (90, 32), "sentence": (22, 8), "item": (40, 8)
}  # fmt: skip
_SHORT = re.compile(
    r"(?i)\b(?:(?:short|brief|concise)(?:ly)?|in one (?:word|line|sentence|paragraph)|tl;?dr)\b"
)
# Instructions say much else, so only a sentence about answers counts.
_SHORT_ANSWERS = re.compile(
    r"(?i)\b(?:answer|reply|respond)\b[^.\n]{0,40}"
    r"\b(?:short|brief(?:ly)?|concise(?:ly)?|one (?:sentence|paragraph|line))\b"
)
_LONG = re.compile(
    r"(?i)\b(?:long|detailed|in detail|thorough(?:ly)?|comprehensive|complete|full|in[- ]depth|"
    r"extensive|exhaustive|essay|article|chapter|report|guide|tutorial|design document|"
    r"step by step|everything)\b"
)


class Length(msgspec.Struct, frozen=True):
    """Is the number of tokens to aim at, and the number of a unit if the prompt names one."""

    num_tokens: int
    unit: str = ""  # a unit to count exactly
    number: int = 0

    def told(self, verbosity: str | None) -> "Length":
        """Halves or doubles a length that the prompt does not name, by the request's verbosity."""
        if self.unit or verbosity not in ("low", "high"):
            return self
        return Length(self.num_tokens // 2 if verbosity == "low" else self.num_tokens * 2)

    def within(self, max_tokens: int) -> "Length":
        """Shortens this to slightly over a limit, as the rest would be cut."""
        most = max_tokens + CUT_TOKENS
        if self.unit == "token":
            return Length(min(self.num_tokens, most), self.unit, self.number)
        # An answer may miss its aim by half; the cut must show all the same.
        num_tokens = min(self.num_tokens, 2 * max_tokens + AIM_TOKENS)
        if not self.unit:
            return Length(num_tokens)
        _, least = _UNIT_TOKENS[self.unit]
        return Length(num_tokens, self.unit, min(self.number, -(-most // least)))


def wants_short_answers(instructions: str | None) -> bool:
    """Returns whether the last lines of instructions ask for short answers."""
    return _SHORT_ANSWERS.search((instructions or "")[-400:]) is not None


def wanted_length(prompt: str) -> Length:
    """Reads the length that the prompt asks for, else estimates a usual one."""
    for form, num_lines in _FORMS.items():
        if form in prompt.lower():
            return _length_of("line", num_lines)
    found = _UNIT.search(_SPELLED_WORD.sub(lambda spelled: _SPELLED[spelled[0].lower()], prompt))
    if found:
        digits = found["number"].lower().replace(",", "").replace("_", "")
        number = float(digits.rstrip("k")) * (1_000 if digits.endswith("k") else 1)
        return _length_of(found["unit"].lower(), max(1, int(min(number, MAX_UNITS))))
    if _SHORT.search(prompt):
        return Length(60)
    if _LONG.search(prompt):
        return Length(1_400)
    num_words = len(prompt.split())
    return Length(90 if num_words <= 8 else 260 if num_words <= 30 else 480)


def _length_of(unit: str, number: int) -> Length:
    if unit in ("test", "function"):
        return Length(120 + number * 110)
    if unit == "character":
        unit, number = "token", max(number // 4, 1)
    if unit == "token":
        return Length(number, unit, number)
    unit = unit if unit in _UNIT_TOKENS else "item"
    return Length(int(number * _UNIT_TOKENS[unit][0]), unit, number)
