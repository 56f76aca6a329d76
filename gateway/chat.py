"""`POST /v1/chat/completions`: the same pipeline under the older protocol."""

from typing import Annotated, Any, Literal

import msgspec
from litestar.types import Receive
from msgspec import Meta

from backends.contract import (
    CustomToolCall,
    Delta,
    DeltaKind,
    FunctionCall,
    Item,
    Message,
    TextFormat,
    TextPart,
    Usage,
)
from gateway.errors import ProtocolError, from_validation
from gateway.gateway import Gateway
from gateway.http import JSON, Answer, EventStream, Exchange
from gateway.ids import new_id
from gateway.intake import ParsedCreate, parse_create
from gateway.outbox import Outbox
from gateway.response import Ending
from gateway.wire import CreateBody, Effort, Metadata, ReasoningParam, ServiceTier, not_json
from router.task import Tenant

_encode = msgspec.json.encode


class _CallFunction(msgspec.Struct, frozen=True):
    name: str
    arguments: str = ""


class _CallCustom(msgspec.Struct, frozen=True):
    name: str
    input: str = ""


class _Call(msgspec.Struct, frozen=True):
    """A tool call of an assistant message; it has one of the two."""

    id: str
    function: _CallFunction | None = None
    custom: _CallCustom | None = None


class _ChatMessage(msgspec.Struct, frozen=True):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Any = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None


class _StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool | None = None


class ChatBody(msgspec.Struct, frozen=True, kw_only=True):
    """Body of the request; fields that have no meaning here are ignored."""

    model: Annotated[str, Meta(min_length=1, max_length=256)]
    messages: Annotated[list[_ChatMessage], Meta(min_length=1)]
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    n: int | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1)] | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    response_format: dict[str, Any] | None = None
    reasoning_effort: Effort | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    metadata: Metadata | None = None
    service_tier: ServiceTier | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None
    user: str | None = None


_bodies = msgspec.json.Decoder(ChatBody)

MAX_STOPS = 4  # OpenAI's limit


def parse_chat(body: bytes, max_tokens: int | None = None) -> tuple[ChatBody, ParsedCreate]:
    """A chat request as the Responses request that means the same; it is never stored.

    Raises:
        ProtocolError: Naming the field.
    """
    try:
        chat = _bodies.decode(body)
    except msgspec.ValidationError as error:
        raise from_validation(error, ChatBody) from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise not_json(error) from None
    if chat.n is not None and chat.n != 1:
        message = f"Invalid 'n': expected 1, got {chat.n}. Send one request per choice."
        raise ProtocolError("unsupported_parameter", message, param="n")
    stops = (chat.stop,) if isinstance(chat.stop, str) else tuple(chat.stop or ())
    if len(stops) > MAX_STOPS or not all(stops):
        message = f"Invalid 'stop': expected up to {MAX_STOPS} non-empty strings."
        raise ProtocolError("invalid_value", message, param="stop")
    items, places = _input_items(chat.messages)
    create = CreateBody(
        model=chat.model,
        input=[msgspec.Raw(_encode(item)) for item in items],
        store=False,
        tools=[msgspec.Raw(_encode(_flat_tool(tool))) for tool in chat.tools or ()],
        tool_choice=_flat_choice(chat.tool_choice),
        parallel_tool_calls=chat.parallel_tool_calls,
        max_output_tokens=chat.max_completion_tokens or chat.max_tokens,
        reasoning=ReasoningParam(chat.reasoning_effort) if chat.reasoning_effort else None,
        temperature=chat.temperature,
        top_p=chat.top_p,
        metadata=chat.metadata,
        service_tier=chat.service_tier,
        prompt_cache_key=chat.prompt_cache_key,
        safety_identifier=chat.safety_identifier,
        user=chat.user,
    )
    try:
        parsed = parse_create(create, f"resp_{new_id()}", max_tokens=max_tokens)
    except ProtocolError as error:
        raise _in_chat_terms(error, places) from None
    parsed = msgspec.structs.replace(
        parsed, stop=stops, seed=chat.seed, text_format=_text_format(chat.response_format)
    )
    return chat, parsed


