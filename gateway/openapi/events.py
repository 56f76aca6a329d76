"""Describes the events of streams and of the socket, as Structs: for the document alone."""

from typing import Any

import msgspec

from gateway.openapi.shapes import AnOutputItem, ResponseObject
from gateway.wire.output_items import OutputText, RefusalText, SummaryText
from gateway.wire.routing import ContextUse


class Numbered(msgspec.Struct, kw_only=True, tag_field="type"):
    """Carries what all have: numbers without gaps, and the stream where a socket has several."""

    sequence_number: int
    stream_id: str | msgspec.UnsetType = msgspec.UNSET


class ResponseEvent(Numbered, tag=False):
    """Carries the whole response as it is then."""

    response: ResponseObject  # type: ignore[valid-type]  # made of the Structs that write it


class InItem(Numbered, tag=False):
    """Says which output item the event is about."""

    item_id: str
    output_index: int


def _event(
    name: str, doc: str, *fields: tuple[str, Any], base: type[msgspec.Struct] = InItem
) -> type[msgspec.Struct]:
    words = "".join(word.title() for word in name.split("."))
    return msgspec.defstruct(
        words.replace("_", ""),
        fields,
        bases=(base,),
        namespace={"__doc__": doc},
        tag=name,
        kw_only=True,
    )


_Part = OutputText | RefusalText
_INDEX = ("content_index", int)
_SUMMARY = ("summary_index", int)
_LOGPROBS = ("logprobs", list[Any])
_WHOLE = (("output_index", int), ("item", AnOutputItem))

EVENTS: tuple[type[msgspec.Struct], ...] = (
    _event("response.created", "The first.", base=ResponseEvent),
    _event("response.queued", "A background response that waits.", base=ResponseEvent),
    _event(
        "response.in_progress",
        "It has begun; comes again when `routing` changes.",
        base=ResponseEvent,
    ),
    _event("response.completed", "The last of one that came to its end.", base=ResponseEvent),
    _event("response.incomplete", "The last of one that was cut.", base=ResponseEvent),
    _event("response.failed", "The last of one that failed.", base=ResponseEvent),
    _event("response.cancelled", "The last of one that was cancelled.", base=ResponseEvent),
    _event("response.output_item.added", "An item begins.", *_WHOLE, base=Numbered),
    _event("response.output_item.done", "An item is whole.", *_WHOLE, base=Numbered),
    _event("response.content_part.added", "Text begins.", _INDEX, ("part", _Part)),
    _event("response.content_part.done", "Text is whole.", _INDEX, ("part", _Part)),
    _event("response.output_text.delta", "A piece of text.", _INDEX, ("delta", str), _LOGPROBS),
    _event("response.output_text.done", "All of it.", _INDEX, ("text", str), _LOGPROBS),
    _event("response.refusal.delta", "A piece of a refusal.", _INDEX, ("delta", str)),
    _event("response.refusal.done", "All of it.", _INDEX, ("refusal", str)),
    _event("response.reasoning_summary_part.added", "A summary.", _SUMMARY, ("part", SummaryText)),
    _event("response.reasoning_summary_part.done", "All of it.", _SUMMARY, ("part", SummaryText)),
    _event("response.reasoning_summary_text.delta", "A piece of it.", _SUMMARY, ("delta", str)),
    _event("response.reasoning_summary_text.done", "All of it.", _SUMMARY, ("text", str)),
    _event("response.function_call_arguments.delta", "A piece of them.", ("delta", str)),
    _event(
        "response.function_call_arguments.done", "All of them.", ("name", str), ("arguments", str)
    ),
    _event("response.custom_tool_call_input.delta", "A piece of it.", ("delta", str)),
    _event("response.custom_tool_call_input.done", "All of it.", ("input", str)),
    _event(
        "response.compaction.compacting",
        "The context was compacted.",
        ("output_index", int),
        ("item_id", str | None),
        base=Numbered,
    ),
    _event(
        "response.waiting",
        "Ours, where asked for: its place in a full pool's queue.",
        ("response_id", str),
        ("group", str),
        ("place", int),
        ("expected_wait_ms", int),
        base=Numbered,
    ),
    _event(
        "response.context",
        "Ours, where asked for: the context window is fuller now.",
        ("response_id", str),
        *((field.name, field.type) for field in msgspec.structs.fields(ContextUse)[:4]),
        base=Numbered,
    ),
)


class LiveEvent(msgspec.Struct, kw_only=True):
    """Carries what `data` of a `snapshot` or `change` holds; a change only what is different."""

    at: float  # Unix time
    gateway: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    backends: list[dict[str, Any]] | msgspec.UnsetType = msgspec.UNSET
    pools: list[dict[str, Any]] | msgspec.UnsetType = msgspec.UNSET
    problems: list[dict[str, Any]] | msgspec.UnsetType = msgspec.UNSET
    decisions: list[dict[str, Any]] | msgspec.UnsetType = msgspec.UNSET  # those that are new
    point: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET  # of the charts
    history: list[dict[str, Any]] | msgspec.UnsetType = msgspec.UNSET  # of a snapshot
