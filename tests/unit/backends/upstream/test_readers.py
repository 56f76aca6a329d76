"""Tests what upstreams' events mean, row by row: deltas, ends, failures."""

import json
from typing import Any

import pytest

from backends.contract import (
    CustomTool,
    Delta,
    DeltaKind,
    FinishReason,
    FunctionTool,
    Message,
    TextPart,
    Usage,
)
from backends.sealed_reasoning import unwrap
from backends.upstream.answer.chat_chunks import decode_chunk
from backends.upstream.answer.chat_reader import ChatReader
from backends.upstream.answer.errors import Failure
from backends.upstream.answer.reader import decoded
from backends.upstream.answer.responses_events import decode_sse_event, read_event
from backends.upstream.answer.responses_reader import ResponsesReader
from tests.unit.backends.upstream.upstream_requests import make_request

K = DeltaKind
Piece = tuple[int, DeltaKind, str, str, str]  # index, kind, text, call_id, name

RESPONSE = {"id": "resp_up", "status": "completed"}
COMPLETED = {"type": "response.completed", "response": RESPONSE}


def added(index: int, kind: str, item_id: str, **fields: Any) -> dict[str, Any]:
    item = {"type": kind, "id": item_id, **fields}
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def done(index: int, kind: str, item_id: str, **fields: Any) -> dict[str, Any]:
    return added(index, kind, item_id, **fields) | {"type": "response.output_item.done"}