def _in_chat_terms(error: ProtocolError, places: list[str]) -> ProtocolError:
    """An error about an item as one about the message that it came from."""
    item, bracket, _ = (error.param or "").partition("]")
    number = item.removeprefix("input[")
    if not bracket or not number.isdecimal():
        return error
    item, place = f"{item}]", places[int(number)]
    assert error.param is not None
    message = error.message.replace(item, place)
    return ProtocolError(error.code, message, param=error.param.replace(item, place, 1))


def _input_items(messages: list[_ChatMessage]) -> tuple[list[dict[str, Any]], list[str]]:
    """Messages as Responses items; an assistant's calls become items of their own.

    Returns the items, and for each the place it came from.
    """
    items: list[dict[str, Any]] = []
    places: list[str] = []
    for index, message in enumerate(messages):
        place = f"messages[{index}]"
        if message.role in ("tool", "function"):
            if message.tool_call_id is None:
                error = f"Missing required parameter: '{place}.tool_call_id'."
                param = f"{place}.tool_call_id"
                raise ProtocolError("missing_required_parameter", error, param=param)
            output = _content(message.content, place)
            items.append(
                {"type": "function_call_output", "call_id": message.tool_call_id, "output": output}
            )
        elif message.content is None and message.role != "assistant":
            error = f"Missing required parameter: '{place}.content'."
            param = f"{place}.content"
            raise ProtocolError("missing_required_parameter", error, param=param)
        elif message.content is not None or not message.tool_calls:
            items.append({"role": message.role, "content": _content(message.content, place)})
        for number, call in enumerate(message.tool_calls or ()):
            items.append(_call_item(call, f"{place}.tool_calls[{number}]"))
        places += [place] * (len(items) - len(places))
    return items, places


def _call_item(call: _Call, place: str) -> dict[str, Any]:
    item: dict[str, Any] = {"type": "function_call", "call_id": call.id}
    if call.custom is not None:
        return item | {"type": "custom_tool_call", **msgspec.structs.asdict(call.custom)}
    if call.function is None:
        message = f"Missing required parameter: '{place}.function'."
        raise ProtocolError("missing_required_parameter", message, param=f"{place}.function")
    return item | msgspec.structs.asdict(call.function)


def _content(content: Any, place: str) -> str | list[dict[str, Any]]:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        message = f"Invalid '{place}.content': expected a string or an array of parts."
        raise ProtocolError("invalid_type", message, param=f"{place}.content")
    parts: list[dict[str, Any]] = []
    for part in content:
        if part.get("type") == "image_url":
            image = part.get("image_url")
            image = image if isinstance(image, dict) else {"url": image}
            parts.append(
                {
                    "type": "input_image",
                    "image_url": image.get("url"),
                    "detail": image.get("detail"),
                }
            )
        elif part.get("type") == "file":
            file = part.get("file")
            parts.append({"type": "input_file", **(file if isinstance(file, dict) else {})})
        else:
            parts.append(part)
    return parts


def _flat_tool(tool: dict[str, Any]) -> dict[str, Any]:
    """A chat tool in the flat form of Responses."""
    kind = tool.get("type")
    nested = tool.get(kind) if isinstance(kind, str) else None
    return {"type": kind, **nested} if isinstance(nested, dict) else tool


def _flat_choice(choice: Any) -> msgspec.Raw:
    if isinstance(choice, dict) and isinstance(choice.get("allowed_tools"), dict):
        allowed = choice["allowed_tools"]
        tools = allowed.get("tools")
        if isinstance(tools, list):
            tools = [_flat_tool(tool) if isinstance(tool, dict) else tool for tool in tools]
        choice = {"type": "allowed_tools", "mode": allowed.get("mode", "auto"), "tools": tools}
    elif isinstance(choice, dict):
        choice = _flat_tool(choice)
    return msgspec.Raw(_encode(choice))


def _text_format(response_format: dict[str, Any] | None) -> TextFormat:
    kind = (response_format or {}).get("type", "text")
    if kind == "json_schema":
        assert response_format is not None
        wrapped = response_format.get("json_schema")
        schema = wrapped.get("schema") if isinstance(wrapped, dict) else None
        if not isinstance(schema, dict):
            message = "Missing required parameter: 'response_format.json_schema.schema'."
            raise ProtocolError("missing_required_parameter", message, param="response_format")
        assert isinstance(wrapped, dict)
        name, strict = wrapped.get("name"), wrapped.get("strict")
        return TextFormat(
            "json_schema",
            schema,
            name if isinstance(name, str) else "answer",
            strict if isinstance(strict, bool) else None,
        )
    if kind not in ("text", "json_object"):
        message = "Invalid 'response_format.type': expected text, json_object or json_schema."
        raise ProtocolError("invalid_value", message, param="response_format.type")
    return TextFormat(kind)


