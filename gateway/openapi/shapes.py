"""Describes answers that are written as bytes or dicts, as Structs: for the document alone."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from backends.contract import BackendGroup
from gateway.messages.blocks import MessageParam
from gateway.messages.request import MessagesBody
from gateway.wire.events import CompactBody, CountBody, CreateBody, TextParam
from gateway.wire.output_items import (
    CallOutput,
    CompactionOutput,
    MessageOutput,
    ReasoningOutput,
    ResponseUsage,
)
from gateway.wire.response_json import ResponseStart, ResponseState
from gateway.wire.routing import PoolBalance, Routing, Unrouted

REF = "#/components/schemas/{name}"
OUTPUT_ITEMS = (MessageOutput, ReasoningOutput, CallOutput, CompactionOutput)


def _any_of(*names: str) -> dict[str, Any]:
    return {"anyOf": [{"$ref": REF.format(name=name)} for name in names]}


# msgspec describes no union of Structs without tags, so these are written by hand.
_OUTPUT_ITEM = _any_of(*(kind.__name__ for kind in OUTPUT_ITEMS))
Item = Annotated[dict[str, Any], Meta(extra_json_schema={"required": ["type"]})]
AnOutputItem = Annotated[Any, Meta(extra_json_schema=_OUTPUT_ITEM)]
Routed = Annotated[Any, Meta(extra_json_schema=_any_of(Routing.__name__, Unrouted.__name__))]
BY_HAND = (*OUTPUT_ITEMS, Routing, Unrouted)  # what the names above refer to


def _fields(kind: type[msgspec.Struct], **types: Any) -> list[tuple[str, Any, Any]]:
    """Returns a Struct's fields, some of them with another type; raw JSON has null as default."""
    fields = []
    for each in msgspec.structs.fields(kind):
        default = None if isinstance(each.default, msgspec.Raw) else each.default
        given = msgspec.field(default_factory=each.default_factory)
        if each.default_factory is msgspec.NODEFAULT:
            given = msgspec.field(default=default)
        fields.append((each.name, types.get(each.name, each.type), given))
    return fields


def _described(kind: type[msgspec.Struct], **types: Any) -> type[msgspec.Struct]:
    """Makes a Struct of the same name whose types say more than those that are decoded into."""
    return msgspec.defstruct(
        kind.__name__, _fields(kind, **types), namespace={"__doc__": kind.__doc__}, kw_only=True
    )


ResponseObject = msgspec.defstruct(
    "ResponseObject",
    [
        *_fields(ResponseStart, tools=list[dict[str, Any]], tool_choice=Any),
        *_fields(ResponseState, output=list[AnOutputItem], routing=Routed),
    ],
    namespace={"__doc__": "A response: `routing` says where it ran, and why."},
    kw_only=True,
)
_Model = Annotated[str, Meta(min_length=1, max_length=256, examples=["auto"])]
_Input = Annotated[str | list[dict[str, Any]] | None, Meta(examples=["Rename x to y."])]
_OF_CREATE: dict[str, Any] = {
    "model": _Model,
    "input": _Input,
    "tools": list[Item] | None,
    "tool_choice": Any,
    "text": _described(TextParam, format=Any) | None,
    "client_metadata": Any,
}
Create = _described(CreateBody, **_OF_CREATE)
Count = _described(CountBody, **_OF_CREATE | {"model": _Model | None})
Compact = _described(CompactBody, **_OF_CREATE | {"model": _Model | None})
_AMessage = _described(MessageParam, content=str | list[Item])
Messages = _described(
    MessagesBody,
    messages=Annotated[list[_AMessage], Meta(min_length=1)],  # type: ignore[valid-type]
    tools=list[dict[str, Any]] | None,
)


class DeletedResponse(msgspec.Struct):
    """Tells that a stored response is gone."""

    id: str
    object: Literal["response"]
    deleted: bool


class TakenFeedback(msgspec.Struct):
    """Shows feedback as it was taken."""

    id: str
    object: Literal["response.feedback"]
    success: bool
    rating: float | None
    fast_success: bool | None


class InputItems(msgspec.Struct):
    """Is a page of what a response was given."""

    object: Literal["list"]
    data: list[Item]
    first_id: str | None
    last_id: str | None
    has_more: bool


