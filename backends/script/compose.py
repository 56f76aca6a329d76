"""Puts answers together from prose and code, to the length that is wanted."""

import re

from backends.script.chance import Chance
from backends.script.length import Length
from backends.script.programs import identifier, write_long_function, write_program, write_tests
from backends.script.prose import Prose
from backends.script.statements import write_statements
from backends.script.syntax import SYNTAXES
from backends.script.topic import Topic
from backends.tokenizer import count, token_ends

CHARS_PER_TOKEN = 5  # of generated prose, measured

_WORD = re.compile(r"\S+")


def compose(ask: str, topic: Topic, length: Length, chance: Chance) -> str:
    """An answer: code with prose around it, or prose alone."""
    prose = Prose(topic, chance)
    if length.num_lines is not None and not topic.wants_code:
        text = "\n".join(prose.sentence() for _ in range(length.num_lines))
    elif length.num_sentences is not None:
        text = prose.paragraph(length.num_sentences)
    elif length.num_listed is not None and not topic.wants_code:
        text = f"On {topic.phrase}:\n\n{prose.numbered(length.num_listed)}"
    elif length.num_paragraphs is not None:
        text = "\n\n".join(prose.paragraph(4) for _ in range(length.num_paragraphs))
    elif topic.wants_code:
        text = _coding_answer(ask, topic, length, prose, chance)
    else:
        text = _prose_answer(topic, length, prose, chance)
    if length.num_words is not None:
        return _exact_words(text, length.num_words, prose)
    return _exact_tokens(text, length.num_tokens, prose) if length.counts_tokens else text


def _coding_answer(ask: str, topic: Topic, length: Length, prose: Prose, chance: Chance) -> str:
    language = topic.language or "python"
    syntax = SYNTAXES.get(language)
    if syntax is None:
        code = write_statements(language, topic, chance, length.num_tokens * 2 // 3)
        return "\n\n".join(
            (_opening(topic.name[-1], language, chance), _fence(language, code), prose.paragraph(2))
        )
    main = identifier(topic.name, syntax)
    if length.num_lines is not None:
        program = write_long_function(topic, syntax, chance, length.num_lines)
        parts = (_opening(main, syntax.title, chance), _fence(syntax.label, program.text))
        return "\n\n".join((*parts, prose.paragraph(2)))
    program = write_program(topic, syntax, chance, length.num_tokens // 2)
    parts_list = [_opening(main, syntax.title, chance), _fence(syntax.label, program.text)]
    parts_list.append(_walkthrough(main, prose, chance, 2 + length.num_tokens // 500))
    if length.num_tokens >= 250 or re.search(r"\btests?\b", ask, re.IGNORECASE):
        number = min(2 + length.num_tokens // 400, 40)
        tests = write_tests(program, syntax, chance, number)
        parts_list.append("Tests, with what it gives for a few inputs:")
        parts_list.append(_fence(syntax.label, tests))
    parts_list.append(prose.paragraph(2))
    return "\n\n".join(parts_list)


def _opening(main: str, language: str, chance: Chance) -> str:
    return chance.pick(
        (
            f"Here is `{main}` in {language}.",
            f"This {language} code defines `{main}` and what it needs.",
            f"A {language} version of `{main}`, with its limits checked up front.",
            f"Below is `{main}` in {language}. It has no dependencies.",
        )
    )


def _walkthrough(main: str, prose: Prose, chance: Chance, number: int) -> str:
    opening = chance.pick(
        (
            f"How `{main}` works:",
            f"A few notes on `{main}`:",
            f"What to know before you use `{main}`:",
        )
    )
    notes = [
        f"- `{main}` refuses a negative limit before it does any work.",
        "- It runs in one pass per step and never changes its input.",
    ]
    return "\n".join((opening, "", *notes, prose.bullets(number)))


def _prose_answer(topic: Topic, length: Length, prose: Prose, chance: Chance) -> str:
    target = length.num_tokens
    if target <= 120:
        return prose.paragraph(max(1, target // 24))
    parts = [prose.paragraph(3)]
    num_chars = len(parts[0])
    while num_chars < (target - 40) * CHARS_PER_TOKEN:
        if target > 500 and chance.often(40):
            parts.append(f"## {prose.heading()}")
        block = prose.bullets(chance.between(3, 5)) if chance.often(30) else None
        parts.append(block or prose.paragraph(chance.between(2, 5)))
        num_chars += len(parts[-1])
    return "\n\n".join(parts)


def _fence(label: str, code: str) -> str:
    return f"```{label}\n{code}\n```"


def _exact_words(text: str, num_words: int, prose: Prose) -> str:
    """Text cut or filled to exactly so many words."""
    missing = num_words - len(text.split())
    added = []
    while missing > 0:
        added.append(prose.sentence())
        missing -= len(added[-1].split())
    if added:
        text = f"{text}\n\n{' '.join(added)}"
    ends = [found.end() for found in _WORD.finditer(text)]
    cut = text[: ends[num_words - 1]]
    return cut if cut.endswith((".", "```")) else cut.rstrip(",;:-") + "."


def _exact_tokens(text: str, num_tokens: int, prose: Prose) -> str:
    """Text cut or filled to exactly so many tokens."""
    ends = token_ends(text)
    missing = num_tokens - len(ends)
    if missing > 0:
        added = []
        while missing > 0:
            added.append(prose.sentence())
            missing -= count(added[-1])
        text = f"{text}\n\n{' '.join(added)}"
        ends = token_ends(text)
    return text[: ends[num_tokens - 1]]
