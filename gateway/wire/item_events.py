"""Names a response's events, and those of each kind of output item, with what they are made of."""

from functools import partial

import msgspec

from backends.contract import DeltaKind
from gateway.wire.output_items import OutputText, RefusalText, SummaryText

_encode = msgspec.json.encode
_HEAD = b'{"type":"'
TYPE_AT = len(_HEAD)  # where an event's type begins


# Events that the next one implies; they may be held for it a little.
OPENING = frozenset({"response.created", "response.in_progress"})
# Each response has one of these, as its last event.
TERMINAL = frozenset({"response.completed", "response.incomplete", "response.failed"})

EVENT = _HEAD + b'%b","sequence_number":%d,%b%b'  # type, number, fields, its stream's suffix


def format_of(event_type: str, fields: bytes) -> bytes:
    """Returns an event as a format: of its number, what is in `fields`, and its stream's suffix."""
    return b'%b%b","sequence_number":%%d,%b%%b' % (_HEAD, event_type.encode(), fields)


CREATED = format_of("response.created", b'"response":%b')
IN_PROGRESS = format_of("response.in_progress", b'"response":%b')
ITEM_ADDED = format_of("response.output_item.added", b'"output_index":%d,"item":%b')
ITEM_DONE = format_of("response.output_item.done", b'"output_index":%d,"item":%b')


class ItemEvents(msgspec.Struct, frozen=True):
    """Holds the events of a kind of item, as formats (`format_of`); an item is its id and index."""

    id_prefix: str
    delta: str  # the type of the event with more of its text
    delta_format: bytes  # of that: item and suffix make the format of its number and text
    done: bytes  # the event with all of it: item, more fields, text
    part_added: bytes  # the event that begins a part of its content: item; of calls empty
    part_done: bytes  # the event that ends it: item, text


def _events(
    id_prefix: str,
    event: str,
    field: str,
    *,
    parts: str = "",
    part: OutputText | RefusalText | SummaryText | None = None,
    where: bytes = b"",
    logprobs: bytes = b"",
) -> ItemEvents:
    """Makes the formats; `part` is empty, and `where` its place in the item."""
    item = b'"item_id":"%b","output_index":%d' + where
    begun = item + b',"part":' + _encode(part)
    delta = b'%b%b.delta","sequence_number":%%%%d,' % (_HEAD, event.encode())
    delta += item + logprobs + b',"delta":%%b%b'
    whole = item + logprobs + b'%b,"' + field.encode() + b'":%b'
    return ItemEvents(
        id_prefix,
        f"{event}.delta",
        delta,
        format_of(f"{event}.done", whole),
        format_of(f"{parts}.added", begun) if parts else b"",
        format_of(f"{parts}.done", begun.replace(b'""', b"%b")) if parts else b"",
    )


_message_events = partial(
    _events, "msg", parts="response.content_part", where=b',"content_index":0'
)
KINDS = {
    DeltaKind.TEXT: _message_events(
        "response.output_text", "text", part=OutputText(""), logprobs=b',"logprobs":[]'
    ),
    DeltaKind.REASONING: _events(
        *("rs", "response.reasoning_summary_text", "text"),
        parts="response.reasoning_summary_part",
        part=SummaryText("summary_text", ""),
        where=b',"summary_index":0',
    ),
    DeltaKind.FUNCTION_CALL: _events("fc", "response.function_call_arguments", "arguments"),
    DeltaKind.CUSTOM_CALL: _events("ctc", "response.custom_tool_call_input", "input"),
}
REFUSALS = _message_events("response.refusal", "refusal", part=RefusalText(""))


def type_of(event: bytes) -> str:
    """Returns the type of an event."""
    return event[TYPE_AT : event.index(b'"', TYPE_AT)].decode()


def suffix_of(stream_id: str | None) -> bytes:
    """Returns the end of each event on a stream."""
    return b"}" if stream_id is None else b',"stream_id":' + msgspec.json.encode(stream_id) + b"}"
