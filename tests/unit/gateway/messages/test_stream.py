"""Tests messages events and whole messages, judged by the types of Anthropic's SDK."""

import json
import random
from typing import Any

import msgspec
import pytest
from anthropic.lib.streaming._messages import accumulate_event
from anthropic.types import Message as WireMessage
from anthropic.types import RawMessageStreamEvent
from pydantic import TypeAdapter

from backends.contract import Delta, DeltaKind, FunctionCall, Item, Message, TextPart, Usage
from gateway.messages.request import MessagesBody
from gateway.messages.stream import MessageStream
from gateway.messages.thinking import sealed_in
from gateway.transport.flush_timer import FlushTimer
from gateway.transport.outbox import Outbox
from gateway.wire.errors import ProtocolError
from gateway.wire.events import decode
from gateway.wire.response import Ending
from gateway.wire.response_json import ResponseError
from tests.unit.gateway.doubles import ROUTING, call, parsed_create, text

USAGE = Usage(7, 3, 5, 2)
DONE = Ending(status="completed", usage=USAGE)
BODY = {"model": "claude-x", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
ADAPTIVE = {"thinking": {"type": "adaptive"}}
OMITTED = {"thinking": {"type": "adaptive", "display": "omitted"}}

_events: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)


class Sent:
    """Keeps what a client gets, as records."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def send(self, frame: bytes) -> None:
        name, data = frame.decode().removesuffix("\n\n").split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        self.events.append(event)

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events]


def answer(
    deltas: list[tuple[Delta, str | None]],
    ending: Ending = DONE,
    key_error: ProtocolError | None = None,
    **fields: Any,
) -> tuple[MessageStream, Sent]:
    body = decode(json.dumps(BODY | fields).encode(), MessagesBody)
    sent = Sent()
    stream = MessageStream(parsed_create("resp_1"), body, sent.send)
    stream.open(100, "wafer-model", ROUTING)
    for delta, phase in deltas:
        stream.push(delta, phase)
    stream.fault = key_error
    stream.close_items(ending)
    assert stream.finish(ending, 101, ROUTING) == stream.body
    stream.send_terminal()
    assert stream.ended
    return stream, sent


def judged(sent: Sent) -> dict[str, Any]:
    """Returns the message that the SDK puts together; every event is of its types, and in place."""
    events = [event for event in sent.events if event["type"] != "ping"]
    message: Any = None
    buffers: dict[int, bytes] = {}
    is_open, num_blocks = False, 0
    for event in events:
        model = _events.validate_python(event, strict=True)
        message = accumulate_event(event=model, current_snapshot=message, json_bufs=buffers)
        if event["type"] == "content_block_start":
            assert not is_open
            assert event["index"] == num_blocks
            is_open, num_blocks = True, num_blocks + 1
        elif event["type"].startswith("content_block"):
            assert is_open
            assert event["index"] == num_blocks - 1
            is_open = event["type"] != "content_block_stop"
    assert [event["type"] for event in events[-2:]] == ["message_delta", "message_stop"]
    assert not is_open
    found: dict[str, Any] = message.model_dump(mode="json", exclude_none=True, warnings=False)
    return found


THOUGHT = (Delta(0, DeltaKind.REASONING, "hm", 1, 0), None)
SEALED = (Delta(0, DeltaKind.REASONING, "", 1, 0, sealed="lwr1.x.y"), None)
COMMENT = (text("So far."), "commentary")
CALL = (call('{"a":1}', 1), None)
CUT = (call('{"a":', 1), None)
DEEP = (call('{"a":' + "[" * 10_000, 1), None)
ANSWER = (text("It is.", 2), "final_answer")
REFUSED = (msgspec.structs.replace(text("No.", 3), refuses=True), None)


def without_signature(content: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in block.items() if k != "signature"} for block in content]


SHOWN = {"type": "thinking", "thinking": "hm"}
TEXT = {"type": "text", "text": "It is."}
USE = {"type": "tool_use", "id": "call_1", "name": "look", "input": {"a": 1}}

# deltas, fields, content, stop reason
ANSWERS: list[tuple[list[tuple[Delta, str | None]], dict[str, Any], list[dict[str, Any]], str]] = [
    ([], {}, [], "end_turn"),
    ([ANSWER], {}, [TEXT], "end_turn"),
    ([THOUGHT, ANSWER], {}, [TEXT], "end_turn"),
    ([THOUGHT, ANSWER], ADAPTIVE, [SHOWN, TEXT], "end_turn"),
    ([THOUGHT, ANSWER], OMITTED, [SHOWN | {"thinking": ""}, TEXT], "end_turn"),
    ([SEALED, ANSWER], ADAPTIVE, [SHOWN | {"thinking": ""}, TEXT], "end_turn"),
    ([COMMENT, ANSWER], ADAPTIVE, [SHOWN | {"thinking": "So far."}, TEXT], "end_turn"),
    ([COMMENT, ANSWER], {}, [TEXT], "end_turn"),
    ([COMMENT], {}, [], "end_turn"),
    ([CALL], {}, [USE], "tool_use"),
    (
        [ANSWER, (call("", 3), None), (call('{"b":2}', 4, call_id="functions.g:1"), None)],
        {},
        [
            TEXT,
            USE | {"input": {}},
            USE | {"id": "toolu_x66756e6374696f6e732e673a31", "input": {"b": 2}},
        ],
        "tool_use",
    ),
]


@pytest.mark.parametrize(("deltas", "fields", "content", "reason"), ANSWERS)
def test_events_make_the_message_that_comes_whole(
    deltas: list[tuple[Delta, str | None]],
    fields: dict[str, Any],
    content: list[dict[str, Any]],
    reason: str,
) -> None:
    stream, sent = answer(deltas, **fields)
    whole = json.loads(stream.body)
    WireMessage.model_validate(whole, strict=True)
    assert sent.types[:2] == ["message_start", "ping"]
    found = judged(sent)
    for message in (found, whole):
        seen = [{k: v for k, v in b.items() if v is not None} for b in message["content"]]
        assert without_signature(seen) == content
        assert (message["stop_reason"], message["role"]) == (reason, "assistant")
        assert (message["id"], message["model"]) == ("msg_1", "claude-x")
        for name, tokens in {"input_tokens": 4, "cache_read_input_tokens": 3}.items():
            assert message["usage"][name] == tokens
        assert message["usage"]["output_tokens"] == 5
    signed = [block["signature"] for block in found["content"] if block["type"] == "thinking"]
    assert all(signed)


def test_what_an_upstream_sealed_comes_back() -> None:
    _, sent = answer([THOUGHT, SEALED, ANSWER], **ADAPTIVE)
    block = judged(sent)["content"][0]
    assert sealed_in(block["thinking"], block["signature"]) == "lwr1.x.y"


ENDINGS = [
    ({"status": "incomplete", "reason": "max_output_tokens"}, [ANSWER], "max_tokens", None),
    ({"status": "incomplete", "reason": "max_output_tokens"}, [CUT], "max_tokens", None),
    ({"status": "incomplete", "reason": "max_output_tokens"}, [DEEP], "max_tokens", None),
    ({"status": "incomplete", "reason": "content_filter"}, [ANSWER], "refusal", None),
    ({"status": "completed", "stop_sequence": "END"}, [ANSWER], "stop_sequence", "END"),
    ({"status": "completed", "stop_sequence": "END"}, [CALL], "tool_use", None),
    ({"status": "completed"}, [REFUSED], "refusal", None),
    ({"status": "completed"}, [ANSWER, REFUSED], "refusal", None),
    ({"status": "completed"}, [REFUSED, CALL], "tool_use", None),
]


@pytest.mark.parametrize(("fields", "deltas", "reason", "stop_sequence"), ENDINGS)
def test_why_it_stopped(
    fields: dict[str, Any],
    deltas: list[tuple[Delta, str | None]],
    reason: str,
    stop_sequence: str | None,
) -> None:
    stream, sent = answer(deltas, Ending(usage=USAGE, **fields))
    assert stream.fault is None
    last = sent.events[-2]["delta"]
    whole = json.loads(stream.body)
    WireMessage.model_validate(whole, strict=True)
    for found in (last, whole):
        assert (found["stop_reason"], found["stop_sequence"]) == (reason, stop_sequence)
    assert ("stop_details" in last) == (reason == "refusal")
    _events.validate_python(sent.events[-2], strict=True)


@pytest.mark.parametrize(
    ("ending", "kind"),
    [
        (
            Ending(status="failed", usage=USAGE, error=ResponseError("server_error", "It broke.")),
            "api_error",
        ),
        (
            Ending(
                status="failed", usage=USAGE, error=ResponseError("server_is_overloaded", "Full.")
            ),
            "overloaded_error",
        ),
        (Ending(status="incomplete", reason="cancelled", usage=USAGE), "invalid_request_error"),
    ],
)
def test_a_failure_is_an_event_and_no_end(ending: Ending, kind: str) -> None:
    stream, sent = answer([ANSWER], ending)
    assert sent.events[-1]["type"] == "error"
    assert sent.events[-1]["error"]["type"] == kind
    assert "message_stop" not in sent.types
    assert stream.fault is not None


@pytest.mark.parametrize(
    ("ending", "last"),
    [
        (Ending(status="incomplete", reason="cancelled", usage=USAGE), "authentication_error"),
        (Ending(status="incomplete", reason="max_output_tokens", usage=USAGE), None),
        (DONE, None),
    ],
)
def test_a_key_that_ended_is_told_unless_the_message_was_done(
    ending: Ending, last: str | None
) -> None:
    stream, sent = answer([ANSWER], ending, key_error=ProtocolError("invalid_api_key", "revoked"))
    error = sent.events[-1].get("error", {})
    assert error.get("type") == last
    assert (stream.fault is None) == (last is None)


def test_a_silent_answer_pings_and_says_how_long_the_prompt_is() -> None:
    body = decode(json.dumps(BODY).encode(), MessagesBody)
    sent = Sent()
    stream = MessageStream(parsed_create("resp_1"), body, sent.send)
    stream.heartbeat()
    assert not sent.events
    stream.open(100, "wafer-model", ROUTING)
    stream.heartbeat()
    assert sent.types == ["message_start", "ping", "ping"]
    assert sent.events[0]["message"]["usage"]["input_tokens"] == ROUTING.context.used_tokens


async def test_what_gathers_goes_out_as_one_delta() -> None:
    body = decode(json.dumps(BODY | ADAPTIVE).encode(), MessagesBody)
    sent = Sent()
    outbox = Outbox(FlushTimer(10.0))
    stream = MessageStream(parsed_create("resp_1"), body, sent.send, outbox.mark)
    stream.open(100, "wafer-model", ROUTING)
    for words in ("One ", "two ", "three ", "four."):
        stream.push(text(words), None)
    assert stream.gathered_bytes() == len("two three four.")
    assert stream.words() == ("One two three four.", False)
    stream.flush()
    stream.end_item()
    texts = [e["delta"]["text"] for e in sent.events if e["type"] == "content_block_delta"]
    assert texts == ["One ", "two three four."]


OUTPUTS: list[Item] = [
    Message("assistant", (TextPart("It is."),)),
    FunctionCall("call_1", "look", '{"a":1}'),
]


def test_the_next_turn_finds_what_was_said() -> None:
    stream, _ = answer([THOUGHT, (text("It is.", 1), None), (call('{"a":1}', 2), None)], **ADAPTIVE)
    assert list(stream.output) == OUTPUTS
    assert stream.words() == ("It is.", True)


@pytest.mark.parametrize("seed", range(200))
def test_any_stream_keeps_the_grammar(seed: int) -> None:
    chance = random.Random(seed)
    deltas: list[tuple[Delta, str | None]] = []
    for index in range(chance.randrange(7)):
        kind = chance.choice(list(DeltaKind)[:3])
        pieces = [chance.choice(["", "a", "é", "🙂\n", '"\\', " "]) for _ in range(4)]
        if kind is DeltaKind.FUNCTION_CALL:
            whole = json.dumps({"x": "".join(pieces)}, ensure_ascii=False)
            cut = chance.randrange(len(whole))
            pieces = [whole[:cut], "", whole[cut:]]
        phase = chance.choice([None, "commentary", "final_answer"])
        for piece in pieces:
            name = "look" if kind is DeltaKind.FUNCTION_CALL else ""
            deltas.append((Delta(index, kind, piece, 1, 0, name and f"call_{index}", name), phase))
    stream, sent = answer(deltas, **chance.choice([{}, ADAPTIVE, OMITTED]))
    whole = json.loads(stream.body)
    assert judged(sent)["content"] == [
        {k: v for k, v in block.items() if v is not None} for block in whole["content"]
    ]
