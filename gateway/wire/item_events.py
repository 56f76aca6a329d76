"""Names the events of each kind of output item, and the pieces that they are written from."""

from collections.abc import Callable
from functools import cache

import msgspec

from backends.contract import DeltaKind
from gateway.wire.output_items import OutputText, RefusalText

LOGPROBS = b',"logprobs":[]'


@cache
def head_of(event_type: str) -> bytes:
    """Returns the beginning of an event, up to its number."""
    return b'{"type":"%b","sequence_number":' % event_type.encode()


class ItemEvents(msgspec.Struct, frozen=True):
    """Names the events of a kind of item."""

    id_prefix: str
    delta: str  # the event with more of its text
    done: str  # the event with all of it
    text: bytes  # the text's field in that
    part: Callable[[str], msgspec.Struct]  # of a message's content, with that text
    no_text: bytes  # such a part before any of its text, as a field
    logprobs: bytes  # a field of both events


def _events(
    id_prefix: str,
    event: str,
    field: str,
    part: Callable[[str], msgspec.Struct] = OutputText,
    logprobs: bytes = b"",
) -> ItemEvents:
    text, no_text = b',"%b":' % field.encode(), b',"part":' + msgspec.json.encode(part(""))
    return ItemEvents(id_prefix, f"{event}.delta", f"{event}.done", text, part, no_text, logprobs)


KINDS = {
    DeltaKind.TEXT: _events("msg", "response.output_text", "text", OutputText, LOGPROBS),
    DeltaKind.REASONING: _events("rs", "response.reasoning_summary_text", "text"),
    DeltaKind.FUNCTION_CALL: _events("fc", "response.function_call_arguments", "arguments"),
    DeltaKind.CUSTOM_CALL: _events("ctc", "response.custom_tool_call_input", "input"),
}
REFUSALS = _events("msg", "response.refusal", "refusal", RefusalText)


def suffix_of(stream_id: str | None) -> bytes:
    """Returns the end of each event on a stream."""
    return b"}" if stream_id is None else b',"stream_id":' + msgspec.json.encode(stream_id) + b"}"
