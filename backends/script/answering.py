"""The script that answers: it decides what a request calls for and puts the answer together.

In this order: sub-tasks to hand on, where that is offered; calls of the client's tools; JSON where
the format demands it; what the conversation itself tells; and else code or prose of a fitting
length. Where a deep engine was asked to think, reasoning comes first.
"""

import re

import msgspec

from backends.contract import DeltaKind, GenerateRequest
from backends.script.chance import Chance
from backends.script.compose import compose
from backends.script.delegating import about_subtasks, handed_on
from backends.script.dialogue import dialogue_answer, relevant_fact
from backends.script.last_message import LastMessage, read_last_message
from backends.script.length import Length, wanted_length, wants_short_answers
from backends.script.prose import Prose
from backends.script.schema import instance
from backends.script.scripted_answer import AnswerItem, Script, ScriptedAnswer, message_item
from backends.script.tool_calls import tool_calls
from backends.script.topic import read_topic
from backends.script.values import Values

# Reasoning tokens by effort, for a prompt of usual length; assumed. Lower efforts do not reason.
REASONING_TOKENS = {"medium": 120, "high": 400, "xhigh": 900, "max": 1_600}

_ATTACHMENT = re.compile(r"\[(?:image|file) [^\]\n]{0,420}\]")


def answer_script(seed: int, *, reasons: bool) -> Script:
    """Make a script that answers; the same request always gets the same answer.

    Args:
        seed: Used where a request brings none.
        reasons: Whether `reasoning_effort` is obeyed.
    """

    def script(request: GenerateRequest) -> ScriptedAnswer:
        message = read_last_message(request)
        prompt_hash = request.prefix[-1][0] if request.prefix else 0
        chance = Chance(seed if request.seed is None else request.seed, prompt_hash)
        reasoning = _reasoning(request, message, chance) if reasons else []
        calls = handed_on(request, message) or tool_calls(request, message, chance)
        rest = calls or [message_item(_text(request, message, chance))]
        return ScriptedAnswer((*reasoning, *rest))

    return script


def _text(request: GenerateRequest, message: LastMessage, chance: Chance) -> str:
    if request.text_format.type == "text":
        return _plain_text(request, message, chance)
    answer = dialogue_answer(message)
    value = {"answer": answer}
    if request.text_format.schema is not None:
        values = Values(message.excerpt, answer)
        value = instance(request.text_format.schema, values, chance)
    elif not answer:
        value = {"answer": Prose(read_topic(message.excerpt), chance).sentence()}
    return msgspec.json.encode(value).decode()


def _plain_text(request: GenerateRequest, message: LastMessage, chance: Chance) -> str:
    answer = about_subtasks(message, chance) or dialogue_answer(message)
    if answer:
        return answer
    prompt = _ATTACHMENT.sub("", message.excerpt)
    topic = read_topic(prompt)
    length = wanted_length(prompt).within(request.max_output_tokens)
    if wants_short_answers(message.instructions):
        topic, length = msgspec.structs.replace(topic, wants_code=False), Length(60)
    parts = []
    if "[image " in message.text:
        parts.append("I have your image, but a simulated engine does not look into pictures.")
    fact = relevant_fact(message)
    if fact is not None:
        parts.append(f"As you said, {fact.subject} is {fact.value}.")
    parts.append(compose(prompt, topic, length, chance))
    return "\n\n".join(parts)


def _reasoning(request: GenerateRequest, message: LastMessage, chance: Chance) -> list[AnswerItem]:
    """Make a reasoning item of the effort asked for, or none."""
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
    return [AnswerItem(DeltaKind.REASONING, summary, num_tokens)]
