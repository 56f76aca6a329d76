"""Turns items and tools from the wire's JSON into the contract's Structs, and back."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec

from backends.contract import (
    Compaction,
    ContextItem,
    CustomTool,
    CustomToolCall,
    CustomToolCallOutput,
    FilePart,
    FunctionCall,
    FunctionCallOutput,
    FunctionTool,
    ImagePart,
    Item,
    Message,
    Part,
    Reasoning,
    RefusalPart,
    Role,
    TextFormat,
    TextPart,
    Tool,
    ToolChoice,
)
from backends.image_urls import file_objection, objection
from backends.prompt import TooLongError, measure, overflow_words
from gateway.wire.errors import ProtocolError, invalid_parameter, missing_parameter
from gateway.wire.events import NULL, decode
from gateway.wire.output_items import ASIDE
from gateway.wire.schemas import check_parameters, check_schema
from gateway.wire.sealing import is_sealed_here

MAX_INPUT_ITEMS, MAX_PARTS = 10_000, 10_000  # of a request, and of one item
PIECE_ITEMS, PIECE_TOKENS = 256, 16_384  # read before others have a turn
BYTES_PER_TOKEN = 4  # of text, about; backends.tokenizer
AUTO_CHOICE, PLAIN_TEXT = ToolChoice(), TextFormat()  # what most requests ask for
# The beginnings of the types of tools that OpenAI hosts (openai-python 3.52, `ToolParam`).
_OPENAIS_TOOLS = (
    *("web_search", "file_search", "mcp", "computer", "code_interpreter", "image_generation"),
    *("local_shell", "shell", "apply_patch", "tool_search", "programmatic_tool_calling"),
)


class _Head(msgspec.Struct, frozen=True, gc=False):
    """Tells kinds of items, parts and tools apart."""

    type: str | None = None
    role: str | None = None
    id: str | None = None


class _WireMessage(msgspec.Struct, frozen=True, gc=False):
    role: Role
    content: str | list[msgspec.Raw] | None = None
    id: str | None = None
    phase: str | None = None
    name: str | None = None  # chat completions alone have it


class _WireCall(msgspec.Struct, frozen=True, gc=False):
    call_id: str
    name: str
    arguments: str = ""
    input: str = ""
    id: str | None = None
    namespace: str | None = None
    status: Any = None


class _WireCallOutput(msgspec.Struct, frozen=True, gc=False):
    call_id: str
    output: str | list[msgspec.Raw]
    id: str | None = None


class _WireText(msgspec.Struct, frozen=True, gc=False):
    text: str


class _WireReasoning(msgspec.Struct, frozen=True, gc=False):
    id: str | None = None
    summary: list[_WireText] | None = None
    content: list[_WireText] | None = None
    encrypted_content: str | None = None


class _WireImage(msgspec.Struct, frozen=True, gc=False):
    image_url: str | None = None
    file_id: str | None = None
    detail: Literal["auto", "low", "high", "original"] | None = None


class _WireFile(msgspec.Struct, frozen=True, gc=False):
    file_id: str | None = None
    file_url: str | None = None
    filename: str | None = None
    file_data: str | None = None


class _WireRefusal(msgspec.Struct, frozen=True, gc=False):
    refusal: str


class _WireCompaction(msgspec.Struct, frozen=True, gc=False):
    encrypted_content: str
    id: str | None = None


class _WireTool(msgspec.Struct, frozen=True, gc=False):
    name: Annotated[str, msgspec.Meta(min_length=1)]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    format: dict[str, Any] | None = None


class _WireNamespace(msgspec.Struct, frozen=True, gc=False):
    name: str
    tools: list[msgspec.Raw] = []


class _WireTools(msgspec.Struct, frozen=True, gc=False):
    tools: list[msgspec.Raw] = []


class ItemReference(msgspec.Struct, frozen=True, gc=False):
    """Names a stored item by id; it is resolved before a task exists."""

    id: str


class ParsedInput(msgspec.Struct, frozen=True, gc=False):
    """Is a request's own input: items in order, and the tools that Codex sends among them.

    References are still to be resolved, and compactions of ours to be opened.
    """

    items: tuple[ContextItem | ItemReference | Compaction, ...]
    tools: tuple[Tool, ...] = ()
    triggers: bool = False  # a `compaction_trigger` is among them: compact, and do not answer


class InputReader:
    """Reads a list as `input` of a request, at once or in pieces; leaves out unknown item types.

    Of another protocol's request an entry may be a message already.
    Raises `ProtocolError` if a known item is malformed; `param` says which.
    """

    def __init__(
        self,
        value: Sequence[msgspec.Raw | Message],
        param: str = "input",
        *,
        max_tokens: int | None = None,
    ) -> None:
        if len(value) > MAX_INPUT_ITEMS:
            message = f"Expected at most {MAX_INPUT_ITEMS} items in '{param}', got {len(value)}."
            raise ProtocolError("invalid_value", message, param=param)
        self._value = value
        self._param = param
        self._max_tokens = max_tokens
        self._index = 0  # of the next item
        self._num_tokens = 0
        self._items: list[ContextItem | ItemReference | Compaction] = []
        self._tools: list[Tool] = []
        self._triggers = False

    def read_piece(self) -> bool:
        """Reads the next items, a few milliseconds' worth; returns whether there are more."""
        value = self._value
        last = min(self._index + PIECE_ITEMS, len(value))
        enough_tokens = self._num_tokens + PIECE_TOKENS
        while self._index < last and self._num_tokens < enough_tokens:
            entry = value[self._index]
            if isinstance(entry, Message):
                self._append(entry)
            else:
                self._read(entry, f"{self._param}[{self._index}]")
            self._index += 1
        return self._index < len(value)

    def parsed(self) -> ParsedInput:
        """Reads what is left, and returns all of it."""
        while self.read_piece():
            pass
        return ParsedInput(tuple(self._items), tuple(self._tools), self._triggers)

    def _read(self, raw: msgspec.Raw, json_path: str) -> None:
        head = decode(raw, _Head, json_path)
        if head.id is not None and head.id.endswith(ASIDE):
            return  # commentary of an earlier response of ours, sent back
        if head.type == "compaction_trigger":
            self._triggers = True
        elif head.type == "additional_tools":
            nested = decode(raw, _WireTools, json_path).tools
            self._tools.extend(parse_tools(nested, f"{json_path}.tools"))
        elif head.type == "item_reference" or (head.type is None and head.role is None and head.id):
            self._items.append(decode(raw, ItemReference, json_path))
        else:
            item = _parse_item(raw, head.type or "message", json_path)
            if isinstance(item, Compaction) and is_sealed_here(item.encrypted_content):
                self._items.append(item)
            elif item is not None:
                self._append(item)

    def _append(self, item: Item) -> None:
        measured = _measured(item, self._param, self._max_tokens, self._num_tokens)
        self._items.append(measured)
        self._num_tokens += measured.num_tokens


