"""A field of another type than ours spoils nothing where nobody needs it."""

import json
from typing import Any

import pytest

from backends.contract import DeltaKind, FinishReason, Message, TextPart
from backends.upstream.answer.chat_chunks import decode_chunk
from backends.upstream.answer.chat_reader import ChatReader
from backends.upstream.answer.errors import Failure, http_failure
from backends.upstream.answer.reader import decoded
from backends.upstream.answer.responses_events import decode_event, decode_sse_event, read_event
from backends.upstream.answer.responses_reader import ResponsesReader
from tests.unit.backends.upstream.upstream_requests import make_request

REQUEST = make_request(Message("user", (TextPart("Hi."),)))
ADDED, DONE = "response.output_item.added", "response.output_item.done"
TEXT = {"type": "response.output_text.delta", "item_id": "m", "output_index": 0, "delta": "One."}
MESSAGE = {"type": ADDED, "output_index": 0, "item": {"type": "message", "id": "m"}}
COMPLETED = {"type": "response.completed", "response": {"id": "r", "status": "completed"}}


def read(events: list[dict[str, Any]]) -> tuple[ResponsesReader, list[tuple[DeltaKind, str]]]:
    reader = ResponsesReader("up", REQUEST, frozenset())
    decode = [decode_sse_event(json.dumps(event).encode()) for event in events]
    return reader, [(delta.kind, delta.text) for delta in reader.read(decode, 0)]


@pytest.mark.parametrize(
    "event",
    [
        {"type": ADDED, "item": {"type": "mcp_call", "id": "h", "arguments": {"a": 1}}},
        {"type": DONE, "item": {"type": "computer_call", "id": "h", "input": [1], "name": 7}},
        {"type": DONE, "item": {"type": "shell_call_output", "id": 9, "content": {"a": []}}},
        {"type": DONE, "item": {"type": "web_search_call", "id": "h", "summary": "found"}},
        {"type": DONE, "item": {"type": ["?"], "phase": 1}},
        {"type": "response.audio.delta", "delta": {"data": "AAAA"}},
        {"type": "response.image.done", "text": {"alt": "a cat"}, "arguments": 7},
        {"type": "response.later", "item": "h", "response": "r", "error": [1]},
        {"type": "response.created", "response": {"id": 7, "text": {"format": {}}, "output": 1}},
        {"type": "response.in_progress", "response": "resp_1"},
        {"type": "response.later", "output_index": "0", "summary_index": None, "status": 1.5},
        {"type": "response.later", "code": 1.5, "message": {}, "headers": []},
    ],
    ids=lambda event: json.dumps(event)[9:60],
)
def test_what_we_do_not_use_may_have_any_shape(event: dict[str, Any]) -> None:
    reader, said = read([MESSAGE, event, TEXT, COMPLETED])
    assert said == [(DeltaKind.TEXT, "One.")]
    assert reader.finish is not None
    assert reader.finish.reason is FinishReason.STOP


CALL = {"type": "function_call", "id": "f", "call_id": "c", "name": "add"}
HALF = "response.reasoning_summary_text.delta"


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([TEXT | {"output_index": 0.0, "summary_index": None}], [(DeltaKind.TEXT, "One.")]),
        ([TEXT | {"item_id": 7}], [(DeltaKind.TEXT, "One.")]),
        (
            [{"type": HALF, "item_id": "r", "summary_index": None, "delta": "Hm."}],
            [(DeltaKind.REASONING, "Hm.")],
        ),
        (
            [{"type": DONE, "output_index": 0.0, "item": CALL | {"arguments": {"n": [1, 2.5]}}}],
            [(DeltaKind.FUNCTION_CALL, '{"n":[1,2.5]}')],
        ),
        (
            [{"type": DONE, "item": {"type": "message", "id": "m", "content": "All."}}],
            [(DeltaKind.TEXT, "All.")],
        ),
        (
            [
                {
                    "type": DONE,
                    "item": {"type": "message", "content": [{"text": "All.", "refusal": 0}, "?"]},
                }
            ],
            [(DeltaKind.TEXT, "All.")],
        ),
        (
            [{"type": DONE, "item": {"type": "reasoning", "summary": {}, "phase": 1}}, TEXT],
            [(DeltaKind.TEXT, "One.")],
        ),
    ],
)
def test_what_we_use_is_read_as_far_as_it_goes(
    events: list[dict[str, Any]], expected: list[tuple[DeltaKind, str]]
) -> None:
    reader, said = read([*events, COMPLETED])
    assert said == expected
    assert reader.finish is not None