def piece(event: str, item_id: str, text: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{event}.delta", "item_id": item_id, "delta": text, **fields}


CALL = {"call_id": "call_1", "name": "add"}
SQL = {"call_id": "call_2", "name": "sql"}

RESPONSES: dict[str, tuple[list[dict[str, Any]], list[Piece]]] = {
    "text": (
        [
            {"type": "response.created", "response": RESPONSE},
            added(0, "message", "m"),
            piece("output_text", "m", "One, ", output_index=0),
            piece("output_text", "m", "two.", output_index=0),
            done(0, "message", "m", content=[{"type": "output_text", "text": "One, two."}]),
        ],
        [(0, K.TEXT, "One, ", "", ""), (0, K.TEXT, "two.", "", "")],
    ),
    "an event of an empty type means nothing": (
        [{"type": "", "delta": "?"}, added(0, "message", "m"), piece("output_text", "m", "One.")],
        [(0, K.TEXT, "One.", "", "")],
    ),
    "a refusal is text, marked as one": (
        [added(0, "message", "m"), piece("refusal", "m", "No.")],
        [(0, K.TEXT, "No.", "", "")],
    ),
    "text in the finished item only": (
        [
            added(0, "message", "m"),
            done(0, "message", "m", content=[{"type": "output_text", "text": "All."}]),
        ],
        [(0, K.TEXT, "All.", "", "")],
    ),
    "no item before its text": (
        [piece("output_text", "m", "Late.", output_index=0)],
        [(0, K.TEXT, "Late.", "", "")],
    ),
    "no places, only ids": (
        [
            {"type": "response.output_item.added", "item": {"type": "message", "id": "m"}},
            piece("output_text", "m", "Hi."),
        ],
        [(0, K.TEXT, "Hi.", "", "")],
    ),
    "no ids, only places": (
        [
            {"type": "response.output_item.added", "output_index": 0, "item": {"type": "message"}},
            {"type": "response.output_text.delta", "output_index": 0, "delta": "Hi."},
        ],
        [(0, K.TEXT, "Hi.", "", "")],
    ),
    "reasoning, then text": (
        [
            added(0, "reasoning", "r"),
            piece("reasoning_summary_text", "r", "First.", summary_index=0),
            piece("reasoning_summary_text", "r", "Then.", summary_index=1),
            done(0, "reasoning", "r", summary=[{"text": "First."}, {"text": "Then."}]),
            added(1, "message", "m"),
            piece("output_text", "m", "So."),
        ],
        [
            (0, K.REASONING, "First.", "", ""),
            (0, K.REASONING, "\n\nThen.", "", ""),
            (1, K.TEXT, "So.", "", ""),
        ],
    ),
    "raw reasoning": (
        [added(0, "reasoning", "r"), piece("reasoning_text", "r", "Hm.")],
        [(0, K.REASONING, "Hm.", "", "")],
    ),
    "silent reasoning leaves no item": (
        [
            added(0, "reasoning", "r"),
            done(0, "reasoning", "r", summary=[]),
            added(1, "message", "m"),
            piece("output_text", "m", "So."),
        ],
        [(0, K.TEXT, "So.", "", "")],
    ),
    "a call": (
        [
            added(0, "function_call", "f", **CALL, arguments=""),
            piece("function_call_arguments", "f", '{"n":'),
            piece("function_call_arguments", "f", "1}"),
            done(0, "function_call", "f", **CALL, arguments='{"n":1}'),
        ],
        [
            (0, K.FUNCTION_CALL, "", "call_1", "add"),
            (0, K.FUNCTION_CALL, '{"n":', "call_1", "add"),
            (0, K.FUNCTION_CALL, "1}", "call_1", "add"),
        ],
    ),
    "calls at once wait for each other": (
        [
            added(0, "function_call", "f", **CALL),
            added(1, "function_call", "g", call_id="call_9", name="sub"),
            piece("function_call_arguments", "g", "{}"),
            piece("function_call_arguments", "f", "{}"),
            done(1, "function_call", "g", call_id="call_9", name="sub", arguments="{}"),
            done(0, "function_call", "f", **CALL, arguments="{}"),
        ],
        [
            (0, K.FUNCTION_CALL, "", "call_1", "add"),
            (0, K.FUNCTION_CALL, "{}", "call_1", "add"),
            (1, K.FUNCTION_CALL, "{}", "call_9", "sub"),
        ],
    ),
    "a custom call": (
        [
            added(0, "custom_tool_call", "c", call_id="call_3", name="shell", input=""),
            piece("custom_tool_call_input", "c", "ls"),
        ],
        [(0, K.CUSTOM_CALL, "", "call_3", "shell"), (0, K.CUSTOM_CALL, "ls", "call_3", "shell")],
    ),
    "a custom call that was offered as a function": (
        [
            added(0, "function_call", "f", **SQL),
            piece("function_call_arguments", "f", '{"input":"sel'),
            piece("function_call_arguments", "f", 'ect 1"}'),
            done(0, "function_call", "f", **SQL, arguments='{"input":"select 1"}'),
        ],
        [(0, K.CUSTOM_CALL, "select 1", "call_2", "sql")],
    ),
    "hosted tools are not ours": (
        [
            added(0, "web_search_call", "w"),
            {"type": "response.web_search_call.searching", "item_id": "w", "output_index": 0},
            done(0, "web_search_call", "w"),
            added(1, "message", "m"),
            piece("output_text", "m", "Found."),
        ],
        [(0, K.TEXT, "Found.", "", "")],
    ),
}


def responses_reader(**fields: Any) -> ResponsesReader:
    tools = (CustomTool("sql"),)
    request = make_request(Message("user", (TextPart("Hi."),)), tools=tools, **fields)
    return ResponsesReader("up", request, frozenset({"sql"}))


def chat_reader(**fields: Any) -> ChatReader:
    tools = (CustomTool("sql"), FunctionTool("add"), FunctionTool("sub"))
    request = make_request(Message("user", (TextPart("Hi."),)), tools=tools, **fields)
    return ChatReader("up", request, frozenset({"sql"}))


def read_all(reader: ResponsesReader | ChatReader, events: list[Any]) -> list[Delta]:
    """Returns the deltas of events that come one by one."""
    decode: Any = decode_chunk if isinstance(reader, ChatReader) else decode_sse_event
    deltas: list[Delta] = []
    for now_us, event in enumerate(events):
        data = event if isinstance(event, bytes) else json.dumps(event).encode()
        deltas += reader.read([decode(data)], now_us)
        if reader.failure is not None:
            raise reader.failure
    return deltas


def pieces(deltas: list[Delta]) -> list[Piece]:
    return [(d.index, d.kind, d.text, d.call_id, d.name) for d in deltas]


@pytest.mark.parametrize("name", RESPONSES)
def test_responses_events(name: str) -> None:
    events, expected = RESPONSES[name]
    reader = responses_reader()
    assert pieces(read_all(reader, [*events, COMPLETED])) == expected
    assert reader.finish is not None
    assert reader.finish.reason is FinishReason.STOP
    assert not reader.finish.usage.exact, "it told none"


def test_sealed_reasoning_is_kept_where_it_is_wanted() -> None:
    thought = done(0, "reasoning", "r", summary=[], encrypted_content="blob")
    events = [added(0, "reasoning", "r"), thought, COMPLETED]
    assert read_all(responses_reader(), events) == []
    request = make_request(Message("user", (TextPart("Hi."),)))
    (delta,) = read_all(ResponsesReader("up", request, frozenset(), "ours"), events)
    assert (delta.kind, delta.text) == (K.REASONING, "")
    assert unwrap("ours", delta.sealed) == ("r", "blob")


@pytest.mark.parametrize(
    ("events", "phases"),
    [
        ([added(0, "message", "m", phase="commentary"), piece("output_text", "m", "Hm.")], ["c"]),
        (
            [
                added(0, "message", "m", phase="commentary"),
                piece("output_text", "m", "Hm."),
                done(0, "message", "m", phase="commentary"),
                added(1, "message", "n", phase="final_answer"),
                piece("output_text", "n", "So."),
            ],
            ["c", "f"],
        ),
        ([done(0, "message", "m", phase="commentary", content=[{"text": "All."}])], ["c"]),
        (
            [
                added(0, "message", "m"),
                done(0, "message", "m", phase="final_answer", content=[{"text": "All."}]),
            ],
            ["f"],
        ),
        ([added(0, "message", "m"), piece("output_text", "m", "Hm.")], [""]),
        ([added(0, "message", "m", phase="aside"), piece("output_text", "m", "Hm.")], [""]),
        ([added(0, "function_call", "f", phase="commentary", **CALL)], [""]),
    ],
)
def test_a_messages_phase_is_kept(events: list[dict[str, Any]], phases: list[str]) -> None:
    deltas = read_all(responses_reader(), [*events, COMPLETED])
    assert [delta.phase[:1] for delta in deltas] == phases


def test_output_that_comes_with_the_terminal_only() -> None:
    output = [
        {"type": "message", "id": "m", "content": [{"type": "output_text", "text": "All."}]},
        {"type": "function_call", "id": "f", **CALL, "arguments": "{}"},
    ]
    final = {"type": "response.completed", "response": {**RESPONSE, "output": output}}
    assert pieces(read_all(responses_reader(), [final])) == [
        (0, K.TEXT, "All.", "", ""),
        (1, K.FUNCTION_CALL, "{}", "call_1", "add"),
    ]


USAGE = {
    "input_tokens": 90,
    "input_tokens_details": {"cached_tokens": 60},
    "output_tokens": 30,
    "output_tokens_details": {"reasoning_tokens": 20},
}

# Terminal event -> reason, or the failure's code and whether it may be retried.
TERMINALS: list[tuple[dict[str, Any], FinishReason | tuple[str, bool]]] = [
    (COMPLETED, FinishReason.STOP),
    (
        {"type": "response.completed", "response": {"usage": {"output_tokens": 100}}},
        FinishReason.LENGTH,
    ),
    (
        {
            "type": "response.incomplete",
            "response": {"incomplete_details": {"reason": "max_output_tokens"}},
        },
        FinishReason.LENGTH,
    ),
    (
        {
            "type": "response.incomplete",
            "response": {"incomplete_details": {"reason": "content_filter"}},
        },
        FinishReason.CONTENT_FILTER,
    ),
    (
        {
            "type": "response.incomplete",
            "response": {"incomplete_details": {"reason": "cancelled"}},
        },
        ("server_error", True),
    ),
    ({"type": "response.incomplete", "response": {}}, ("server_error", True)),
    ({"type": "response.completed"}, ("server_error", True)),
    (
        {
            "type": "response.failed",
            "response": {"error": {"code": "rate_limit_exceeded", "message": "slow"}},
        },
        ("rate_limit_exceeded", True),
    ),
    (
        {
            "type": "response.failed",
            "response": {"error": {"code": "context_length_exceeded", "message": "long"}},
        },
        ("context_length_exceeded", False),
    ),
    ({"type": "response.failed", "response": {}}, ("server_error", True)),
    (
        {
            "type": "response.completed",
            "response": {"status": "failed", "error": {"code": "rate_limit_exceeded"}},
        },
        ("rate_limit_exceeded", True),
    ),
    (
        {
            "type": "response.completed",
            "response": {
                "status": "incomplete",
                "incomplete_details": {"reason": "max_output_tokens"},
            },
        },
        FinishReason.LENGTH,
    ),
    (
        {
            "type": "response.incomplete",
            "response": {"status": "failed", "error": {"code": "slow_down"}},
        },
        ("server_is_overloaded", True),
    ),
    (
        {"type": "response.completed", "response": {"status": "incomplete"}},
        ("server_error", True),
    ),
    ({"type": "response.completed", "response": {"status": "cancelled"}}, ("server_error", True)),
    ({"type": "response.completed", "response": {"status": "in_progress"}}, FinishReason.STOP),
    ({"type": "error", "code": "server_error", "message": "flat"}, ("server_error", True)),
    (
        {"type": "error", "status": 400, "error": {"code": "invalid_value", "message": "nested"}},
        ("invalid_value", False),
    ),
    (
        {"type": "error", "status": 503, "error": {"code": None, "message": "busy"}},
        ("server_is_overloaded", True),
    ),
]


@pytest.mark.parametrize(("event", "expected"), TERMINALS)
def test_responses_ends(event: dict[str, Any], expected: FinishReason | tuple[str, bool]) -> None:
    reader = responses_reader()
    if isinstance(expected, FinishReason):
        read_all(reader, [event])
        assert reader.finish is not None
        assert reader.finish.reason is expected
        return
    with pytest.raises(Failure) as caught:
        read_all(reader, [event])
    assert (caught.value.error.code, caught.value.error.retryable) == expected
    assert reader.finish is None


@pytest.mark.parametrize(
    "junk", [b"{", b"[]", b"7", b'{"type":7}', b'{"type":"response.completed","response":[]}']
)
def test_junk_is_a_failure(junk: bytes) -> None:
    good = b'{"type":"response.created"}'
    events, failure = decoded(read_event, [good, junk, good], "up")
    assert len(events) == 1
    assert "no event" in str(failure)


def test_text_behind_a_wrapped_call_only_goes_on() -> None:
    reader = responses_reader()
    wrapped = done(0, "function_call", "f", **SQL, arguments='{"input":"select 1"}')
    read_all(reader, [wrapped, added(1, "message", "m"), piece("output_text", "m", "One.")])
    assert reader.goes_on, "nothing of the call is taken to wait any more"


def test_a_stream_that_just_ends_has_no_end() -> None:
    reader = responses_reader()
    read_all(reader, [added(0, "message", "m"), piece("output_text", "m", "Half"), b"[DONE]"])
    assert reader.ended(0) is None
    assert reader.usage().num_output_tokens > 0
    assert not reader.usage().exact


def test_usage_is_the_upstreams() -> None:
    reader = responses_reader()
    read_all(reader, [{"type": "response.completed", "response": {"usage": USAGE}}])
    assert reader.finish is not None
    assert reader.finish.usage == Usage(90, 60, 30, 20)


@pytest.mark.parametrize("begin", [(), ("",)])
def test_a_stop_sequence_ends_a_responses_stream(begin: tuple[str, ...]) -> None:
    """It does so too where the first piece of the text is empty."""
    reader = responses_reader(stop=("END",))
    events = [
        added(0, "message", "m"),
        *(piece("output_text", "m", t) for t in (*begin, "a E", "N", "D b")),
    ]
    assert "".join(delta.text for delta in read_all(reader, events)) == "a "
    assert reader.finish is not None
    assert (reader.finish.reason, reader.finish.stop_sequence) == (FinishReason.STOP, "END")


def test_what_only_looked_like_a_stop_sequence_comes_out() -> None:
    reader = responses_reader(stop=("END",))
    events = [added(0, "message", "m"), *(piece("output_text", "m", t) for t in ("a E", "N"))]
    assert "".join(delta.text for delta in read_all(reader, [*events, COMPLETED])) == "a EN"


# -- chat completions ------------------------------------------------------------------------


def chunk(finish_reason: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}


def call(index: int, call_id: str | None, name: str | None, arguments: str) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"index": index, "id": call_id, "type": "function", "function": function}


