"""Tests refusals of upstreams: which words are one, whatever way a server tells them."""

from typing import Any

import msgspec
import pytest

from backends.contract import Delta, DeltaKind
from backends.upstream.answer.chat_chunks import decode_chunk
from backends.upstream.answer.chat_reader import ChatReader
from backends.upstream.answer.reader import Reader
from backends.upstream.answer.responses_events import decode_response, read_event
from backends.upstream.answer.responses_reader import ResponsesReader
from tests.unit.backends.upstream.upstream_requests import make_request

NO = {"type": "refusal", "refusal": "No, I cannot."}
AT = {"item_id": "m", "output_index": 0, "content_index": 0}
END = {"choices": [{"delta": {}, "finish_reason": "stop"}]}


def message(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "message", "id": "m", "role": "assistant", "content": [*parts]}


def added(*parts: dict[str, Any]) -> dict[str, Any]:
    item = message(*parts)
    return {"type": "response.output_item.added", "output_index": 0, "item": item}


def done(*parts: dict[str, Any]) -> dict[str, Any]:
    return added(*parts) | {"type": "response.output_item.done"}


def completed(*parts: dict[str, Any]) -> dict[str, Any]:
    response = {"id": "r", "object": "response", "status": "completed", "output": [message(*parts)]}
    return {"type": "response.completed", "response": response}


def piece(text: str) -> dict[str, Any]:
    return {"type": "response.refusal.delta", **AT, "delta": text}


PIECES = [piece("No, "), piece("I "), piece("cannot.")]
PART = {"type": "response.content_part.done", **AT, "part": NO}

RESPONSES: dict[str, list[dict[str, Any]]] = {
    "all that OpenAI sends": [added(), *PIECES, PART, done(NO), completed(NO)],
    "pieces of an item that was not announced": [*PIECES, completed(NO)],
    "its end alone": [{"type": "response.refusal.done", **AT, "refusal": NO["refusal"]}],
    "a part alone": [added(), PART],
    "a finished item alone": [added(), done(NO)],
    "an item that was not announced": [done(NO)],
    "the whole response alone": [completed(NO)],
    "an item that was begun with a phase": [added() | {"phase": "final_answer"}, *PIECES, done(NO)],
}


def read(reader: Reader, events: list[Any], *, one_by_one: bool) -> list[Delta]:
    deltas: list[Delta] = []
    for together in [[event] for event in events] if one_by_one else [events]:
        deltas += reader.read(together, 0)
    assert reader.failure is None
    return deltas


def said(deltas: list[Delta]) -> list[tuple[int, bool, str]]:
    """Returns the items: their index, whether they refuse, and what they say."""
    assert all(delta.kind is DeltaKind.TEXT for delta in deltas)
    found: dict[tuple[int, bool], str] = {}
    for delta in deltas:
        key = (delta.index, delta.refuses)
        found[key] = found.get(key, "") + delta.text
    return [(*key, text) for key, text in found.items()]


@pytest.mark.parametrize("one_by_one", [True, False])
@pytest.mark.parametrize("case", RESPONSES)
def test_a_refusal_of_responses(case: str, one_by_one: bool) -> None:
    reader = ResponsesReader("told", make_request(), frozenset())
    events = [read_event(msgspec.json.encode(each)) for each in RESPONSES[case]]
    if events[-1].type != "response.completed":
        events.append(read_event(msgspec.json.encode(completed(NO))))
    deltas = read(reader, events, one_by_one=one_by_one)
    assert said(deltas) == [(0, True, "No, I cannot.")]


def test_a_response_that_came_whole() -> None:
    reader = ResponsesReader("told", make_request(), frozenset())
    whole = msgspec.json.encode(completed(NO)["response"])
    assert said(reader.read([decode_response(whole)], 0)) == [(0, True, "No, I cannot.")]


def test_an_answer_is_none() -> None:
    reader = ResponsesReader("told", make_request(), frozenset())
    text = {"type": "output_text", "text": "Yes."}
    events = [read_event(msgspec.json.encode(each)) for each in (added(), done(text))]
    assert said(read(reader, events, one_by_one=True)) == [(0, False, "Yes.")]


CHAT: dict[str, tuple[list[dict[str, Any]], list[tuple[int, bool, str]]]] = {
    "in pieces": (
        [{"content": "", "refusal": None}, {"refusal": "No, "}, {"refusal": "never."}],
        [(0, True, "No, never.")],
    ),
    "behind a text": (
        [{"content": "Well. "}, {"content": "Hm."}, {"refusal": "No, "}, {"refusal": "never."}],
        [(0, False, "Well. Hm."), (1, True, "No, never.")],
    ),
    "before a text": (
        [{"refusal": "No."}, {"content": "Well. "}, {"content": "Hm."}],
        [(0, True, "No."), (1, False, "Well. Hm.")],
    ),
    "beside a text": (
        [{"content": "Well.", "refusal": "No."}],
        [(0, False, "Well."), (1, True, "No.")],
    ),
}


@pytest.mark.parametrize("one_by_one", [True, False])
@pytest.mark.parametrize("field", ["delta", "message"])
@pytest.mark.parametrize("case", CHAT)
def test_a_refusal_of_chat(case: str, field: str, one_by_one: bool) -> None:
    deltas, expected = CHAT[case]
    chunks = [{"choices": [{"index": 0, field: delta}]} for delta in deltas]
    reader = ChatReader("told", make_request(), frozenset())
    events = [decode_chunk(msgspec.json.encode(chunk)) for chunk in [*chunks, END]]
    assert said(read(reader, events, one_by_one=one_by_one)) == expected