def test_an_output_of_odd_items() -> None:
    output = ["?", {"type": "mcp_call", "arguments": {}}, CALL | {"arguments": {"n": 1}}]
    response = {"id": "r", "status": 7, "output": output, "incomplete_details": "none"}
    reader, said = read([{"type": "response.completed", "response": response}])
    assert said == [(DeltaKind.FUNCTION_CALL, '{"n":1}')]
    assert reader.finish is not None


@pytest.mark.parametrize(
    ("event", "code", "wait_us"),
    [
        ({"error": {"code": "invalid_value", "message": "no", "param": 7}}, "invalid_value", None),
        ({"error": {"code": 429.0}, "headers": {"retry-after": 2}}, "rate_limit_exceeded", 2e6),
        ({"error": {"code": 429, "headers": {"Retry-After-Ms": 50.5}}}, "rate_limit_exceeded", 5e4),
        ({"error": {"code": 1.5, "type": "invalid_request_error"}}, "invalid_prompt", None),
        ({"code": "rate_limit_exceeded", "message": [], "status": 429.0}, "rate_limit_exceeded", 0),
        ({"status": {}, "error": {"code": "slow_down", "type": 1}}, "server_is_overloaded", None),
    ],
)
def test_errors_of_odd_fields(event: dict[str, Any], code: str, wait_us: float | None) -> None:
    reader, _ = read([{"type": "error"} | event])
    failed, _ = read([{"type": "response.failed", "response": {"status": "failed"} | event}])
    assert reader.failure is not None
    assert reader.failure.error.code == code
    assert int(reader.failure.error.retry_after_us or 0) // 1_000 == int(wait_us or 0) // 1_000
    assert failed.failure is not None
    if "headers" not in event and "code" not in event:
        assert failed.failure.error.code == code


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ({"error": {"code": "invalid_value", "message": "no", "param": 7}}, "invalid_value", "no"),
        ({"error": {"message": "too much", "code": 4.5}}, "invalid_prompt", "too much"),
        ({"error": {"message": {"de": "nein"}}}, "invalid_prompt", "nein"),
        ({"error": 7, "message": "seven"}, "invalid_prompt", "seven"),
        ([{"error": {"message": "no JSON", "code": 400}}], "invalid_prompt", "no JSON"),  # Gemini
        (
            {"message": "short", "code": "context_length_exceeded"},
            "context_length_exceeded",
            "short",
        ),
        (
            {"message": {"detail": [{"loc": ["seed"]}]}},
            "invalid_prompt",
            '{"detail":[{"loc":["seed"]}]}',
        ),
        ({"detail": [{"loc": ["seed"]}]}, "invalid_prompt", '[{"loc":["seed"]}]'),
        ({"error": {"message": "prompt is too long: 9 > 8"}}, "context_length_exceeded", "9 > 8"),
        ([1, "two"], "invalid_prompt", "two"),
    ],
)
def test_bodies_of_odd_errors(body: Any, code: str, words: str) -> None:
    failure = http_failure("up", 400, json.dumps(body).encode(), {})
    assert failure.error.code == code
    assert words in failure.error.message