class InputTokens(msgspec.Struct):
    """Says how many tokens a request would bring."""

    object: Literal["response.input_tokens"]
    input_tokens: int


class CompactedContext(msgspec.Struct):
    """Carries a shorter context that stands for a longer one."""

    id: str
    object: Literal["response.compaction"]
    created_at: int
    output: list[Item]
    usage: ResponseUsage


class ChatUsage(msgspec.Struct):
    """Counts the tokens of a chat completion."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class ChatMessage(msgspec.Struct, kw_only=True):
    """Carries the answer."""

    role: Literal["assistant"]
    content: str | None
    refusal: str | None
    reasoning_content: str | msgspec.UnsetType = msgspec.UNSET  # commentary
    tool_calls: list[dict[str, Any]] | msgspec.UnsetType = msgspec.UNSET


class ChatChoice(msgspec.Struct):
    """Carries the answer, and why it ends."""

    index: int
    message: ChatMessage
    finish_reason: Literal["stop", "length", "tool_calls", "content_filter"]


class ChatCompletion(msgspec.Struct):
    """Answers `POST /v1/chat/completions` whole."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: ChatUsage
    service_tier: str
    routing: Routed


class ChatChunk(msgspec.Struct):
    """Is a chunk of a streamed chat completion; the stream ends with `data: [DONE]`."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[dict[str, Any]]


class MessageUsage(msgspec.Struct):
    """Counts the tokens of a message."""

    input_tokens: int
    output_tokens: int


class AnthropicMessage(msgspec.Struct):
    """Answers `POST /v1/messages` whole, in Anthropic's form."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[Item]
    stop_reason: str | None
    stop_sequence: str | None
    usage: MessageUsage


class AnthropicFault(msgspec.Struct):
    """Says what is wrong, in Anthropic's form."""

    type: str
    message: str


class AnthropicError(msgspec.Struct):
    """Is an error of Anthropic's protocol."""

    type: Literal["error"]
    error: AnthropicFault
    request_id: str


class CountedTokens(msgspec.Struct):
    """Says how many tokens a request would bring, in Anthropic's form."""

    input_tokens: int


class SocketTicket(msgspec.Struct):
    """Carries what a page opens one socket with: `new WebSocket(url, protocols)`."""

    object: Literal["socket_ticket"]
    ticket: str
    protocols: list[str]
    expires_at: int  # Unix time


class Model(msgspec.Struct):
    """Names what `model` may be."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class Models(msgspec.Struct):
    """Lists all that `model` may be; `models` is for Codex."""

    object: Literal["list"]
    data: list[Model]
    models: list[dict[str, Any]]


class ModelEntry(msgspec.Struct):
    """Describes a model in Anthropic's form."""

    type: Literal["model"]
    id: str
    display_name: str
    created_at: str


class ModelPage(msgspec.Struct):
    """Is a page of models in Anthropic's form, for requests with `anthropic-version`."""

    data: list[ModelEntry]
    has_more: bool
    first_id: str | None
    last_id: str | None


class GroupUse(msgspec.Struct):
    """Counts what a tenant has used of one group."""

    tokens: int
    cost_units: int


class UsedToday(msgspec.Struct):
    """Counts what a tenant has used since midnight, UTC."""

    date: str
    ends_at: int
    tasks: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    reasoning_tokens: int
    cost_units: int
    cost_usd: float  # models without a price count nothing
    energy_joules: float  # of engines whose power is known
    groups: dict[BackendGroup, GroupUse]


class OwnUsage(msgspec.Struct):
    """Shows a tenant's own pools and use; no pools while Redis is away."""

    object: Literal["usage"]
    tenant: str
    tier: str
    degraded: bool
    pools: list[PoolBalance] | None
    today: UsedToday | None


class Alive(msgspec.Struct):
    """Tells that the process lives."""

    status: Literal["ok"]


class Readiness(msgspec.Struct, kw_only=True):
    """Tells that the gateway takes tasks; what is named takes none."""

    status: Literal["ready"]
    pools: str
    backends_down: list[str] = []
    backends_drained: list[str] = []


class NotReady(msgspec.Struct, kw_only=True):
    """Says why the gateway takes no tasks."""

    status: Literal["draining", "blind", "no engine"]
    detail: str = ""


class RelayedBody(msgspec.Struct):
    """Is a body that goes on to its model's server as it is."""

    model: str
