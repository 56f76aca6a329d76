"""Reads steer events, and writes the answers to them and to injections."""

from typing import Any

import msgspec

from backends.contract import ContextItem, Message
from gateway.wire.errors import ProtocolError
from gateway.wire.events import ResponseInject, ResponseSteer
from gateway.wire.items import parse_input

_encode = msgspec.json.encode


class Steer(msgspec.Struct, frozen=True):
    """Is an accepted steer, which a successor or a failure will follow."""

    id: str
    response_id: str
    items: tuple[ContextItem, ...]
    input: Any  # as sent
    arrived_us: int

    def fields(self) -> bytes:
        """Writes the fields of `response.steer.accepted`."""
        return b'"steer":' + _encode({"id": self.id, "previous_response_id": self.response_id})

    def pending_fields(self, open_calls: tuple[dict[str, str], ...]) -> bytes:
        """Writes the fields of `response.steer.pending`: outputs must come first."""
        reason = b',"reason":"waiting_for_required_input","required_input":'
        return self.fields() + reason + _encode(open_calls)


def parse_steer(event: ResponseSteer, max_tokens: int | None = None) -> tuple[ContextItem, ...]:
    """Reads the user messages of a steer, or raises `invalid_input`."""
    value: Any = event.input
    if not isinstance(event.previous_response_id, str):
        complaint = "'previous_response_id' must name the response to steer"
        raise _invalid(complaint, "previous_response_id")
    if isinstance(value, list):
        for entry in value:
            kind = entry.get("type", "message") if isinstance(entry, dict) else None
            if kind != "message" or entry.get("role") != "user" or not entry.get("content"):
                raise _invalid("'input' may hold user messages only")
    elif not isinstance(value, str):
        raise _invalid("'input' must be a string or an array of user messages")
    if not value:
        raise _invalid("'input' must not be empty")
    raws = value if isinstance(value, str) else [msgspec.Raw(_encode(entry)) for entry in value]
    try:
        parsed = parse_input(raws, max_tokens=max_tokens)
    except ProtocolError as error:
        raise _invalid(error.message.removesuffix("."), error.param or "input") from None
    items = tuple(item for item in parsed.items if isinstance(item, ContextItem))
    assert all(isinstance(item.item, Message) for item in items)
    return items


def _invalid(complaint: str, param: str = "input") -> ProtocolError:
    return ProtocolError("invalid_input", f"Invalid steer: {complaint}.", param=param)


def steer_failed(fields: bytes, stream_id: str | None, number: int) -> bytes:
    """Writes `response.steer.failed` for a steer without a running target."""
    head = b'{"type":"response.steer.failed","sequence_number":%d,' % number
    tail = b"}" if stream_id is None else b',"stream_id":' + _encode(stream_id) + b"}"
    return head + fields + tail


def failed_fields(
    error: ProtocolError, response_id: str, value: Any, steer_id: str | None = None
) -> bytes:
    """Writes the fields of `response.steer.failed`; an accepted steer has its `steer_id`."""
    steer: dict[str, Any] = {"previous_response_id": response_id, "input": value}
    if steer_id is not None:
        steer["id"] = steer_id
    said = {"type": "invalid_request_error", "code": error.code, "message": error.message}
    if error.param is not None:
        said["param"] = error.param
    return b'"steer":' + _encode(steer) + b',"error":' + _encode(said)


def inject_failed(event: ResponseInject) -> bytes:
    """Writes `response.inject.failed`: no agent runs here that would take input amid its work."""
    message = "No hosted agent waits for input here. Send the items in a response.create."
    failed = {
        "type": "response.inject.failed",
        "sequence_number": 0,
        "response_id": event.response_id,
        "input": event.input if isinstance(event.input, list) else [],
        "error": {"code": "response_not_found", "message": message},
    }
    return _encode(failed)