@pytest.mark.parametrize(
    "junk",
    [
        TEXT | {"delta": {"text": "One."}},
        {"type": ADDED, "item": "m"},
        {"type": DONE, "item": [CALL]},
        {"type": "response.completed", "response": "r"},
        {"type": None},
        {"item_id": "m"},
        ["response.created"],
    ],
)
def test_what_an_answer_needs_must_be_readable(junk: Any) -> None:
    messages = [json.dumps(event).encode() for event in (MESSAGE, junk, TEXT)]
    events, failure = decoded(read_event, messages, "up")
    assert len(events) == 1
    assert "the upstream sent no event" in str(failure)


def test_a_plain_event_is_read_as_ever() -> None:
    for event in (MESSAGE, TEXT, COMPLETED):
        message = json.dumps(event).encode()
        assert read_event(message) == decode_event(message)


# -- chat completions ------------------------------------------------------------------------


def chunk(delta: Any, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, **fields}]}


PARTS: list[Any] = [
    {"type": "text", "text": "x"},
    "y",
    {"type": "thinking", "thinking": [{"type": "text", "text": "Hm, "}]},
    {"type": "thinking", "thinking": "so", "closed": True},
    {"text": "z"},
]
CALLED = {"id": "c", "function": {"name": "add", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (chunk({"content": "x"}, index=None), [(DeltaKind.TEXT, "x")]),
        (chunk({"content": "x"}, index=0.0), [(DeltaKind.TEXT, "x")]),
        (chunk({"content": "x", "reasoning": {"steps": []}}), [(DeltaKind.TEXT, "x")]),
        (chunk({"content": "x"}, finish_reason=""), [(DeltaKind.TEXT, "x")]),
        (chunk({"reasoning": {"text": "x"}}), [(DeltaKind.REASONING, "x")]),
        (chunk({"reasoning_content": [{"content": "x"}, 7]}), [(DeltaKind.REASONING, "x")]),
        (chunk({"content": PARTS[:2]}), [(DeltaKind.TEXT, "xy")]),
        (chunk({"content": PARTS[0]}), [(DeltaKind.TEXT, "x")]),
        (chunk({"content": PARTS}), [(DeltaKind.REASONING, "Hm, so"), (DeltaKind.TEXT, "xyz")]),
        (chunk({"content": [{"type": "image_url", "image_url": {}}, None]}), []),
        (chunk({"tool_calls": [CALLED | {"index": None}]}), [(DeltaKind.FUNCTION_CALL, "{}")]),
        (
            chunk({"tool_calls": [CALLED | {"function": {"name": "f", "arguments": {"n": 1}}}]}),
            [(DeltaKind.FUNCTION_CALL, '{"n":1}')],
        ),
    ],
)
def test_chunks_of_odd_fields(event: Any, expected: list[tuple[DeltaKind, str]]) -> None:
    reader = ChatReader("up", REQUEST, frozenset())
    chunks = [event, chunk({}, finish_reason="stop")]
    deltas = reader.read([decode_chunk(json.dumps(each).encode()) for each in chunks], 0)
    assert [(delta.kind, delta.text) for delta in deltas] == expected
    assert reader.ended(0) is not None


@pytest.mark.parametrize(
    "junk",
    [
        chunk({"content": 7}),
        chunk({"refusal": {}}),
        chunk({"tool_calls": {}}),
        chunk({"tool_calls": [{"function": "add"}]}),
        {"error": 7},
    ],
)
def test_what_a_chunk_must_have(junk: Any) -> None:
    _, failure = decoded(decode_chunk, [json.dumps(junk).encode()], "up")
    assert "the upstream sent no event" in str(failure)


@pytest.mark.parametrize("odd", [{"message": "long", "param": 7}, {"message": ["long"]}])
def test_an_error_chunk_of_odd_fields(odd: dict[str, Any]) -> None:
    error = {"code": "context_length_exceeded"} | odd
    reader = ChatReader("up", REQUEST, frozenset())
    reader.read([decode_chunk(json.dumps({"error": error}).encode())], 0)
    assert isinstance(reader.failure, Failure)
    assert reader.failure.error.code == "context_length_exceeded"
