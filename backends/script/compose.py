"""Puts answers together from prose and code, to the length that is wanted."""

import re
from collections.abc import Callable, Sequence

from backends.script.chance import Chance
from backends.script.length import Length
from backends.script.programs import TOKENS_PER_LINE, write_program, write_tests
from backends.script.prose import Prose
from backends.script.topic import Topic
from backends.tokenizer import token_ends

CHARS_PER_TOKEN = 5  # of generated prose, measured
MIN_LINES = 16  # of a program: two or three steps

_WORD = re.compile(r"\S+")
_NOTES = (
    "How `{name}` works:\n\n"
    "- `{name}` refuses a negative limit before it does any work.\n"
    "- It runs in one pass per step and never changes its input.\n"
)


def compose(prompt: str, topic: Topic, length: Length, chance: Chance) -> str:
    """Write an answer: code with prose around it, or prose alone."""
    prose = Prose(topic, chance)
    match length.unit:
        case "sentence":
            text = prose.paragraph(length.number)
        case "paragraph":
            text = "\n\n".join(prose.paragraph(4) for _ in range(length.number))
        case "line" if not topic.wants_code:
            text = "\n".join(prose.sentence() for _ in range(length.number))
        case "item" if not topic.wants_code:
            text = f"On {topic.phrase}:\n\n{prose.listed(length.number, '{}.')}"
        case _ if topic.wants_code:
            text = _coding_answer(prompt, topic, length, prose, chance)
        case _:
            text = _prose_answer(length.num_tokens, prose, chance)
    if length.unit == "token":
        return _filled(text, length.num_tokens, prose, token_ends)
    if length.unit == "word":
        text = _filled(text, length.number, prose, _word_ends)
        return text if text.endswith((".", "```")) else text.rstrip(",;:-") + "."
    return text


def _coding_answer(prompt: str, topic: Topic, length: Length, prose: Prose, chance: Chance) -> str:
    num_lines = length.number
    if length.unit != "line":
        num_lines = max(length.num_tokens * 3 // 5 // TOKENS_PER_LINE, MIN_LINES)
    program = write_program(topic, chance, num_lines)
    parts = [f"Here is `{program.name}` in Python.", f"```python\n{program.text}\n```"]
    if length.unit != "line":
        notes = _NOTES.format(name=program.name)
        parts.append(notes + prose.listed(2 + length.num_tokens // 500, "-"))
        if length.num_tokens >= 250 or re.search(r"\btests?\b", prompt, re.IGNORECASE):
            parts.append("Tests, with what it gives for a few inputs:")
            tests = write_tests(program, chance, min(2 + length.num_tokens // 400, 40))
            parts.append(f"```python\n{tests}\n```")
    return "\n\n".join([*parts, prose.paragraph(2)])


def _prose_answer(num_tokens: int, prose: Prose, chance: Chance) -> str:
    if num_tokens <= 120:
        return prose.paragraph(max(1, num_tokens // 24))
    parts = [prose.paragraph(3)]
    num_chars = len(parts[0])
    while num_chars < (num_tokens - 40) * CHARS_PER_TOKEN:
        if num_tokens > 500 and chance.often(40):
            parts.append(f"## {prose.heading()}")
        if chance.often(30):
            parts.append(prose.listed(chance.between(3, 5), "-"))
        else:
            parts.append(prose.paragraph(chance.between(2, 5)))
        num_chars += len(parts[-1])
    return "\n\n".join(parts)


def _filled(text: str, number: int, prose: Prose, ends_of: Callable[[str], Sequence[int]]) -> str:
    """Cut or fill a text to exactly so many units; `ends_of` says where each of them ends."""
    ends = ends_of(text)
    missing = number - len(ends)
    if missing > 0:
        added = []
        while missing > 0:
            added.append(prose.sentence())
            missing -= len(ends_of(added[-1]))
        text = f"{text}\n\n{' '.join(added)}"
        ends = ends_of(text)
    return text[: ends[number - 1]]


def _word_ends(text: str) -> list[int]:
    return [found.end() for found in _WORD.finditer(text)]
