"""Reads a chat completions request as the Responses request that means the same."""

from operator import attrgetter
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from backends.contract import Extras, Message, TextFormat, TextPart
from gateway.chat.terms import ChatTerms
from gateway.wire.errors import ProtocolError, missing_parameter
from gateway.wire.events import NULL, CreateBody, Effort, GenerationBody, ReasoningParam, decode
from gateway.wire.fields import unserved
from gateway.wire.items import PLAIN_TEXT, InputReader, parse_text_format, unknown_file
from gateway.wire.requests import ParsedCreate, parse_create

_encode = msgspec.json.encode

MAX_STOPS = 4  # OpenAI's limit
# Fields that Responses has not, or elsewhere.
_EXTRAS = ("verbosity", "frequency_penalty", "presence_penalty", "logit_bias")
_extras_of = attrgetter(*_EXTRAS)
_NO_EXTRAS = (None,) * len(_EXTRAS)
# Fields that both have.
_SHARED = GenerationBody.__struct_fields__
_shared_of = attrgetter(*_SHARED)
# Types of parts that are taken as they are: chat's that Responses has, and its own.
_PARTS = (
    *("text", "refusal"),
    *("input_text", "output_text", "summary_text", "input_image", "input_file"),
)


class CallFunctionParam(msgspec.Struct, frozen=True):
    """Says which function was called."""

    name: str
    arguments: str = ""


class CallCustomParam(msgspec.Struct, frozen=True):
    """Says which custom tool was called."""

    name: str
    input: str = ""


class CallParam(msgspec.Struct, frozen=True):
    """Is a tool call of an assistant message: of a function, or of a custom tool."""

    id: str
    function: CallFunctionParam | None = None
    custom: CallCustomParam | None = None