def parse_input(
    value: str | list[msgspec.Raw] | None, param: str = "input", *, max_tokens: int | None = None
) -> ParsedInput:
    """Reads `input` of a request at once, a list as `InputReader` does."""
    if isinstance(value, str):
        message = Message("user", (TextPart(value),))
        return ParsedInput((_measured(message, param, max_tokens),))
    return InputReader(value or [], param, max_tokens=max_tokens).parsed()


def _measured(item: Item, param: str, max_tokens: int | None, num_before: int = 0) -> ContextItem:
    """Measures an item; refuses one far over the largest window without counting it."""
    if max_tokens is None:
        return measure(item)
    try:
        return measure(item, max_tokens - num_before)
    except TooLongError as error:
        raise too_long(num_before + error.num_tokens, max_tokens, param) from None


def too_long(num_tokens: int, max_tokens: int, param: str) -> ProtocolError:
    """Makes the error for a context that fits no engine."""
    message = f"{overflow_words(num_tokens, max_tokens)} '{param}' alone has as many, or more."
    return ProtocolError("context_length_exceeded", message, param=param)


def unknown_file(param: str) -> ProtocolError:
    """Makes the error for a file that is named by an id: none can be uploaded here."""
    message = (
        f"There is no file of the id in '{param}': files cannot be uploaded here. Send its "
        "content, as 'file_data' or as an image's data URL."
    )
    return ProtocolError("invalid_value", message, param=param)