CHAT: dict[str, tuple[list[Any], list[Piece]]] = {
    "text": (
        [chunk(role="assistant", content=""), chunk(content="One, "), chunk(content="two.")],
        [(0, K.TEXT, "One, ", "", ""), (0, K.TEXT, "two.", "", "")],
    ),
    "reasoning, under either name": (
        [chunk(reasoning_content="Hm, "), chunk(reasoning="so"), chunk(content="Yes.")],
        [
            (0, K.REASONING, "Hm, ", "", ""),
            (0, K.REASONING, "so", "", ""),
            (1, K.TEXT, "Yes.", "", ""),
        ],
    ),
    "both names at once are one text": (
        [chunk(reasoning_content="Hm.", reasoning="Hm.")],
        [(0, K.REASONING, "Hm.", "", "")],
    ),
    "a refusal is text": ([chunk(refusal="No.")], [(0, K.TEXT, "No.", "", "")]),
    "a call in pieces": (
        [
            chunk(content="Let me see."),
            chunk(tool_calls=[call(0, "call_1", "add", "")]),
            chunk(tool_calls=[call(0, None, None, '{"n":')]),
            chunk(tool_calls=[call(0, None, None, "1}")]),
        ],
        [
            (0, K.TEXT, "Let me see.", "", ""),
            (1, K.FUNCTION_CALL, "", "call_1", "add"),
            (1, K.FUNCTION_CALL, '{"n":', "call_1", "add"),
            (1, K.FUNCTION_CALL, "1}", "call_1", "add"),
        ],
    ),
    "calls at once": (
        [
            chunk(tool_calls=[call(0, "a", "add", "{}"), call(1, "b", "sub", "")]),
            chunk(tool_calls=[call(1, None, None, "{}")]),
        ],
        [(0, K.FUNCTION_CALL, "{}", "a", "add"), (1, K.FUNCTION_CALL, "{}", "b", "sub")],
    ),
    "calls that are not counted": (
        [
            chunk(tool_calls=[call(0, "a", "add", "{}")]),
            chunk(tool_calls=[call(0, "b", "sub", "{}")]),
        ],
        [(0, K.FUNCTION_CALL, "{}", "a", "add"), (1, K.FUNCTION_CALL, "{}", "b", "sub")],
    ),
    "a custom call that was offered as a function": (
        [
            chunk(tool_calls=[call(0, "c", "sql", '{"input":')]),
            chunk(tool_calls=[call(0, None, None, '"select 1"}')]),
        ],
        [(0, K.CUSTOM_CALL, "select 1", "c", "sql")],
    ),
    "calls without arguments": (
        [
            chunk(tool_calls=[call(0, "a", "add", ""), call(1, "b", "sub", "")]),
            chunk(tool_calls=[call(0, "c", "add", "")]),
            chunk(tool_calls=[call(1, None, None, "[]"), call(2, "d", "sql", "")]),
        ],
        [
            (0, K.FUNCTION_CALL, "", "a", "add"),
            (0, K.FUNCTION_CALL, "{}", "a", "add"),
            (1, K.FUNCTION_CALL, "", "b", "sub"),
            (1, K.FUNCTION_CALL, "[]", "b", "sub"),
            (2, K.FUNCTION_CALL, "{}", "c", "add"),
            (3, K.CUSTOM_CALL, "", "d", "sql"),
        ],
    ),
    "a call without an id": (
        [chunk(tool_calls=[call(0, None, "add", "{}")])],
        [(0, K.FUNCTION_CALL, "{}", "call_resp_1_0", "add")],
    ),
    "a message in place of a delta": (
        [
            {"choices": [{"message": {"role": "assistant", "content": "One, "}}]},
            {"choices": [{"delta": None, "message": {"content": [{"text": "two."}]}}]},
            {"choices": [{"delta": {}, "message": {"content": "One, two."}}]},
        ],
        [(0, K.TEXT, "One, ", "", ""), (0, K.TEXT, "two.", "", "")],
    ),
    "a call as it was before calls had ids": (
        [
            chunk(content="Hm.", function_call=None),
            chunk(function_call={"name": "add", "arguments": ""}),
            chunk(function_call={"arguments": '{"n":'}),
            chunk(function_call={"name": None, "arguments": "1}"}),
            chunk("function_call"),
        ],
        [
            (0, K.TEXT, "Hm.", "", ""),
            (1, K.FUNCTION_CALL, "", "call_resp_1_0", "add"),
            (1, K.FUNCTION_CALL, '{"n":', "call_resp_1_0", "add"),
            (1, K.FUNCTION_CALL, "1}", "call_resp_1_0", "add"),
        ],
    ),
    "empty calls beside the text": (
        [
            chunk(content="One, ", function_call={"name": "", "arguments": ""}),
            chunk(content="two.", tool_calls=[{"index": 0, "function": {}}]),
        ],
        [(0, K.TEXT, "One, ", "", ""), (0, K.TEXT, "two.", "", "")],
    ),
    "more behind the finish reason": (
        [chunk("stop", content="One, "), chunk(content="two"), chunk("stop", content=".")],
        [(0, K.TEXT, "One, ", "", ""), (0, K.TEXT, "two", "", ""), (0, K.TEXT, ".", "", "")],
    ),
    "more behind a call's finish reason": (
        [
            chunk("tool_calls", tool_calls=[call(0, "a", "add", "{}")]),
            chunk(content="So."),
            chunk(tool_calls=[call(1, "b", "sub", "{}")]),
            chunk(reasoning="Hm."),
        ],
        [
            (0, K.FUNCTION_CALL, "{}", "a", "add"),
            (1, K.TEXT, "So.", "", ""),
            (2, K.FUNCTION_CALL, "{}", "b", "sub"),
            (3, K.REASONING, "Hm.", "", ""),
        ],
    ),
    "other choices are not ours": (
        [{"choices": [{"index": 1, "delta": {"content": "x"}}]}, chunk(content="y")],
        [(0, K.TEXT, "y", "", "")],
    ),
}


