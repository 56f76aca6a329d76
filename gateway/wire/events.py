"""Decodes client events and request bodies into Structs; nothing else decodes wire input.

Unknown fields are ignored, since clients are newer than we are; known fields of a wrong type or
value are refused with the field's path.
"""

import re
from types import NoneType
from typing import Annotated, Any, Literal, TypeVar, get_args

import msgspec
from msgspec import Meta

from gateway.wire.errors import ProtocolError, from_validation
from gateway.wire.fields import refusal_of
from router.lone_surrogates import lone_surrogate
from router.policy.policy import AUTO

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
ServiceTier = Literal["auto", "default", "flex", "scale", "priority", "fast", "ultrafast"]

# Responses WebSocket guide: 1 to 256 of these characters.
STREAM_ID_MAX_CHARS = 256
_STREAM_ID = re.compile(rf"[\w.-]{{1,{STREAM_ID_MAX_CHARS}}}", re.ASCII)

_T = TypeVar("_T")

NULL = msgspec.Raw(b"null")  # of fields that may be any JSON: msgspec takes no `Raw | None`


class ReasoningParam(msgspec.Struct, frozen=True, gc=False):
    """Carries `reasoning` of a request."""

    effort: Effort | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None


class TextParam(msgspec.Struct, frozen=True, gc=False):
    """Carries `text` of a request."""

    format: msgspec.Raw = NULL
    verbosity: Literal["low", "medium", "high"] | None = None


class CacheOptions(msgspec.Struct, frozen=True, gc=False):
    """Carries `prompt_cache_options` of a request."""

    prewarm: bool | None = None


class BackgroundOptions(msgspec.Struct, frozen=True, gc=False):
    """Carries `background_options` of a request."""

    completion_window: Literal["soonest", "2h", "8h"] | None = None


class ContextManagement(msgspec.Struct, frozen=True, gc=False):
    """Carries an entry of `context_management` of a request."""

    type: Literal["compaction"]
    compact_threshold: Annotated[int, Meta(ge=1000)] | None = None  # the protocol's least


ModelName = Annotated[str, Meta(min_length=1, max_length=256)]

Metadata = Annotated[
    dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]],
    Meta(max_length=16),
]