def _parse_item(raw: msgspec.Raw, kind: str, json_path: str) -> Item | None:
    """Reads one item; None for a kind that is unknown here, and for commentary without its id."""
    if kind == "message":
        message = decode(raw, _WireMessage, json_path)
        content = _parse_content(message.content, f"{json_path}.content")
        if message.role == "assistant" and message.phase == "commentary" and not message.id:
            return None  # with an id it is an engine's own words, which it is to read again
        return Message(message.role, content, message.id, message.phase, message.name)
    if kind in ("function_call", "custom_tool_call"):
        call = decode(raw, _WireCall, json_path)
        name, is_cut = call.name, call.status == "incomplete"
        if kind == "custom_tool_call":
            return CustomToolCall(call.call_id, name, call.input, call.id, is_cut)
        return FunctionCall(call.call_id, name, call.arguments, call.id, call.namespace, is_cut)
    if kind in ("function_call_output", "custom_tool_call_output"):
        answer = decode(raw, _WireCallOutput, json_path)
        parts = _parse_content(answer.output, f"{json_path}.output")
        if kind == "custom_tool_call_output":
            return CustomToolCallOutput(answer.call_id, parts, id=answer.id)
        return FunctionCallOutput(answer.call_id, parts, id=answer.id)
    if kind == "reasoning":
        thought = decode(raw, _WireReasoning, json_path)
        return Reasoning(
            thought.id,
            tuple(part.text for part in thought.summary or ()),
            tuple(part.text for part in thought.content or ()),
            thought.encrypted_content,
        )
    if kind == "compaction":
        sealed = decode(raw, _WireCompaction, json_path)
        return Compaction(sealed.encrypted_content, sealed.id)
    return None


def _parse_content(value: str | list[msgspec.Raw] | None, json_path: str) -> tuple[Part, ...]:
    if value is None:
        return ()
    if isinstance(value, str):
        return (TextPart(value),)
    if len(value) > MAX_PARTS:
        message = f"Expected at most {MAX_PARTS} parts in '{json_path}', got {len(value)}."
        raise ProtocolError("invalid_value", message, param=json_path)
    parts: list[Part] = []
    for index, raw in enumerate(value):
        where = f"{json_path}[{index}]"
        kind = decode(raw, _Head, where).type
        if kind in ("input_text", "output_text", "text", "summary_text"):
            parts.append(TextPart(decode(raw, _WireText, where).text))
        elif kind == "input_image":
            image = decode(raw, _WireImage, where)
            if image.file_id is not None:
                raise unknown_file(f"{where}.file_id")
            if not image.image_url:
                raise missing_parameter(f"{where}.image_url")
            if (why := objection(image.image_url)) is not None:
                raise invalid_parameter(f"{where}.image_url", why, "invalid_image_url")
            parts.append(ImagePart(image.image_url, None, image.detail or "auto"))
        elif kind == "input_file":
            file = decode(raw, _WireFile, where)
            if file.file_id is not None:
                raise unknown_file(f"{where}.file_id")
            if not (file.file_data or file.file_url):
                raise missing_parameter(f"{where}.file_data", " Or send a 'file_url'.")
            if file.file_url and (why := file_objection(file.file_url)) is not None:
                raise invalid_parameter(f"{where}.file_url", why)
            parts.append(FilePart(None, file.file_url, file.filename, file.file_data))
        elif kind == "refusal":
            parts.append(RefusalPart(decode(raw, _WireRefusal, where).refusal))
        elif kind is None:
            raise missing_parameter(f"{where}.type")
        else:
            known = "'input_text', 'input_image', 'input_file', 'output_text' or 'refusal'"
            raise invalid_parameter(f"{where}.type", f"expected {known}, got '{kind[:64]}'")
    return tuple(parts)