# Not of OpenAI's protocol: what DeepSeek's and vLLM's servers call what a model says before its
# answer, and chat clients show apart (their documentation, 2026).
COMMENTARY = "reasoning_content"


class ChatStream:
    """Writes one answer as chat completion chunks, into an outbox if it is streamed.

    Reasoning has no place in this protocol: its tokens show in the usage only. Nor have phases: the
    content is the answer, and commentary goes where chat clients look for what came before it.
    """

    def __init__(self, parsed: ParsedCreate, chat: ChatBody, outbox: Outbox | None) -> None:
        self.id = f"chatcmpl-{parsed.id.removeprefix('resp_')}"
        self._parsed = parsed
        self._outbox = outbox
        self._include_usage = bool(chat.stream_options and chat.stream_options.include_usage)
        self._head: dict[str, Any] = {}
        self._routing: dict[str, Any] = {}
        self._texts: list[str] = []
        self._comments: list[str] = []
        self._pending: list[str] = []
        self._is_comment = False  # what is pending
        self._calls: list[dict[str, Any]] = []
        self._source = -1  # the engine's index of the item being written
        self._num_events = 0
        self._is_open = False
        self._ended = False
        self._ending: Ending | None = None
        self.body = b""

    def open(self, created_at: int, model: str, routing: dict[str, Any]) -> None:
        """The first chunk: the role."""
        self._is_open = True
        self._head = {"id": self.id, "created": created_at, "model": model}
        self._routing = routing
        self._chunk({"role": "assistant", "content": "", "refusal": None})

    def push(self, delta: Delta, phase: str | None) -> None:
        """A piece of text goes out with the flush, a piece of a call at once."""
        if delta.kind is DeltaKind.REASONING:
            return
        if delta.kind is DeltaKind.TEXT:
            is_comment = phase == "commentary"
            if is_comment != self._is_comment:
                self.flush()
                self._is_comment = is_comment
            said = self._comments if is_comment else self._texts
            new_paragraph = delta.index != self._source and bool(said)
            self._source = delta.index
            self._pending.append("\n\n" + delta.text if new_paragraph else delta.text)
            if not said or self._outbox is None:
                self.flush()
            else:
                self._outbox.mark(self)
            return
        self.flush()
        kind, field = _CALL_FIELDS[delta.kind]
        if delta.index != self._source:
            self._source = delta.index
            call = {"id": delta.call_id, "type": kind, kind: {"name": delta.name, field: ""}}
            self._calls.append(call)
            self._chunk({"tool_calls": [{"index": len(self._calls) - 1, **call}]})
        self._calls[-1][kind][field] += delta.text
        piece = {"index": len(self._calls) - 1, kind: {field: delta.text}}
        self._chunk({"tool_calls": [piece]})

    def flush(self) -> None:
        """Send the text that has gathered as one chunk."""
        if self._pending:
            text = "".join(self._pending)
            self._pending.clear()
            if self._is_comment:
                self._comments.append(text)
                self._chunk({COMMENTARY: text})
            else:
                self._texts.append(text)
                self._chunk({"content": text})

    def end_item(self) -> None:
        """Nothing marks the end of an item here."""
        self.flush()

    def update(self, routing: dict[str, Any]) -> None:
        """Only the first chunk and the whole answer have a place for it."""

    def send_about(self, event_type: str, fields: bytes) -> None:
        """Chunks have no such events."""

    def heartbeat(self) -> None:
        """A chunk without content, for clients that count silence."""
        if self._is_open and not self._ended:
            self._chunk({})

    def close_items(self, ending: Ending) -> None:
        """Send what is left. Commentary that nothing followed stands as the answer."""
        self.flush()
        if ending.status == "completed" and not self._texts and not self._calls:
            self._is_comment = False
            self._pending = self._comments[:]
            self.flush()

    def answered_by(self, model: str) -> None:
        """Name the model whose answer it became; chunks already sent keep the one they named."""
        self._head["model"] = model

    def finish(self, ending: Ending, completed_at: int, routing: dict[str, Any]) -> bytes:
        """The whole answer as a `chat.completion`."""
        self._ending = ending
        message: dict[str, Any] = {"role": "assistant", "refusal": None, "annotations": []}
        text = "".join(self._texts)
        message["content"] = None if self._calls and not text else text
        if self._comments:
            message[COMMENTARY] = "".join(self._comments)
        if self._calls:
            message["tool_calls"] = self._calls
        choice = {"index": 0, "message": message, "logprobs": None}
        choice["finish_reason"] = self._finish_reason(ending)
        self.body = _encode(
            {
                **self._head,
                "object": "chat.completion",
                "choices": [choice],
                "usage": _usage(ending.usage),
                "service_tier": "default",
                "system_fingerprint": None,
                "routing": routing,
            }
        )
        return self.body

    def send_terminal(self) -> None:
        """The finish reason, the usage if asked for, and the end of the stream."""
        assert self._ending is not None
        self._ended = True
        fault = self._ending.fault()
        if fault is not None:
            self._send(fault.body())
        else:
            self._chunk({}, self._finish_reason(self._ending))
            if self._include_usage:
                tail = {"object": "chat.completion.chunk", "choices": []}
                self._send({**self._head, **tail, "usage": _usage(self._ending.usage)})
        if self._outbox is not None:
            self._outbox.send(b"data: [DONE]\n\n")

    def _finish_reason(self, ending: Ending) -> str:
        if ending.reason == "max_output_tokens":
            return "length"
        if ending.reason == "content_filter":
            return "content_filter"
        return "tool_calls" if self._calls else "stop"

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> None:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        chunk = {**self._head, "object": "chat.completion.chunk", "choices": [choice]}
        chunk |= {"service_tier": "default", "system_fingerprint": None}
        if self._include_usage:
            chunk["usage"] = None
        if self._num_events == 0:
            chunk["routing"] = self._routing
        self._send(chunk)

    def _send(self, chunk: dict[str, Any]) -> None:
        self._num_events += 1
        if self._outbox is not None:
            self._outbox.send(b"data: " + _encode(chunk) + b"\n\n")

    @property
    def output(self) -> tuple[Item, ...]:
        """What was said; chat completions are not stored, so nobody continues from it."""
        texts = (Message("assistant", (TextPart("".join(self._texts)),)),) if self._texts else ()
        return (*texts, *(_call_of(call) for call in self._calls))

    @property
    def is_open(self) -> bool:
        """Whether its first chunk was made."""
        return self._is_open

    @property
    def ended(self) -> bool:
        """Whether its last chunk was made."""
        return self._ended

    @property
    def num_events(self) -> int:
        """How many chunks it has made."""
        return self._num_events


