"""The script that answers from a recorded transcript.

A recording is JSON Lines, one answer each:

    {"ask": "What is a heron?", "text": "A long-legged bird."}
    {"text": "Said when no ask matches, one after the other."}
    {"ask": "weather?", "reasoning": "Needs a look.", "calls": [
        {"name": "get_weather", "arguments": "{\\"city\\": \\"Paris\\"}"}]}

An answer with an `ask` is given whenever the last user message equals it but for outer spaces;
several with the same ask take turns, by how often the conversation has asked. All others are given
in order, by the number of user messages so far, and start over when they run out. So the same
conversation always gets the same answers, from any process.
"""

import msgspec

from backends.contract import DeltaKind, GenerateRequest
from backends.script.ask import Ask, read_ask, user_texts
from backends.script.playback import Answer, AnswerItem, Script, call_id, call_item, message_item


class RecordedCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A function the recorded answer called."""

    name: str
    arguments: str


class RecordedAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of a recording."""

    ask: str | None = None
    text: str = ""
    reasoning: str = ""
    calls: tuple[RecordedCall, ...] = ()


def replay_script(recording: bytes) -> Script:
    """A script that gives a recording's answers.

    Raises:
        ValueError: A line is not a recorded answer, says nothing, or there is none.
    """
    by_ask: dict[str, list[RecordedAnswer]] = {}
    in_order: list[RecordedAnswer] = []
    for recorded in _decode(recording):
        if recorded.ask is None:
            in_order.append(recorded)
        else:
            by_ask.setdefault(recorded.ask.strip(), []).append(recorded)

    def script(request: GenerateRequest) -> Answer:
        ask = read_ask(request)
        before = [text.strip() for text in user_texts(ask.context)]
        same = by_ask.get(ask.text.strip())
        if same:
            recorded = same[before.count(ask.text.strip()) % len(same)]
        elif in_order:
            recorded = in_order[len(before) % len(in_order)]
        else:
            return Answer((message_item("The recording has no answer to this."),))
        return _answer(request, ask, recorded)

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


def _answer(request: GenerateRequest, ask: Ask, recorded: RecordedAnswer) -> Answer:
    items: list[AnswerItem] = []
    if recorded.reasoning:
        items.append(AnswerItem(DeltaKind.REASONING, recorded.reasoning))
    if recorded.text:
        items.append(message_item(recorded.text))
    # Calls once made and answered are not made again within the turn.
    for index, call in enumerate(recorded.calls[ask.num_calls :]):
        made = call_id(request.id, index)
        items.append(call_item(DeltaKind.FUNCTION_CALL, made, call.name, call.arguments))
    return Answer(tuple(items) or (message_item("Done."),))