def parse_tools(
    raws: list[msgspec.Raw] | None, param: str = "tools", namespace: str | None = None
) -> tuple[Tool, ...]:
    """Reads `tools` of a request; hosted ones (web_search, mcp...) are left out."""
    tools: list[Tool] = []
    for index, raw in enumerate(raws or ()):
        json_path = f"{param}[{index}]"
        kind = decode(raw, _Head, json_path).type
        if kind in ("function", "custom"):
            tool = decode(raw, _WireTool, json_path)
            text, parameters = tool.description or "", tool.parameters or {}
            if kind == "custom":
                tools.append(CustomTool(tool.name, text, tool.format))
                continue
            check_parameters(parameters, f"{json_path}.parameters")
            tools.append(FunctionTool(tool.name, text, parameters, bool(tool.strict), namespace))
        elif kind == "namespace" and namespace is None:
            nested = decode(raw, _WireNamespace, json_path)
            tools.extend(parse_tools(nested.tools, f"{json_path}.tools", nested.name))
    return tuple(tools)


def check_tools(raws: list[msgspec.Raw] | None, tools: tuple[Tool, ...]) -> None:
    """Refuses a request that offers OpenAI's own tools alone, and would be answered without any.

    Beside the client's own they are passed over, and so are kinds that nobody knows yet.
    """
    if raws and not tools:
        kind = decode(raws[0], _Head, "tools[0]").type or ""
        if kind.startswith(_OPENAIS_TOOLS):
            message = (
                f"'tools[0].type' is {kind[:64]!r}, but no tools are hosted here, and none of your "
                "own are offered. Offer functions of your own."
            )
            raise ProtocolError("unsupported_parameter", message, param="tools[0].type")


class _WireNamed(msgspec.Struct, frozen=True, gc=False):
    name: str


class _WireMaybeNamed(msgspec.Struct, frozen=True, gc=False):
    name: str = ""  # hosted tools have none


class _WireAllowed(msgspec.Struct, frozen=True, gc=False):
    tools: list[_WireMaybeNamed]
    mode: Literal["auto", "required"] = "auto"


def parse_tool_choice(raw: msgspec.Raw, tools: tuple[Tool, ...]) -> ToolChoice:
    """Reads `tool_choice`; a choice that names a function must name an offered one."""
    if raw == NULL:
        return AUTO_CHOICE
    value = decode(raw, object, "tool_choice")
    if value is None or value == "auto":
        return AUTO_CHOICE
    if value == "none":
        return ToolChoice("none")
    offered = {tool.name for tool in tools}
    if value == "required":
        _require_tools(bool(offered), "'required' needs at least one function in 'tools'")
        return ToolChoice("required")
    if isinstance(value, dict):
        kind = value.get("type")
        if kind in ("function", "custom"):
            name = decode(raw, _WireNamed, "tool_choice").name
            _require_tools(name in offered, f"no tool named '{name[:64]}' in 'tools'")
            return ToolChoice("required", (name,))
        if kind == "allowed_tools":
            allowed = decode(raw, _WireAllowed, "tool_choice")
            names = tuple(tool.name for tool in allowed.tools if tool.name in offered)
            _require_tools(bool(names), "none of its tools are in 'tools'")
            return ToolChoice("required" if allowed.mode == "required" else "auto", names)
        if isinstance(kind, str):
            message = f"'tool_choice' asks for {kind[:64]!r}, but no tools are hosted here."
            raise ProtocolError("unsupported_parameter", message, param="tool_choice")
    raise invalid_parameter(
        "tool_choice",
        "expected 'auto', 'none', 'required', or an object with a 'type' of 'function', 'custom' "
        f"or 'allowed_tools', got {msgspec.json.encode(value).decode()[:80]}",
    )