_CALL_FIELDS = {
    DeltaKind.FUNCTION_CALL: ("function", "arguments"),
    DeltaKind.CUSTOM_CALL: ("custom", "input"),
}


def _call_of(call: dict[str, Any]) -> Item:
    if call["type"] == "custom":
        return CustomToolCall(call["id"], call["custom"]["name"], call["custom"]["input"])
    return FunctionCall(call["id"], call["function"]["name"], call["function"]["arguments"])


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.num_input_tokens,
        "completion_tokens": usage.num_output_tokens,
        "total_tokens": usage.num_input_tokens + usage.num_output_tokens,
        "prompt_tokens_details": {
            "cached_tokens": usage.num_cached_tokens,
            "audio_tokens": 0,
            "cache_write_tokens": 0,
        },
        "completion_tokens_details": {
            "reasoning_tokens": usage.num_reasoning_tokens,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


async def create_chat_completion(
    gw: Gateway, tenant: Tenant, content: bytes, receive: Receive
) -> Answer:
    """`POST /v1/chat/completions`; `receive` tells when the client leaves.

    Raises:
        ProtocolError: Before the first chunk; afterwards errors are chunks.
    """
    chat, parsed = parse_chat(content, gw.max_context_tokens)
    outbox = Outbox(gw.rounds) if chat.stream else None
    stream = ChatStream(parsed, chat, outbox)
    exchange = Exchange(gw, tenant, parsed, stream)
    if outbox is None:
        await exchange.whole(receive)
        return Answer(JSON.encode(), exchange.headers(), stream.body)
    await exchange.until_open()
    return EventStream(gw, outbox, exchange.pump, exchange.headers())