@pytest.mark.parametrize("name", CHAT)
def test_chat_chunks(name: str) -> None:
    events, expected = CHAT[name]
    reader = chat_reader()
    assert pieces(read_all(reader, [*events, chunk("stop"), b"[DONE]"])) == expected
    assert reader.finish is not None
    assert reader.finish.reason is FinishReason.STOP


# Finish reason -> ours; None: the upstream cut it.
REASONS = {
    "stop": FinishReason.STOP,
    "tool_calls": FinishReason.STOP,
    "function_call": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "content_filter": FinishReason.CONTENT_FILTER,
    "STOP": FinishReason.STOP,
    "eos_token": FinishReason.STOP,
    "end_turn": FinishReason.STOP,
    "MAX_TOKENS": FinishReason.LENGTH,
    "SAFETY": FinishReason.CONTENT_FILTER,
    "content_filter: PROHIBITED_CONTENT": FinishReason.CONTENT_FILTER,
    "RECITATION": FinishReason.CONTENT_FILTER,
    "refusal": FinishReason.CONTENT_FILTER,
    "abort": None,
    "error": None,
}


@pytest.mark.parametrize("reason", REASONS)
def test_chat_ends(reason: str) -> None:
    reader, expected = chat_reader(), REASONS[reason]
    if expected is None:
        with pytest.raises(Failure, match="cut its answer"):
            read_all(reader, [chunk(content="x"), chunk(reason)])
        return
    read_all(reader, [chunk(content="x"), chunk(reason)])
    assert reader.finish is None, "usage may follow"
    finish = reader.ended(0)
    assert finish is not None
    assert finish.reason is expected


