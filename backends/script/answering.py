"""The script that answers: decides what a request calls for and puts the answer together.

In this order: sub-tasks to hand on, where that is offered; calls of the client's tools; JSON where
the format demands it; what the conversation itself tells; small talk and sums; and else code or
prose of a fitting length. Where a deep engine was asked to think, reasoning comes first.
"""

import re

import msgspec

from backends.contract import DeltaKind, GenerateRequest
from backends.script.ask import Ask, read_ask
from backends.script.chance import Chance
from backends.script.compose import compose
from backends.script.delegating import about_subtasks, handed_on
from backends.script.dialogue import dialogue_answer, relevant_fact
from backends.script.length import Length, wanted_length, wants_short_answers
from backends.script.playback import Answer, AnswerItem, Script, message_item
from backends.script.prose import Prose
from backends.script.schema import instance
from backends.script.small_talk import small_talk
from backends.script.tool_calls import tool_calls
from backends.script.topic import read_topic
from backends.script.values import Values

# Reasoning tokens by effort, for an ask of usual length; assumed. Lower efforts do not reason.
REASONING_TOKENS = {"medium": 120, "high": 400, "xhigh": 900, "max": 1_600}

_ATTACHMENT = re.compile(r"\[(?:image|file) [^\]\n]{0,420}\]")


def answer_script(seed: int, *, reasons: bool) -> Script:
    """A script that answers; the same request always gets the same answer.

    Args:
        seed: Used where a request brings none.
        reasons: Whether `reasoning_effort` is obeyed.
    """

    def script(request: GenerateRequest) -> Answer:
        ask = read_ask(request)
        prompt_hash = request.prefix[-1][0] if request.prefix else 0
        chance = Chance(seed if request.seed is None else request.seed, prompt_hash)
        items = _reasoning(request, ask, chance) if reasons else []
        calls = handed_on(request, ask) or tool_calls(request, ask, chance)
        return Answer((*items, *(calls or (message_item(_text(request, ask, chance)),))))

    return script


def _text(request: GenerateRequest, ask: Ask, chance: Chance) -> str:
    if request.text_format.type == "text":
        return _plain_text(request, ask, chance)
    schema = request.text_format.schema
    if schema is None:
        answer = dialogue_answer(request, ask) or Prose(read_topic(ask.gist), chance).sentence()
        return msgspec.json.encode({"answer": answer}).decode()
    said = dialogue_answer(request, ask)
    return msgspec.json.encode(instance(schema, Values(ask.gist, answer=said), chance)).decode()


def _plain_text(request: GenerateRequest, ask: Ask, chance: Chance) -> str:
    said = (
        about_subtasks(ask, chance) or dialogue_answer(request, ask) or small_talk(ask.gist, chance)
    )
    if said:
        return said
    text = _ATTACHMENT.sub("", ask.gist)
    topic = read_topic(text)
    length = wanted_length(text).within(request.max_output_tokens)
    if wants_short_answers(request.instructions):
        topic, length = msgspec.structs.replace(topic, wants_code=False), Length(60)
    parts = []
    if "[image " in ask.text:
        parts.append("I have your image, but a simulated engine does not look into pictures.")
    fact = relevant_fact(request, ask)
    if fact is not None:
        parts.append(f"As you said, {fact.subject} is {fact.value}.")
    parts.append(compose(text, topic, length, chance))
    return "\n\n".join(parts)


def _reasoning(request: GenerateRequest, ask: Ask, chance: Chance) -> list[AnswerItem]:
    """A reasoning item of the effort asked for, or none."""
    num_tokens = REASONING_TOKENS.get(request.reasoning_effort or "", 0)
    if not num_tokens:
        return []
    if len(ask.text) < 80:
        num_tokens //= 2
    # At least half of what the request allows is left for the answer.
    num_tokens = min(num_tokens, request.max_output_tokens // 2)
    summary = ""
    if request.reasoning_summary not in (None, "none"):
        prose = Prose(read_topic(ask.gist), chance)
        detail = 4 if request.reasoning_summary == "detailed" else 2
        summary = f"**{prose.heading()}**\n\n{prose.paragraph(detail)}"
    return [AnswerItem(DeltaKind.REASONING, summary, num_tokens)] if num_tokens else []
