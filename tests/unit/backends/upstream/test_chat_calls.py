"""Calls of chat completions are told apart, and named, however servers write them."""

import json
from itertools import groupby
from typing import Any

import pytest

from backends.contract import CustomTool, DeltaKind, FinishReason, FunctionTool, Message, TextPart
from backends.upstream.answer.chat_chunks import decode_chunk
from backends.upstream.answer.chat_reader import ChatReader
from backends.upstream.answer.errors import Failure
from tests.unit.backends.upstream.upstream_requests import make_request

Called = tuple[str, str, str]  # its id, name and arguments
FIRST, SECOND = '{"n":1}', '{"n":2}'


def chunk(*calls: dict[str, Any], finish_reason: str | None = None, **delta: Any) -> dict[str, Any]:
    delta |= {"tool_calls": list(calls)} if calls else {}
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}


def call(name: str | None, arguments: str | None = None, **fields: Any) -> dict[str, Any]:
    return {**fields, "function": {"name": name, "arguments": arguments}}


def read(*chunks: dict[str, Any], end: str = "tool_calls") -> tuple[ChatReader, list[Called]]:
    tools = (
        CustomTool("sql"),
        *map(FunctionTool, ("add", "sub", "get", "get_weather", "gogo", "delete_file")),
    )
    request = make_request(Message("user", (TextPart("Hi."),)), tools=tools)
    reader = ChatReader("up", request, frozenset({"sql"}))
    deltas = []
    for each in (*chunks, chunk(finish_reason=end)):
        deltas += reader.read([decode_chunk(json.dumps(each).encode())], 0)
    called = []
    for _, group in groupby(deltas, lambda delta: delta.index):
        of_one = list(group)
        if of_one[0].kind >= DeltaKind.FUNCTION_CALL:
            text = "".join(delta.text for delta in of_one)
            called.append((of_one[0].call_id, of_one[0].name, text))
    return reader, called


OURS = [("call_resp_1_0", "add", FIRST), ("call_resp_1_1", "add", SECOND)]
THEIRS = [("a", "add", FIRST), ("b", "sub", SECOND)]

APART: dict[str, tuple[list[dict[str, Any]], list[Called]]] = {
    "no index and no id, in one chunk": ([chunk(call("add", FIRST), call("add", SECOND))], OURS),
    "no index and no id, in two": ([chunk(call("add", FIRST)), chunk(call("add", SECOND))], OURS),
    "one index and empty ids": (
        [
            chunk(call("add", FIRST, index=0, id="")),
            chunk(call("add", SECOND, index=0, id="")),
        ],
        OURS,
    ),
    "one index and no ids, in pieces": (
        [
            chunk(call("add", "", index=0)),
            chunk(call(None, FIRST, index=0)),
            chunk(call("add", "", index=0)),
            chunk(call(None, '{"n"', index=0)),
            chunk(call(None, ":2}", index=0)),
        ],
        OURS,
    ),
    "one index, no ids and other names": (
        [chunk(call("add", index=0)), chunk(call("sub", index=0)), chunk(call("get", FIRST))],
        [
            ("call_resp_1_0", "add", "{}"),
            ("call_resp_1_1", "sub", "{}"),
            ("call_resp_1_2", "get", FIRST),
        ],
    ),
    "two indexes and one id": (
        [
            chunk(call("add", FIRST, index=0, id="call")),
            chunk(call("add", SECOND, index=1, id="call")),
        ],
        [("call", "add", FIRST), ("call_resp_1_1", "add", SECOND)],
    ),
    "one index and one id": (
        [
            chunk(call("add", FIRST, index=0, id="call")),
            chunk(call("add", SECOND, index=0, id="call")),
        ],
        [("call", "add", FIRST), ("call_resp_1_1", "add", SECOND)],
    ),
    "no index, but ids": (
        [chunk(call("add", FIRST, id="a")), chunk(call("sub", SECOND, id="b"))],
        THEIRS,
    ),
    "an index in the first piece only": (
        [
            chunk(call("add", '{"n"', index=0, id="a")),
            chunk(call(None, ":1}")),
            chunk(call("sub", '{"n"', index=1, id="b")),
            chunk(call(None, ":2}")),
        ],
        THEIRS,
    ),
    "interleaved": (
        [
            chunk(call("add", '{"n"', index=0, id="a"), call("sub", '{"n":', index=1, id="b")),
            chunk(call(None, ":1}", index=0), call(None, "2}", index=1)),
        ],
        THEIRS,
    ),
    "reversed": (
        [
            chunk(call("add", FIRST, index=1, id="a")),
            chunk(call("sub", SECOND, index=0, id="b")),
        ],
        THEIRS,
    ),
    "an id behind the name": (
        [chunk(call("add", "", index=0)), chunk(call(None, FIRST, index=0, id="a"))],
        [("call_resp_1_0", "add", FIRST)],
    ),
    "an id behind the name, which comes again": (
        [chunk(call("add", "", index=0)), chunk(call("add", FIRST, index=0, id="a"))],
        [("call_resp_1_0", "add", FIRST)],
    ),
    "an empty name and id in each piece": (
        [chunk(call("add", '{"n"', id="a")), chunk(call("", ":1}", id=""))],
        THEIRS[:1],
    ),
    "whole arguments, and space": (
        [chunk(call("add", FIRST, id="a")), chunk(call("add", " ", id="a"))],
        [("a", "add", FIRST + " ")],
    ),
    "braces within arguments": (
        [chunk(call("add", '{"a":{}', id="a")), chunk(call("add", ',"b":"{}"}', id="a"))],
        [("a", "add", '{"a":{},"b":"{}"}')],
    ),
}