def test_what_comes_behind_a_finish_reason_at_once_with_it() -> None:
    reader = chat_reader()
    chunks = [chunk(content="One, "), chunk("stop"), chunk(content="two"), chunk(content=".")]
    deltas = reader.read([decode_chunk(json.dumps(each).encode()) for each in chunks], 0)
    assert "".join(delta.text for delta in deltas) == "One, two."
    assert {delta.index for delta in deltas} == {0}
    assert not reader.goes_on, "the quick way leaves out what ends an answer"


def test_a_call_that_is_cut_has_no_arguments() -> None:
    chunks = [chunk(tool_calls=[call(0, "a", "add", "")]), chunk("length")]
    assert [delta.text for delta in read_all(chat_reader(), chunks)] == [""]


@pytest.mark.parametrize("said", ["END", "OTHER", 128_009, None, ["END"]])
def test_a_stop_sequence_that_a_chat_server_names(said: Any) -> None:
    reader = chat_reader(stop=("END",))
    last = chunk("stop")
    last["choices"][0]["stop_reason"] = said
    read_all(reader, [chunk(content="x"), last, b"[DONE]"])
    assert reader.finish is not None
    assert reader.finish.stop_sequence == ("END" if said == "END" else None)


# Usage as servers count it -> ours.
USAGES = [
    ({"prompt_tokens": 9, "completion_tokens": 3}, Usage(9, 0, 3, 0)),
    (
        {
            "prompt_tokens": 9,
            "completion_tokens": 3,
            "prompt_tokens_details": {"cached_tokens": 8},
            "completion_tokens_details": {"reasoning_tokens": 2},
        },
        Usage(9, 8, 3, 2),
    ),
    (
        {
            "prompt_tokens": 9,
            "completion_tokens": 3,
            "total_tokens": 22,
            "completion_tokens_details": {"reasoning_tokens": 10},
        },
        Usage(9, 0, 13, 10),
    ),
]