def _require_tools(found: bool, complaint: str) -> None:
    if not found:
        raise invalid_parameter("tool_choice", complaint)


class _WireFormat(msgspec.Struct, frozen=True, gc=False):
    type: str
    name: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None


def parse_text_format(raw: msgspec.Raw) -> TextFormat:
    """Reads `text.format`, the format of the answer."""
    if raw == NULL:
        return PLAIN_TEXT
    wire = decode(raw, _WireFormat, "text.format")
    if wire.type == "text":
        return PLAIN_TEXT
    if wire.type == "json_object":
        return TextFormat("json_object")
    if wire.type == "json_schema":
        if wire.schema is None:
            raise missing_parameter("text.format.schema")
        check_schema(wire.schema, "text.format.schema")
        if not wire.name:
            raise missing_parameter("text.format.name")
        return TextFormat("json_schema", wire.schema, wire.name, wire.strict)
    known = "'text', 'json_object' or 'json_schema'"
    raise invalid_parameter("text.format.type", f"expected {known}, got '{wire.type[:64]}'")


def wire_item(item: Item, item_id: str) -> dict[str, Any]:
    """Writes an item for listings; `item_id` is used if the client gave none."""
    found: dict[str, Any] = {"id": item.id or item_id}
    if isinstance(item, Message):
        text = "output_text" if item.role == "assistant" else "input_text"
        found |= {"type": "message", "role": item.role, "status": "completed", "phase": item.phase}
        found["content"] = [_wire_part(part, text) for part in item.content]
    elif isinstance(item, FunctionCall):
        found |= {"type": "function_call", "call_id": item.call_id, "name": item.name}
        found |= {"arguments": item.arguments, "namespace": item.namespace}
        found["status"] = "incomplete" if item.is_cut else "completed"
    elif isinstance(item, CustomToolCall):
        found |= {"type": "custom_tool_call", "call_id": item.call_id, "name": item.name}
        found |= {"input": item.input, "status": "incomplete" if item.is_cut else "completed"}
    elif isinstance(item, FunctionCallOutput | CustomToolCallOutput):
        kind = "function" if isinstance(item, FunctionCallOutput) else "custom_tool"
        found |= {"type": f"{kind}_call_output", "call_id": item.call_id, "output": _output(item)}
        found["status"] = "completed"
    elif isinstance(item, Reasoning):
        found |= {"type": "reasoning", "encrypted_content": item.encrypted_content}
        found["summary"] = [{"type": "summary_text", "text": text} for text in item.summary]
        thoughts = [{"type": "reasoning_text", "text": text} for text in item.content]
        found["content"] = thoughts or None
    else:
        found |= {"type": "compaction", "encrypted_content": item.encrypted_content}
    return {name: value for name, value in found.items() if value is not None}


def _output(item: FunctionCallOutput | CustomToolCallOutput) -> str | list[dict[str, Any]]:
    if len(item.output) == 1 and isinstance(item.output[0], TextPart):
        return item.output[0].text
    return [_wire_part(part, "input_text") for part in item.output]


def _wire_part(part: Part, text: str) -> dict[str, Any]:
    if isinstance(part, TextPart):
        extra: dict[str, Any] = {"annotations": [], "logprobs": []} if text == "output_text" else {}
        return {"type": text, "text": part.text, **extra}
    if isinstance(part, RefusalPart):
        return {"type": "refusal", "refusal": part.refusal}
    kind = "input_image" if isinstance(part, ImagePart) else "input_file"
    fields = msgspec.structs.asdict(part)
    return {"type": kind} | {name: value for name, value in fields.items() if value is not None}