WEATHER = [("c", "get_weather", FIRST)]

NAMES: dict[str, tuple[list[dict[str, Any]], list[Called]]] = {
    "late": ([chunk({"index": 0, "id": "c"}), chunk(call("get_weather", FIRST))], WEATHER),
    "late, behind an empty one": (
        [chunk(call("", "", index=0, id="c")), chunk(call("get_weather", FIRST, index=0))],
        WEATHER,
    ),
    "behind the arguments": (
        [
            chunk(call(None, '{"n"', id="c")),
            chunk(call("get_weather")),
            chunk(call(None, ":1}")),
        ],
        WEATHER,
    ),
    "in pieces": (
        [chunk(call("get_", "", index=0, id="c")), chunk(call("weather", FIRST, index=0))],
        WEATHER,
    ),
    "in pieces, of which one is a tool": (
        [chunk(call("get", "", id="c")), chunk(call("_weather", "")), chunk(call(None, FIRST))],
        WEATHER,
    ),
    "in pieces with arguments": (
        [chunk(call("get_", '{"n"', id="c")), chunk(call("weather", ":1}"))],
        WEATHER,
    ),
    "in pieces, interleaved": (
        [
            chunk(call("delete_", "", index=0, id="c"), call("get", "", index=1, id="d")),
            chunk(call("file", FIRST, index=0), call("_weather", SECOND, index=1)),
        ],
        [("c", "delete_file", FIRST), ("d", "get_weather", SECOND)],
    ),
    "in pieces that are alike": (
        [chunk(call("go", id="c")), chunk(call("go", FIRST))],
        [("c", "gogo", FIRST)],
    ),
    "growing": (
        [chunk(call("get_", id="c")), chunk(call("get_weather", FIRST))],
        WEATHER,
    ),
    "whole in each piece": (
        [
            chunk(call("get_weather", "", id="c")),
            chunk(call("get_weather", '{"n"', id="c")),
            chunk(call("get_weather", ":1}", id="c")),
            chunk(call("get_weather", "", id="c")),
        ],
        WEATHER,
    ),
    "whole, of a tool that begins another's name": (
        [chunk(call("get", "", id="c")), chunk(call("get", FIRST, id="c"))],
        [("c", "get", FIRST)],
    ),
    "without arguments, of a tool that begins another's name": (
        [chunk(call("get", "", id="c"))],
        [("c", "get", "{}")],
    ),
    "of no tool that was offered": (
        [chunk(call("mul", "", id="c")), chunk(call("mul", FIRST)), chunk(call("div", id="d"))],
        [("c", "mul", FIRST), ("d", "div", "{}")],
    ),
    "late, of a custom tool": (
        [chunk(call(None, "", id="c")), chunk(call("sql", '{"input":"select 1"}'))],
        [("c", "sql", "select 1")],
    ),
    "in pieces, of a custom tool": (
        [chunk(call("s", "", id="c")), chunk(call("ql", '{"input":"select 1"}'))],
        [("c", "sql", "select 1")],
    ),
    "late, with text between": (
        [chunk(call("mul", "", id="c")), chunk(content="So."), chunk(call(None, FIRST))],
        [("c", "mul", FIRST)],
    ),
    "never, of a call that says nothing": ([chunk({"index": 0}), chunk(content="So.")], []),
}


CALLS = APART | {f"a name {name}": row for name, row in NAMES.items()}


@pytest.mark.parametrize("name", CALLS)
def test_calls(name: str) -> None:
    chunks, expected = CALLS[name]
    reader, called = read(*chunks)
    assert called == expected
    assert reader.ended(0) is not None


def test_a_known_tools_call_shows_before_its_arguments() -> None:
    request = make_request(Message("user", (TextPart("Hi."),)), tools=(FunctionTool("add"),))
    reader = ChatReader("up", request, frozenset())
    first = json.dumps(chunk(call("add", "", id="c"))).encode()
    (delta,) = reader.read([decode_chunk(first)], 0)
    assert (delta.kind, delta.name, delta.text) == (DeltaKind.FUNCTION_CALL, "add", "")


@pytest.mark.parametrize("nameless", [{"index": 0, "id": "c"}, call("", FIRST, index=0)])
def test_a_call_without_a_name_is_a_failure_unless_it_was_cut(nameless: dict[str, Any]) -> None:
    reader, called = read(chunk(nameless))
    assert called == []
    assert isinstance(reader.failure, Failure)
    assert reader.ended(0) is None
    assert reader.failure.error.message == "the upstream called a tool without its name"
    cut, called = read(chunk(nameless), end="length")
    finish = cut.ended(0)
    assert called == []
    assert finish is not None
    assert finish.reason is FinishReason.LENGTH


def test_calls_are_bounded_though_they_have_no_names() -> None:
    reader, called = read(chunk(*({"index": number, "id": "c"} for number in range(2_000))))
    assert called == []
    assert reader.finish is not None
    assert reader.finish.reason is FinishReason.LENGTH
