"""Composes an answer: decides what a request calls for and builds the output items.

It tries, in this order: sub-tasks to delegate, if that is offered; calls of the client's tools;
JSON, if the format demands it; facts from the conversation; and then code or prose of a fitting
length. If a deep engine was asked to reason, reasoning comes first.
"""

import base64
import hashlib
import re
from collections.abc import Callable, Sequence

import msgspec

from backends.contract import DeltaKind, GenerateRequest
from backends.prompt import unsalted_hash
from backends.script.chance import Chance
from backends.script.delegating import about_subtasks, handed_on
from backends.script.dialogue import dialogue_answer, relevant_fact
from backends.script.formats.told import told_format
from backends.script.last_message import LastMessage, read_last_message
from backends.script.length import Length, wanted_length, wants_short_answers
from backends.script.programs import TOKENS_PER_LINE, write_program, write_tests
from backends.script.prose import Prose
from backends.script.schema import instance
from backends.script.scripted_answer import AnswerItem, Script, ScriptedAnswer, message_item
from backends.script.tool_calls import tool_calls
from backends.script.topic import Topic, read_topic
from backends.script.values import Values
from backends.script.work import Work
from backends.tokenizer import token_ends

# Reasoning tokens by effort, for a prompt of usual length; assumed. Lower efforts do not reason.
REASONING_TOKENS = {"medium": 120, "high": 400, "xhigh": 900, "max": 1_600}

CHARS_PER_TOKEN = 5  # of generated prose, measured
MIN_LINES = 16  # of a program: two or three steps

_YES_OR_NO = re.compile(r"(?i)\b(?:reply|answer|respond) with one word: yes or no\b")
_WORD = re.compile(r"\S+")
_ATTACHMENT = re.compile(r"\[(?:image|file) [^\]\n]{0,420}\]")


def answer_script(seed: int, *, reasons: bool) -> Script:
    """Makes a script that answers; the same request always gets the same answer.

    `seed` is for requests without one; `reasons` says whether `reasoning_effort` is obeyed. The
    script raises `TooMuchWorkError` for a schema that asks for too much.
    """

    def script(request: GenerateRequest) -> ScriptedAnswer:
        message = read_last_message(request)
        given_seed = seed if request.seed is None else request.seed
        chance = Chance(given_seed, unsalted_hash(request))
        reasoning = _reasoning(request, message, chance) if reasons else []
        work = Work()
        calls = handed_on(request, message) or tool_calls(request, message, chance, work)
        rest = calls or [message_item(_text(request, message, chance, work))]
        return ScriptedAnswer((*reasoning, *rest))

    return script


def _text(request: GenerateRequest, message: LastMessage, chance: Chance, work: Work) -> str:
    schema = request.text_format.schema
    told = told_format(request, message.excerpt) if schema is None else None
    if told is not None:
        said = dialogue_answer(message) if message.results else None
        said = said or Prose(read_topic(told.prompt), chance).sentence()
        values = Values(told.prompt, said, work=work, results=message.results)
        return told.written(instance(told.schema, values, chance, work, "instructions"))
    if request.text_format.type == "text":
        return _plain_text(request, message, chance)
    answer = dialogue_answer(message)
    if schema is not None:
        values = Values(message.excerpt, answer, work=work, results=message.results)
        value = instance(schema, values, chance, work, "text.format.schema")
    else:
        value = {"answer": answer or Prose(read_topic(message.excerpt), chance).sentence()}
    return msgspec.json.encode(value).decode()


def _plain_text(request: GenerateRequest, message: LastMessage, chance: Chance) -> str:
    if _YES_OR_NO.search(message.excerpt):
        return chance.pick(("Yes.", "Yes.", "Yes.", "No."))
    if answer := about_subtasks(message, chance) or dialogue_answer(message):
        return answer
    prompt = _ATTACHMENT.sub("", message.excerpt)
    topic = read_topic(prompt)
    length = wanted_length(prompt).told(request.extras.verbosity)
    length = length.within(request.max_output_tokens)
    if wants_short_answers(message.instructions):
        topic, length = msgspec.structs.replace(topic, wants_code=False), Length(60)
    parts = []
    if "[image " in message.text:
        parts.append("I have your image, but a simulated engine does not look into pictures.")
    if fact := relevant_fact(message):
        parts.append(f"As you said, {fact.subject} is {fact.value}.")
    parts.append(_composed(prompt, topic, length, chance))
    return "\n\n".join(parts)


def _reasoning(request: GenerateRequest, message: LastMessage, chance: Chance) -> list[AnswerItem]:
    num_tokens = REASONING_TOKENS.get(request.reasoning_effort or "", 0)
    if len(message.text) < 80:
        num_tokens //= 2
    # At least half of what the request allows is left for the answer.
    num_tokens = min(num_tokens, request.max_output_tokens // 2)
    if not num_tokens:
        return []
    summary = ""
    if request.reasoning_summary not in (None, "none"):
        prose = Prose(read_topic(message.excerpt), chance)
        num_sentences = 4 if request.reasoning_summary == "detailed" else 2
        summary = f"**{prose.heading()}**\n\n{prose.paragraph(num_sentences)}"
    sealed = ""
    if request.extras.seals_reasoning:
        sealed = sealed_reasoning(unsalted_hash(request), num_tokens)
    return [AnswerItem(DeltaKind.REASONING, summary, num_tokens, sealed=sealed)]


def sealed_reasoning(prompt_hash: int, num_tokens: int) -> str:
    """Makes encrypted reasoning as opaque and as long as a real server's: 4 bytes a token.

    It weighs as much in the next turn's prompt; there is nothing in it to read.
    """
    digest = hashlib.shake_128(prompt_hash.to_bytes(8, "big")).digest(4 * num_tokens)
    return base64.b64encode(digest).decode()


def _composed(prompt: str, topic: Topic, length: Length, chance: Chance) -> str:
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
        parts.append(prose.listed(4 + length.num_tokens // 500, "-"))
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
        if num_tokens > 500 and chance.below(100) < 40:
            parts.append(f"## {prose.heading()}")
        if chance.below(100) < 30:
            parts.append(prose.listed(chance.between(3, 5), "-"))
        else:
            parts.append(prose.paragraph(chance.between(2, 5)))
        num_chars += len(parts[-1])
    return "\n\n".join(parts)


def _filled(text: str, number: int, prose: Prose, ends_of: Callable[[str], Sequence[int]]) -> str:
    """Cuts or fills a text to exactly so many units; `ends_of` returns where each unit ends."""
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
