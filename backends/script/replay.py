"""Answers from a recorded transcript, or echoes the last user message.

A recording is JSON Lines, one answer each:

    {"ask": "What is a heron?", "text": "A long-legged bird."}
    {"text": "Said when no prompt matches, one after the other."}
    {"ask": "weather?", "reasoning": "Needs a look.", "calls": [
        {"name": "get_weather", "arguments": "{\\"city\\": \\"Paris\\"}"}]}

An answer with an `ask` is given whenever the last user message equals it but for outer spaces;
several with the same take turns, by how often the conversation has said it. All others are given in
order, by the number of user messages so far, and start over when they run out. So the same
conversation always gets the same answers, from any process.
"""

import re

import msgspec

from backends.contract import DeltaKind, GenerateRequest
from backends.script.last_message import LastMessage, read_last_message, user_texts
from backends.script.scripted_answer import (
    AnswerItem,
    Script,
    ScriptedAnswer,
    call_id,
    call_item,
    message_item,
)
from backends.tokenizer import count

MAX_TOKENS = 100_000  # an echo is repeated to at most so many

_LENGTH = re.compile(r"(?i)\b(\d{1,7})\s+tokens?\b")


class RecordedCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Is a function call of a recorded answer."""

    name: str
    arguments: str


class RecordedAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Is one line of a recording."""

    prompt: str | None = msgspec.field(default=None, name="ask")
    text: str = ""
    reasoning: str = ""
    calls: tuple[RecordedCall, ...] = ()


def echo_script(request: GenerateRequest) -> ScriptedAnswer:
    """Repeats the last user message; if it says "N tokens", on new lines up to that many."""
    text = read_last_message(request).text or "(nothing to echo)"
    if wanted := _LENGTH.search(text):
        num_tokens = min(int(wanted[1]), MAX_TOKENS)
        line = text + "\n"
        text = (line * -(-num_tokens // count(line, num_tokens))).rstrip("\n")
    return ScriptedAnswer((message_item(text),))


def replay_script(recording: bytes) -> Script:
    """Makes a script that replays a recording.

    Raises ValueError for a line that is no recorded answer, or no lines.
    """
    by_prompt: dict[str | None, list[RecordedAnswer]] = {}
    for recorded in _decode(recording):
        prompt = None if recorded.prompt is None else recorded.prompt.strip()
        by_prompt.setdefault(prompt, []).append(recorded)
    in_order = by_prompt.pop(None, [])

    def script(request: GenerateRequest) -> ScriptedAnswer:
        message = read_last_message(request)
        prompt = message.text.strip()
        before = [text.strip() for text in user_texts(message.context)]
        if same := by_prompt.get(prompt):
            return _answer(request, message, same[before.count(prompt) % len(same)])
        if in_order:
            return _answer(request, message, in_order[len(before) % len(in_order)])
        return ScriptedAnswer((message_item("The recording has no answer to this."),))

    return script


def _decode(recording: bytes) -> list[RecordedAnswer]:
    decoder = msgspec.json.Decoder(RecordedAnswer)
    answers = []
    for number, line in enumerate(recording.splitlines(), 1):
        if not line.strip():
            continue
        try:
            recorded = decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"recording, line {number}: {error}") from None
        if not (recorded.text or recorded.reasoning or recorded.calls):
            raise ValueError(f"recording, line {number}: neither text, reasoning nor calls")
        answers.append(recorded)
    if not answers:
        raise ValueError("recording: no answers")
    return answers


def _answer(
    request: GenerateRequest, message: LastMessage, recorded: RecordedAnswer
) -> ScriptedAnswer:
    items = [AnswerItem(DeltaKind.REASONING, recorded.reasoning)] if recorded.reasoning else []
    items += [message_item(recorded.text)] if recorded.text else []
    # Calls already made and answered are not repeated within the turn.
    for index, call in enumerate(recorded.calls[message.num_calls :]):
        made_id = call_id(request.id, index)
        items.append(call_item(DeltaKind.FUNCTION_CALL, made_id, call.name, call.arguments))
    return ScriptedAnswer(tuple(items) or (message_item("Done."),))