class ChatMessageParam(msgspec.Struct, frozen=True):
    """Is one message of the conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Any = None
    name: Annotated[str, Meta(max_length=256)] | None = None  # of the participant
    refusal: str | None = None  # what an assistant said in place of its content
    tool_calls: list[CallParam] | None = None
    tool_call_id: str | None = None
    # Refused: an answer of before that was spoken, and the older form of a call.
    audio: Any = None
    function_call: Any = None


class StreamOptionsParam(msgspec.Struct, frozen=True):
    """Carries `stream_options` of a request."""

    include_usage: bool | None = None


class PredictionParam(msgspec.Struct, frozen=True):
    """Says what the client expects the answer to be, for the most part."""

    type: Literal["content"]
    content: Any


_Bias = Annotated[float, Meta(ge=-100, le=100)]


class ChatBody(GenerationBody, frozen=True, kw_only=True):
    """Is the body of the request; `gateway.wire.fields` says what becomes of each field."""

    messages: Annotated[list[ChatMessageParam], Meta(min_length=1)]
    stream: bool | None = None
    stream_options: StreamOptionsParam | None = None
    n: int | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1)] | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Any = None
    response_format: dict[str, Any] | None = None
    prediction: PredictionParam | None = None
    reasoning_effort: Effort | None = None
    verbosity: Literal["low", "medium", "high"] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    logit_bias: Annotated[dict[str, _Bias], Meta(max_length=1_024)] | None = None
    safety_identifier: str | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    modalities: Annotated[list[str], Meta(max_length=16)] | None = None
    store: bool | None = None
    # Refused, as `gateway.wire.fields` says.
    audio: None = None
    function_call: None = None
    functions: None = None
    web_search_options: None = None


class ChatRequest(NamedTuple):
    """Holds a valid request: as sent, as the Responses request, and the words of its errors."""

    body: ChatBody
    parsed: ParsedCreate
    terms: ChatTerms


def parse_chat(body: bytes, response_id: str, max_tokens: int | None = None) -> ChatRequest:
    """Turns a chat request into an equivalent Responses request, which is not stored.

    Raises `ProtocolError` if it is not valid; `param` names the field.
    """
    chat = decode(body, ChatBody)
    _check_served(chat)
    stops = (chat.stop,) if isinstance(chat.stop, str) else tuple(chat.stop or ())
    if len(stops) > MAX_STOPS or not all(stops):
        message = f"Invalid 'stop': expected up to {MAX_STOPS} non-empty strings."
        raise ProtocolError("invalid_value", message, param="stop")
    items, json_paths = _input_items(chat.messages)
    create = CreateBody(
        store=False,
        tools=[msgspec.Raw(_encode(_flat_tool(tool))) for tool in chat.tools] if chat.tools else [],
        tool_choice=NULL if chat.tool_choice is None else _flat_choice(chat.tool_choice),
        max_output_tokens=chat.max_completion_tokens or chat.max_tokens,
        reasoning=ReasoningParam(chat.reasoning_effort) if chat.reasoning_effort else None,
        safety_identifier=chat.safety_identifier,
        **dict(zip(_SHARED, _shared_of(chat), strict=True)),
    )
    limit_field = "max_tokens" if chat.max_completion_tokens is None else "max_completion_tokens"
    terms = ChatTerms(tuple(json_paths), limit_field)
    try:
        reader = InputReader(items, max_tokens=max_tokens)
        parsed = parse_create(create, response_id, max_tokens=max_tokens, own_input=reader)
        form = chat.response_format
        text_format = PLAIN_TEXT if form is None else _text_format(form)
    except ProtocolError as error:
        raise terms.told(error) from None
    parsed = msgspec.structs.replace(
        parsed,
        stop=stops,
        seed=chat.seed,
        text_format=text_format,
        extras=_extras(chat, parsed.extras),
        prediction=None if chat.prediction is None else _predicted(chat.prediction),
    )
    return ChatRequest(chat, parsed, terms)


def _check_served(chat: ChatBody) -> None:
    """Raises `ProtocolError` for a field that is refused for some of its values."""
    if chat.n not in (None, 1):
        raise unserved("n")
    if chat.logprobs:
        raise unserved("logprobs")
    if chat.top_logprobs:
        raise unserved("top_logprobs")
    if chat.modalities is not None and chat.modalities != ["text"]:
        raise unserved("modalities")
    if chat.store:
        raise unserved("store")


def _extras(chat: ChatBody, extras: Extras) -> Extras:
    """Adds what only this protocol has."""
    values = _extras_of(chat)
    if values == _NO_EXTRAS:
        return extras
    given = {name: each for name, each in zip(_EXTRAS, values, strict=True) if each is not None}
    return msgspec.structs.replace(extras, **given)


def _input_items(
    messages: list[ChatMessageParam],
) -> tuple[list[msgspec.Raw | Message], list[str]]:
    """Turns messages and their calls into Responses items, each with its JSON path."""
    items: list[msgspec.Raw | Message] = []
    json_paths: list[str] = []
    for index, message in enumerate(messages):
        json_path = f"messages[{index}]"
        if message.function_call or message.role == "function":
            field = f"{json_path}.{'role' if message.role == 'function' else 'function_call'}"
            raise _unserved_part(field, "send 'tool_calls', and results with the role 'tool'")
        if message.audio:
            raise _unserved_part(f"{json_path}.audio", "send its transcript as 'content'")
        if message.role == "tool":
            if message.tool_call_id is None:
                raise missing_parameter(f"{json_path}.tool_call_id")
            output = _content(message.content, json_path)
            answer = {"call_id": message.tool_call_id, "output": output}
            items.append(msgspec.Raw(_encode({"type": "function_call_output", **answer})))
        elif message.content is None and message.role != "assistant":
            raise missing_parameter(f"{json_path}.content")
        elif message.content is not None or not message.tool_calls:
            said = message.content
            if message.refusal and message.role == "assistant" and not said:
                said = [{"type": "refusal", "refusal": message.refusal}]
            if isinstance(said, str):
                text = (TextPart(said),)
                items.append(Message(message.role, text, name=message.name))
            else:
                item = {"role": message.role, "content": _content(said, json_path)}
                named = item if message.name is None else item | {"name": message.name}
                items.append(msgspec.Raw(_encode(named)))
        for number, call in enumerate(message.tool_calls or ()):
            called = _call_item(call, f"{json_path}.tool_calls[{number}]")
            items.append(msgspec.Raw(_encode(called)))
        json_paths += [json_path] * (len(items) - len(json_paths))
    return items, json_paths


def _unserved_part(param: str, instead: str) -> ProtocolError:
    message = f"'{param}' is not supported here: {instead}."
    return ProtocolError("unsupported_parameter", message, param=param)


def _call_item(call: CallParam, json_path: str) -> dict[str, Any]:
    item: dict[str, Any] = {"type": "function_call", "call_id": call.id}
    if call.custom is not None:
        return item | {"type": "custom_tool_call", **msgspec.structs.asdict(call.custom)}
    if call.function is None:
        raise missing_parameter(f"{json_path}.function")
    return item | msgspec.structs.asdict(call.function)


def _content(content: Any, json_path: str) -> str | list[dict[str, Any]]:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        message = f"Invalid '{json_path}.content': expected a string or an array of parts."
        raise ProtocolError("invalid_type", message, param=f"{json_path}.content")
    return [_part(part, f"{json_path}.content[{n}]") for n, part in enumerate(content)]


def _part(part: dict[str, Any], json_path: str) -> dict[str, Any]:
    """Turns a content part into Responses' form; its own form is taken, too."""
    kind = part.get("type")
    if kind == "image_url":
        image = part.get("image_url")
        image = image if isinstance(image, dict) else {"url": image}
        if not isinstance(image.get("url"), str):
            message = f"Invalid '{json_path}.image_url.url': expected a URL."
            raise ProtocolError("invalid_type", message, param=f"{json_path}.image_url.url")
        return {
            "type": "input_image",
            "image_url": image["url"],
            "detail": image.get("detail"),
        }
    if kind == "file":
        file = part.get("file")
        if not isinstance(file, dict):
            raise missing_parameter(f"{json_path}.file")
        if file.get("file_id") is not None:
            raise unknown_file(f"{json_path}.file.file_id")
        return {"type": "input_file", **file}
    if kind in _PARTS or kind is None:
        return part
    expected = "'text', 'image_url', 'file' or 'refusal'"
    if kind == "input_audio":
        message = f"'{json_path}' is audio, which is not taken here. Send {expected}."
        raise ProtocolError("unsupported_parameter", message, param=json_path)
    message = f"Invalid '{json_path}.type': expected {expected}, got {str(kind)[:64]!r}."
    raise ProtocolError("invalid_value", message, param=f"{json_path}.type")