def test_what_became_of_a_prediction() -> None:
    reader = chat_reader(prediction="a b c d e f")
    details = {"accepted_prediction_tokens": 2, "rejected_prediction_tokens": 4}
    told = {"prompt_tokens": 9, "completion_tokens": 7, "completion_tokens_details": details}
    read_all(reader, [chunk(content="a b x"), chunk("stop"), {"choices": [], "usage": told}])
    assert reader.finish is not None
    assert reader.finish.usage == Usage(9, 0, 7, num_accepted_tokens=2, num_rejected_tokens=4)


@pytest.mark.parametrize(("told", "expected"), USAGES)
def test_chat_usage(told: dict[str, Any], expected: Usage) -> None:
    apart, within = chat_reader(), chat_reader()
    read_all(apart, [chunk(content="x"), chunk("stop"), {"choices": [], "usage": told}])
    read_all(within, [chunk(content="x"), chunk("stop") | {"usage": told}, b"[DONE]"])
    for reader in (apart, within):
        assert reader.finish is not None
        assert reader.finish.usage == expected


def test_done_without_a_reason_is_no_end() -> None:
    reader = chat_reader()
    with pytest.raises(Failure, match="without a finish reason"):
        read_all(reader, [chunk(content="x"), b"[DONE]"])


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"message": "busy", "code": 503}, "server_is_overloaded"),
        ({"message": "no", "type": "invalid_request_error"}, "invalid_prompt"),
        ({"message": "no", "code": "context_length_exceeded"}, "context_length_exceeded"),
        ("just words", "server_error"),
    ],
)
def test_an_error_chunk(error: Any, code: str) -> None:
    flat = {"object": "error", "message": error} if isinstance(error, str) else error
    for event in ({"error": error}, flat):
        with pytest.raises(Failure) as caught:
            read_all(chat_reader(), [chunk(content="x"), event])
        assert caught.value.error.code == code
        assert caught.value.error.message.endswith(f": {flat.get('message', '')}".rstrip(": "))


