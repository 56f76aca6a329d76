"""Delegates sub-tasks of a simulated answer, and reports on those running or done."""

import re

import msgspec

from backends.contract import DeltaKind, GenerateRequest
from backends.delegation import (
    ADVISE_TOOL,
    CANCELLED,
    DELEGATE_TOOL,
    FAILED,
    NOT_BEGUN,
    RUNNING,
    SAID_NOTHING,
)
from backends.script.chance import Chance
from backends.script.last_message import LastMessage
from backends.script.prose import Prose
from backends.script.scripted_answer import AnswerItem, call_id, call_item, message_item
from backends.script.topic import read_topic

MAX_SUBTASKS = 3  # of one answer
MAX_QUOTE_CHARS = 400  # of a sub-task's output

_SENTENCE_END = re.compile(r"(?<=[.!?;])\s+|\n+")
_DEEP = re.compile(
    r"(?i)\b(?:prove|derive|design|redesign|refactor|audit|review|analy[sz]e|investigate|diagnose"
    r"|optimi[sz]e|migrate|threat[- ]model|find (?:the|a|any) (?:race|deadlock|leak|bug)"
    r"|in depth|step by step|delegate|hand (?:this|that|it) (?:on|over))\b"
)
_UNDONE = (CANCELLED, FAILED, NOT_BEGUN, SAID_NOTHING)
MIN_WORDS = 4  # fewer words are not a task by themselves


def handed_on(request: GenerateRequest, message: LastMessage) -> list[AnswerItem]:
    """Explains and makes the calls, if the tool is offered and a part is clearly deep."""
    offered = [name for name in (DELEGATE_TOOL, ADVISE_TOOL) if _may_call(request, name)]
    if not offered or message.num_calls:
        return []
    sentences = (sentence.strip() for sentence in _SENTENCE_END.split(message.excerpt))
    deep = [s for s in sentences if _DEEP.search(s) and len(s.split()) >= MIN_WORDS]
    if not deep:
        return []
    if ADVISE_TOOL in offered:
        question = msgspec.json.encode({"question": deep[0]}).decode()
        return [call_item(DeltaKind.FUNCTION_CALL, call_id(request.id, 0), ADVISE_TOOL, question)]
    tasks = deep[:MAX_SUBTASKS]
    noun = "one part of this needs" if len(tasks) == 1 else f"{len(tasks)} parts of this need"
    calls = []
    for index, task in enumerate(tasks):
        made_id, arguments = call_id(request.id, index), msgspec.json.encode({"task": task})
        calls.append(call_item(DeltaKind.FUNCTION_CALL, made_id, DELEGATE_TOOL, arguments.decode()))
    return [message_item(f"I see that {noun} careful work, so I hand it on."), *calls]


def _may_call(request: GenerateRequest, name: str) -> bool:
    choice = request.tool_choice
    offered = any(tool.name == name for tool in request.tools)
    return offered and choice.mode == "auto" and (not choice.names or name in choice.names)


def about_subtasks(message: LastMessage, chance: Chance) -> str | None:
    """Reports on sub-tasks that run or have ended, or follows advice; None if there is neither."""
    advice = [result.output for result in message.results if result.name == ADVISE_TOOL]
    if advice:
        prose = Prose(read_topic(message.excerpt), chance)
        return f"By the plan ({_quote(advice[-1])}):\n\n{prose.paragraph(4)}"
    results = [result for result in message.results if result.name == DELEGATE_TOOL]
    if not results:
        return None
    prose = Prose(read_topic(message.excerpt), chance)
    if any(f'"status":"{RUNNING}"' in result.output for result in results):
        return f"While that is worked on: {prose.paragraph(2)}"
    gave = "\n\n".join(f"> {_quote(result.output)}" for result in results)
    if all(result.output.startswith(_UNDONE) for result in results):
        return f"That part was not done:\n\n{gave}\n\nWithout it, in short: {prose.paragraph(2)}"
    return f"That part has come back:\n\n{gave}\n\nSo, in short: {prose.paragraph(2)}"


def _quote(text: str) -> str:
    """Quotes the first paragraph with words in it, on one line."""
    first = next((p for p in text.split("\n\n") if len(p) > 40), text)
    line = " ".join(first.split())
    return line if len(line) <= MAX_QUOTE_CHARS else f"{line[:MAX_QUOTE_CHARS]}…"