def _flat_tool(tool: dict[str, Any]) -> dict[str, Any]:
    """Gives a chat tool the flat form of Responses."""
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


def _predicted(prediction: PredictionParam) -> str | None:
    """Returns the predicted text, which may come in parts; an empty one is none."""
    content = prediction.content
    if isinstance(content, list):
        texts = [part.get("text") if isinstance(part, dict) else None for part in content]
        if all(isinstance(text, str) for text in texts):
            content = "".join(map(str, texts))
    if not isinstance(content, str):
        message = "Invalid 'prediction.content': expected a string or an array of text parts."
        raise ProtocolError("invalid_type", message, param="prediction.content")
    return content or None


def _text_format(response_format: dict[str, Any]) -> TextFormat:
    kind = response_format.get("type")
    if kind is None:
        raise missing_parameter("response_format.type")
    if kind == "json_schema":
        wrapped = response_format.get("json_schema")
        wrapped = wrapped if isinstance(wrapped, dict) else {}
        if wrapped.get("schema") is None:
            message = "Missing required parameter: 'response_format.json_schema.schema'."
            raise ProtocolError("missing_required_parameter", message, param="response_format")
        return parse_text_format(msgspec.Raw(_encode(wrapped | {"type": kind})))
    if kind not in ("text", "json_object"):
        known = "'text', 'json_object' or 'json_schema'"
        message = f"Invalid 'response_format.type': expected {known}, got '{kind!s:.64}'."
        raise ProtocolError("invalid_value", message, param="response_format.type")
    return TextFormat(kind)