def test_words_beside_choices_are_no_error() -> None:
    reader = chat_reader()
    chunks = [{"choices": [], "message": "wait"}, chunk("stop") | {"message": "", "code": 1.5}]
    read_all(reader, [*chunks, b"[DONE]"])
    assert reader.finish is not None


def test_an_error_event_without_a_type() -> None:
    for event in ({"message": "busy", "code": 503}, {"error": {"message": "busy", "code": 503}}):
        with pytest.raises(Failure, match="busy") as caught:
            read_all(responses_reader(), [event])
        assert caught.value.error.code == "server_is_overloaded"


@pytest.mark.parametrize("junk", [b"{", b"[]", b'{"choices":7}', b'{"choices":[{"delta":"x"}]}'])
def test_a_junk_chunk_is_a_failure(junk: bytes) -> None:
    events, failure = decoded(decode_chunk, [b"{}", junk, b"{}"], "up")
    assert len(events) == 1
    assert "no event" in str(failure)


FIGURES = {
    "huge": (10**15, Usage(8, 0, 22, bounded=True)),
    "beyond 64 bits": (10**30, Usage(8, 0, 22, bounded=True)),
    "a whole number with a point": (5.0, Usage(8, 0, 5)),
    "negative": (-1, Usage(8, 0, 3, exact=False, bounded=True)),
    "a fraction": (1.5, Usage(8, 0, 3, exact=False, bounded=True)),
    "a string": ("7", Usage(8, 0, 3, exact=False, bounded=True)),
    "true": (True, Usage(8, 0, 3, exact=False, bounded=True)),
    "an object": ({"a": 1}, Usage(8, 0, 3, exact=False, bounded=True)),
}


