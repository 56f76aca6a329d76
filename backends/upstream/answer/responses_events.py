"""Decodes an upstream's Responses events, from SSE or a socket."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from backends.contract import DeltaKind
from backends.upstream.answer.errors import WireError
from backends.upstream.answer.lenient import fitted

TERMINALS = ("response.completed", "response.incomplete", "response.failed")


class UpstreamPart(msgspec.Struct, frozen=True, gc=False):
    """Is a part of an item's text."""

    type: str = ""
    text: str | None = None
    refusal: str | None = None


class UpstreamItem(msgspec.Struct, frozen=True, gc=False):
    """Is an output item of any kind, with the fields that matter of ours."""

    type: str = ""
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    input: str | None = None
    content: list[UpstreamPart] | str | None = None
    summary: list[UpstreamPart] | None = None
    encrypted_content: str | None = None
    phase: str | None = None


class _Incomplete(msgspec.Struct, frozen=True, gc=False):
    reason: str | None = None


class UpstreamResponse(msgspec.Struct, frozen=True, gc=False):
    """Is the response that an event has."""

    id: str | None = None
    status: str | None = None
    output: list[UpstreamItem] | None = None
    usage: Any = None  # a figure of another type must not spoil the event
    error: WireError | None = None
    incomplete_details: _Incomplete | None = None
    service_tier: Any = None


class _Whole(UpstreamResponse, frozen=True, kw_only=True, gc=False):
    """Is a response that came in place of events."""

    object: Literal["response"]


class Event(msgspec.Struct, frozen=True, gc=False):
    """Is any event, with the fields that matter of all of them."""

    type: str
    stream_id: str | None = None  # on sockets that several streams share
    item_id: str | None = None
    output_index: int | None = None
    summary_index: int | None = None  # of its part, as the next
    content_index: int | None = None
    delta: str | None = None
    text: str | None = None
    refusal: str | None = None
    arguments: str | None = None
    input: str | None = None
    part: UpstreamPart | None = None
    item: UpstreamItem | None = None
    response: UpstreamResponse | None = None
    # An event of type `error` nests these on a socket, and has them flat on SSE.
    error: WireError | None = None
    code: str | int | None = None
    message: str | None = None
    status: int | str | None = None
    headers: dict[str, Any] | None = None


DONE = Event("[DONE]")  # some servers end an SSE stream as chat completions end
# Invalid JSON is a DecodeError, UnicodeDecodeError or RecursionError.
decode_event = msgspec.json.Decoder(Event).decode
_decode_whole = msgspec.json.Decoder(_Whole).decode

ITEM_KINDS = {  # others are hosted tools', which we never request
    "message": DeltaKind.TEXT,
    "reasoning": DeltaKind.REASONING,
    "function_call": DeltaKind.FUNCTION_CALL,
    "custom_tool_call": DeltaKind.CUSTOM_CALL,
}
PART_KINDS = {
    "output_text": DeltaKind.TEXT,
    "refusal": DeltaKind.TEXT,
    "summary_text": DeltaKind.REASONING,
    "reasoning_text": DeltaKind.REASONING,
}
# The beginning of an event's type leads to the kind of its item. By the whole type, each event has
# a piece of the text or all of it.
_TEXT_EVENTS = {
    "response.output_text": DeltaKind.TEXT,
    "response.refusal": DeltaKind.TEXT,
    "response.reasoning_summary_text": DeltaKind.REASONING,
    "response.reasoning_text": DeltaKind.REASONING,
    "response.function_call_arguments": DeltaKind.FUNCTION_CALL,
    "response.custom_tool_call_input": DeltaKind.CUSTOM_CALL,
}
PIECE_KINDS = {f"{head}.delta": kind for head, kind in _TEXT_EVENTS.items()}
WHOLE_KINDS = {f"{head}.done": kind for head, kind in _TEXT_EVENTS.items()} | {
    "response.content_part.done": DeltaKind.TEXT,
    "response.reasoning_summary_part.done": DeltaKind.REASONING,
}

# Each type of event with a piece of text has what a next one of the item needs.
DECODE_PIECE: dict[str, Callable[[bytes], Any]] = {
    name: msgspec.json.Decoder(
        msgspec.defstruct("Piece", [("item_id", str), ("delta", str)], tag=name, gc=False)
    ).decode
    for name in PIECE_KINDS
}

REFUSAL_DELTA = "response.refusal.delta"


def refuses(item: UpstreamItem) -> bool:
    """Returns whether an item is a refusal: servers write one in place of an answer."""
    content = item.content
    return isinstance(content, list) and bool(content) and content[0].type == "refusal"


def item_texts(item: UpstreamItem) -> list[str]:
    """Returns the whole text of an item; of reasoning its summary and itself, an empty one last."""
    content = item.content or ()
    if item.type == "message":
        if isinstance(content, str):
            return [content]
        text = ""
        for part in content:  # of one or two: the quickest way
            text += part.text or part.refusal or ""
        return [text]
    if item.type == "reasoning":
        of_content = content if isinstance(content, str) else _joined(content)
        summary = _joined(item.summary or ())
        return [summary, of_content] if summary else [of_content, summary]
    return [item.arguments or item.input or ""]


def _joined(parts: Sequence[UpstreamPart]) -> str:
    return "\n\n".join(part.text or "" for part in parts)


# What an event of a type must have where it has it at all. Other fields are left out if they are
# of another type than ours: what they are of may be nothing that we know.
_NEEDED = {
    **dict.fromkeys(DECODE_PIECE, ("delta",)),
    **dict.fromkeys(("response.output_item.added", "response.output_item.done"), ("item",)),
    **dict.fromkeys(TERMINALS, ("response",)),
}


def read_event(message: bytes) -> Event:
    """Decodes as `decode_event`, and where that fails leaves out odd fields that nobody needs."""
    try:
        return decode_event(message)
    except msgspec.ValidationError:
        found = msgspec.json.decode(message, type=dict[str, Any])
        if "type" not in found and not found.keys().isdisjoint(("error", "message")):
            found["type"] = "error"
        return fitted(found, Event, _NEEDED.get(str(found.get("type")), ()))


def decode_sse_event(message: bytes) -> Event:
    """Decodes as `read_event`, and knows the mark at the end of some SSE streams."""
    return DONE if message == b"[DONE]" else read_event(message)


def decode_response(message: bytes) -> Event:
    """Decodes a whole response, or an error, that came in place of a stream."""
    try:
        response = _decode_whole(message)
    except msgspec.ValidationError:
        return read_event(message)
    return Event("response.completed", response=response)


def decode_sse_events(messages: list[bytes]) -> list[Event]:
    """Decodes events that came together, of which only the last may be the mark of the end.

    An odd field is an error, as `decode_event` has it.
    """
    if messages and messages[-1] == b"[DONE]":
        return [*map(decode_event, messages[:-1]), DONE]
    return list(map(decode_event, messages))