class GenerationBody(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Carries what bodies of Responses and chat share; null means the default throughout."""

    model: ModelName
    parallel_tool_calls: bool | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    metadata: Metadata | None = None
    service_tier: ServiceTier | None = None
    prompt_cache_key: str | None = None
    user: str | None = None
    min_tokens: Annotated[int, Meta(ge=0)] | None = None  # vLLM's, and so is the next
    ignore_eos: bool | None = None
    moderation: None = None  # refused, as `gateway.wire.fields` says


class CreateBody(GenerationBody, frozen=True, kw_only=True, gc=False):
    """Is the body of `POST /v1/responses`, and of `response.create`."""

    input: str | list[msgspec.Raw] | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: Any = None
    prompt: None = None  # refused
    include: Annotated[list[str], Meta(max_length=64)] | None = None
    store: bool | None = None
    background: bool | None = None
    background_options: BackgroundOptions | None = None
    stream: bool | None = None
    tools: Annotated[list[msgspec.Raw], Meta(max_length=1024)] | None = None
    tool_choice: msgspec.Raw = NULL
    max_output_tokens: Annotated[int, Meta(ge=1)] | None = None
    max_tool_calls: Annotated[int, Meta(ge=1)] | None = None
    reasoning: ReasoningParam | None = None
    text: TextParam | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    context_management: Annotated[list[ContextManagement], Meta(max_length=16)] | None = None
    prompt_cache_options: CacheOptions | None = None
    safety_identifier: Annotated[str, Meta(max_length=128)] | None = None
    client_metadata: msgspec.Raw = NULL  # Codex' own, read by `gateway.wire.agents`


class CountBody(CreateBody, frozen=True, kw_only=True, gc=False):
    """Is the body of `POST /v1/responses/input_tokens`, which need not say where it would run."""

    model: ModelName | None = AUTO  # type: ignore[assignment]  # null is taken, as OpenAI's does


class CompactBody(CreateBody, frozen=True, kw_only=True, gc=False):
    """Body of `POST /v1/responses/compact`, whose model may be null by the SDK's types."""

    model: ModelName | None  # type: ignore[assignment]  # null: the router's choice


class ResponseCreate(CreateBody, frozen=True, kw_only=True, tag="response.create", gc=False):
    """Asks for a response on the socket."""

    stream_id: Any = msgspec.UNSET  # checked by `stream_id_of`, so that its error has its own code
    generate: bool | None = None


class ResponseSteer(msgspec.Struct, frozen=True, tag="response.steer", forbid_unknown_fields=True):
    """Adds user input to a running response; its failures are `response.steer.failed`."""

    previous_response_id: Any = None
    input: Any = None


class ResponseInject(msgspec.Struct, frozen=True, tag="response.inject", gc=False):
    """Brings tool outputs to a hosted agent; we host none."""

    response_id: str
    input: Any = None


class ResponseCancel(msgspec.Struct, frozen=True, tag="response.cancel", gc=False):
    """Stops a response of this connection; it is our extension."""

    response_id: str = ""
    stream_id: Any = msgspec.UNSET  # without an id, as of one that waits: the stream that it is on


class ResponseRejoin(msgspec.Struct, frozen=True, tag="response.rejoin", gc=False):
    """Goes on with a response whose connection was lost; it is our extension."""

    response_id: str
    starting_after: int = -1  # the number of the last event that came
    stream_id: Any = msgspec.UNSET


class ResponseProcessed(msgspec.Struct, frozen=True, tag="response.processed", gc=False):
    """Comes from older Codex builds, and asks for nothing."""


ClientEvent = (
    ResponseCreate
    | ResponseSteer
    | ResponseInject
    | ResponseCancel
    | ResponseRejoin
    | ResponseProcessed
)

CLIENT_EVENT_TYPES: tuple[str, ...] = tuple(
    kind.__struct_config__.tag for kind in get_args(ClientEvent)
)

_events: msgspec.json.Decoder[ClientEvent] = msgspec.json.Decoder(ClientEvent)


class BadFrameError(Exception):
    """A frame cannot be decoded; holds the error to send, and its stream."""

    def __init__(self, error: ProtocolError, stream_id: str | None, frame: dict[str, Any]) -> None:
        super().__init__(error)
        self.error = error
        self.stream_id = stream_id
        self.frame = frame  # as far as it is an object


def decode_event(frame: str) -> ClientEvent:
    """Decodes a text frame.

    Raises `BadFrameError` if it is no JSON object, or its type or that of a field is wrong.
    """
    try:
        try:
            return _events.decode(frame)
        except msgspec.ValidationError as error:
            # It stops at the first wrong field: what follows may not even be JSON.
            raise _event_error(frame, error) from None
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
        raise BadFrameError(not_json(error, text=frame), None, {}) from None


def decode(text: bytes | msgspec.Raw, kind: type[_T], json_path: str = "") -> _T:
    """Decodes a body, or the part of one at `json_path`, or raises `ProtocolError`."""
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError as error:
        raise (refusal_of(error) or from_validation(error, kind, json_path, text)) from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        # A Raw is scanned, not read, until here.
        raise not_json(error, json_path or None, text) from None


def stream_id_of(value: object) -> str | None:
    """Checks the `stream_id` of a create, or raises `invalid_stream_id`; None is the default."""
    if value is msgspec.UNSET:
        return None
    if isinstance(value, str) and _STREAM_ID.fullmatch(value):
        return value
    got = f"{value[:64]!r}" if isinstance(value, str) else _json_type(value)
    raise ProtocolError(
        "invalid_stream_id",
        f"Expected 'stream_id' to be 1 to {STREAM_ID_MAX_CHARS} letters, digits, '_', '-' or '.', "
        f"got {got}. Leave it out for the default stream.",
        param="stream_id",
    )


def not_json(
    error: Exception, param: str | None = None, text: str | bytes | msgspec.Raw = b""
) -> ProtocolError:
    """Makes the error for text that is not JSON; `param` is its path."""
    detail = str(error)
    if isinstance(error, RecursionError):
        detail = "nested too deeply"
    elif not _bytes_of(text).strip():
        detail = "nothing was sent"
    elif (lone := lone_surrogate(_bytes_of(text))) is not None:
        detail = lone
    elif isinstance(error, UnicodeError):
        detail = "not UTF-8"
    where = f" in '{param}'" if param else ""
    message = f"Expected one JSON object, got invalid JSON{where}: {detail}."
    return ProtocolError("invalid_json", message, param=param)


def _bytes_of(text: str | bytes | msgspec.Raw) -> bytes:
    return text.encode("utf-8", "replace") if isinstance(text, str) else bytes(text)


def _event_error(frame: str, validation: msgspec.ValidationError) -> BadFrameError:
    """Says what is wrong with a JSON frame: the type first, then the field."""
    raw = msgspec.json.decode(frame)
    expected = ", ".join(f"'{name}'" for name in CLIENT_EVENT_TYPES)
    if not isinstance(raw, dict):
        message = f"Expected one JSON object per message, got {_json_type(raw)}."
        return BadFrameError(ProtocolError("invalid_type", message), None, {})
    try:
        stream_id = stream_id_of(raw.get("stream_id", msgspec.UNSET))
    except ProtocolError as error:
        return BadFrameError(error, None, raw)
    kind = raw.get("type")
    if isinstance(kind, str) and kind in CLIENT_EVENT_TYPES:
        fault = refusal_of(validation) or from_validation(validation, ClientEvent, text=frame)
        return BadFrameError(fault, stream_id, raw)
    if kind is None:
        code, complaint = "missing_required_parameter", "Missing required parameter: 'type'."
    elif isinstance(kind, str):
        code, complaint = "unknown_event_type", f"Unknown event type '{kind[:64]}'."
    else:
        code, complaint = "invalid_type", f"Invalid 'type': got {_json_type(kind)}."
    message = f"{complaint} Expected one of {expected}."
    return BadFrameError(ProtocolError(code, message, param="type"), stream_id, raw)


def _json_type(value: object) -> str:
    names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean"}
    return (names | {NoneType: "null"}).get(type(value), "a number")