@pytest.mark.parametrize("name", FIGURES)
def test_a_reported_figure_is_bounded_and_spoils_no_answer(name: str) -> None:
    figure, charged = FIGURES[name]
    chat, responses = chat_reader(), responses_reader()
    told = {"prompt_tokens": 8, "completion_tokens": figure}
    read_all(chat, [chunk(content="x y z."), chunk("stop"), {"choices": [], "usage": told}])
    said = {**RESPONSE, "usage": {"input_tokens": 8, "output_tokens": figure}}
    events = [piece("output_text", "m", "x y z."), {"type": "response.completed", "response": said}]
    read_all(responses, events)
    for reader in (chat, responses):
        assert reader.finish is not None
        assert reader.finish.reason is FinishReason.STOP
        usage = reader.finish.usage
        assert usage.num_output_tokens <= 22
        if charged.exact:
            assert usage == charged
        else:
            assert (usage.exact, usage.bounded) == (False, True)
            assert usage.num_output_tokens == reader.usage().num_output_tokens


@pytest.mark.parametrize("usage", [None, "none", 7, [], {"completion_tokens": None}])
def test_a_usage_of_another_shape_spoils_no_answer(usage: Any) -> None:
    chat, responses = chat_reader(), responses_reader()
    read_all(chat, [chunk(content="x"), chunk("stop") | {"usage": usage}, b"[DONE]"])
    said = {**RESPONSE, "usage": usage}
    events = [piece("output_text", "m", "x"), {"type": "response.completed", "response": said}]
    read_all(responses, events)
    for reader in (chat, responses):
        assert reader.finish is not None
        assert reader.finish.reason is FinishReason.STOP
        assert not reader.finish.usage.exact


def test_an_answer_that_goes_on_beyond_its_limit_is_cut() -> None:
    words = [f"word{number} " for number in range(400)]
    chat, responses = chat_reader(), responses_reader()
    limit = 100  # of `make_request`
    for reader, events in (
        (chat, [chunk(content=word) for word in words]),
        (responses, [piece("output_text", "m", word) for word in words]),
        (chat_reader(), [chunk(content="".join(words))]),
    ):
        text = "".join(delta.text for delta in read_all(reader, events))
        assert text == "".join(words[:116])[: len(text)]
        assert limit <= len(text.split()) <= 116
        assert reader.is_overrun
        assert reader.finish is not None
        assert reader.finish.reason is FinishReason.LENGTH
        assert reader.finish.usage.num_output_tokens == limit


def test_an_answer_without_end_is_cut_however_it_goes_on() -> None:
    empty, calls, many = chat_reader(), responses_reader(), responses_reader()
    read_all(empty, [chunk(content="")] * 5_000)
    name = {"call_id": "c", "name": "f" * 2_000}
    read_all(calls, [added(0, "function_call", "f", **name)])
    read_all(many, [added(n, "function_call", f"f{n}", **CALL) for n in range(1_100)])
    for reader in (empty, calls, many):
        assert reader.finish is not None
        assert reader.finish.reason is FinishReason.LENGTH


def test_words_that_a_server_repeats_are_dropped() -> None:
    request = make_request(Message("user", (TextPart("Hi."),)), prefill="One, two, ")
    reader = ChatReader("up", request, frozenset(), echo=request.prefill)
    chunks = [{"choices": [{"delta": {"content": c}}]} for c in ("One, ", "two, three", ", four.")]
    assert [delta.text for delta in read_all(reader, chunks)] == ["three", ", four."]
