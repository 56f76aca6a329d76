"""Converts a `GenerateRequest` to the body that an upstream takes: Responses or chat completions.

The body has the whole context; it has none of our ids, which mean nothing there.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from backends.contract import (
    NO_EXTRAS,
    Compaction,
    ContextItem,
    CustomTool,
    CustomToolCall,
    CustomToolCallOutput,
    FilePart,
    FunctionCall,
    FunctionCallOutput,
    FunctionTool,
    GenerateRequest,
    ImagePart,
    Item,
    Message,
    Part,
    Reasoning,
    RefusalPart,
    TextFormat,
    TextPart,
    Tool,
)
from backends.prompt import compaction_message, parts_text
from backends.sealed_reasoning import unwrap
from backends.service_tiers import passed_on
from backends.tokenizer import count
from backends.upstream.chat_roles import OF_WORDS, in_turns
from backends.upstream.options import UpstreamOptions

# A server that speculates by n-grams finds in its prompt what it is about to say.
DRAFTED = (
    "<draft>\n{draft}\n</draft>\n"
    "The draft is a smaller model's answer to the request. Write your own answer, whole, and keep "
    "the draft's words where they are right."
)
DRAFTED_TOKENS = count(DRAFTED.format(draft=""))

_WRAPPED_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}


def request_body(request: GenerateRequest, options: UpstreamOptions) -> dict[str, Any]:
    """Builds the streaming request's body in the upstream's protocol."""
    make = _chat_body if options.protocol == "chat" else _responses_body
    body = make(request, options)
    if options.omit:
        body = {name: value for name, value in body.items() if name not in options.omit}
    if options.takes_min_tokens:
        extras = request.extras
        body |= _given(min_tokens=extras.min_tokens or None, ignore_eos=extras.ignore_eos or None)
    if options.cache_salt:
        body["cache_salt"] = f"{request.cache_salt:016x}"
    if request.extras.service_tier is not None:
        tier = passed_on(request.extras.service_tier, options.service_tiers)
        if tier is not None:
            body["service_tier"] = tier
    if options.extra_body:
        body |= options.extra_body
    if not request.generate:
        body["generate"] = False
    return body


NOTHING_WRAPPED: frozenset[str] = frozenset()


def wrapped_tools(request: GenerateRequest, options: UpstreamOptions) -> frozenset[str]:
    """Names the custom tools that are offered as functions of one string."""
    if options.custom_tools == "native" or not request.tools:
        return NOTHING_WRAPPED
    return frozenset(tool.name for tool in request.tools if isinstance(tool, CustomTool))


def _responses_body(request: GenerateRequest, options: UpstreamOptions) -> dict[str, Any]:
    items: list[dict[str, Any]] = []
    for entry in request.items:
        item = _responses_item(entry.item, options)
        if item is not None:
            items.append(item)
    body: dict[str, Any] = {
        "model": options.upstream_model,
        "input": items,
        "stream": True,
        "store": options.stores and request.may_store,
        "max_output_tokens": request.max_output_tokens,
    }
    tools = _offered(request) if request.tools else ()
    if tools:
        native = options.custom_tools == "native"
        kind = "custom" if native and isinstance(tools[0], CustomTool) else "function"
        body |= _choice(request, {"type": kind, "name": tools[0].name})
        body["tools"] = [_responses_tool(tool, native) for tool in tools]
    text_format = request.text_format
    if text_format.type == "json_object":
        body["text"] = {"format": {"type": "json_object"}}
    elif text_format.type == "json_schema":
        body["text"] = {"format": {"type": "json_schema", **_schema(text_format)}}
    if request.extras.verbosity is not None:
        body.setdefault("text", {})["verbosity"] = request.extras.verbosity
    effort, summary = request.reasoning_effort, request.reasoning_summary
    if effort is not None or summary is not None:
        body["reasoning"] = _given(effort=effort, summary=summary)
    if options.seals_reasoning:
        body["include"] = ["reasoning.encrypted_content"]
    if request.instructions is not None:
        body["instructions"] = request.instructions
    _add_sampling(body, request)
    return body


def _responses_item(item: Item, options: UpstreamOptions) -> dict[str, Any] | None:
    if isinstance(item, Message):
        content = _responses_content(item.content, item.role == "assistant")
        # The type could be left out, but llama.cpp wants it of an assistant's messages.
        message = {"type": "message", "role": item.role, "content": content}
        return message if item.phase is None else message | {"phase": item.phase}
    native = options.custom_tools == "native"
    match item:
        case CustomToolCall(call_id, name, text) if native:
            call = {"type": "custom_tool_call", "call_id": call_id, "name": name}
            return call | {"input": text}
        case FunctionCall(call_id, name, text) | CustomToolCall(call_id, name, text):
            call = {"type": "function_call", "call_id": call_id, "name": name}
            return call | {"arguments": _arguments(item, text)}
        case FunctionCallOutput(call_id, output) | CustomToolCallOutput(call_id, output):
            is_custom = native and isinstance(item, CustomToolCallOutput)
            kind = "custom_tool_call_output" if is_custom else "function_call_output"
            return {"type": kind, "call_id": call_id, "output": _responses_content(output, False)}
        case Reasoning(encrypted_content=sealed):
            # Only the upstream that encrypted it can read it.
            own = unwrap(options.model, sealed) if sealed and options.seals_reasoning else None
            if own is None:
                return None
            summary = [{"type": "summary_text", "text": text} for text in item.summary]
            thought = {"type": "reasoning", "id": own[0], "summary": summary}
            return thought | {"encrypted_content": own[1]}
        case Compaction(encrypted_content):
            read = compaction_message(item)
            if read is not None:
                return _responses_item(read, options)
            return {"type": "compaction", "encrypted_content": encrypted_content}


def _responses_content(parts: tuple[Part, ...], is_output: bool) -> str | list[dict[str, Any]]:
    """Returns a plain string if that suffices, as every server understands it."""
    if len(parts) == 1 and isinstance(only := parts[0], TextPart):  # as most are
        return only.text
    if all(isinstance(part, TextPart) for part in parts):
        return parts_text(parts)
    return [_responses_part(part, "output_text" if is_output else "input_text") for part in parts]


def _responses_part(part: Part, text_type: str) -> dict[str, Any]:
    match part:
        case TextPart(text):
            return {"type": text_type, "text": text}
        case RefusalPart(refusal):
            return {"type": "refusal", "refusal": refusal}
        case ImagePart(image_url, file_id, detail):
            return {"type": "input_image", "detail": detail} | _given(
                image_url=image_url, file_id=file_id
            )
        case FilePart(file_id, file_url, filename, file_data):
            return {"type": "input_file"} | _given(
                file_id=file_id, file_url=file_url, filename=filename, file_data=file_data
            )


def _responses_tool(tool: Tool, native: bool) -> dict[str, Any]:
    if native and isinstance(tool, CustomTool):
        custom = {"type": "custom", "name": tool.name, "description": tool.description}
        return custom if tool.format is None else custom | {"format": tool.format}
    return {"type": "function", **_function(tool)}


def _chat_body(request: GenerateRequest, options: UpstreamOptions) -> dict[str, Any]:
    messages = _chat_messages(
        request.instructions,
        request.items,
        options.developer_role,
        # Strict templates have the roles alternate, whoever of them speaks.
        has_names=options.system_messages == "anywhere",
    )
    predicted = None if request.prediction is None else options.prediction
    if predicted == "prompt":
        messages.append({"role": "user", "content": DRAFTED.format(draft=request.prediction)})
    body: dict[str, Any] = {
        "model": options.upstream_model,
        "messages": in_turns(
            messages, options.system_messages, pads_tool_turns=options.pads_tool_turns
        ),
        "stream": True,
        "stream_options": {"include_usage": True},
        options.max_tokens_field: request.max_output_tokens,
    }
    tools = _offered(request) if request.tools else ()
    if predicted == "field" and not tools:  # beside tools no server takes it
        body["prediction"] = {"type": "content", "content": request.prediction}
    if tools:
        body |= _choice(request, {"type": "function", "function": {"name": tools[0].name}})
        body["tools"] = [{"type": "function", "function": _function(tool)} for tool in tools]
    if request.prefill:
        body |= _prefilled(body["messages"], request.prefill, options)
    elif request.text_format.type == "json_object":
        body["response_format"] = {"type": "json_object"}
    elif request.text_format.type == "json_schema":
        schema = _schema(request.text_format)
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    if request.stop:
        body["stop"] = list(request.stop)
    extras = request.extras
    if extras != NO_EXTRAS:
        body |= _given(
            verbosity=extras.verbosity,
            frequency_penalty=extras.frequency_penalty,
            presence_penalty=extras.presence_penalty,
            logit_bias=extras.logit_bias,
        )
    if request.seed is not None:
        body["seed"] = request.seed
    if request.reasoning_effort is not None:
        body["reasoning_effort"] = request.reasoning_effort
    _add_sampling(body, request)
    return body


def _prefilled(
    messages: list[dict[str, Any]], prefill: str, options: UpstreamOptions
) -> dict[str, Any]:
    """Appends the answer's first words, and returns the fields that have it go on with them.

    A format is not asked for: servers would hold the rest alone to it, which is half of a value.
    """
    begun: dict[str, Any] = {"role": "assistant", "content": prefill}
    last = messages[-1] if messages else begun
    if last is not begun and last.keys() <= OF_WORDS and last["role"] == "assistant":
        said: Any = messages.pop()["content"]  # the client has begun it
        more: Any = prefill if isinstance(said, str) else [{"type": "text", "text": prefill}]
        begun = last | {"content": said + more}
    messages.append(begun | {"prefix": True} if options.prefill == "prefix" else begun)
    if options.prefill == "continue_final_message":
        return {"continue_final_message": True, "add_generation_prompt": False}
    return {}


def _chat_messages(
    instructions: str | None,
    items: Iterable[ContextItem],
    developer_role: str,
    *,
    has_names: bool,
) -> list[dict[str, Any]]:
    """Converts items to messages; an assistant's text and the calls after it are one message."""
    messages: list[dict[str, Any]] = []
    if instructions:
        messages.append({"role": "system", "content": instructions})
    for entry in items:
        item = entry.item
        if isinstance(item, Compaction):
            item = compaction_message(item) or item
        if isinstance(item, Message):
            if developer_role == "user" and item.role in _NOT_SAID:
                _append_reminder(messages, parts_text(item.content))
                continue
            role_there = developer_role if item.role == "developer" else item.role
            messages.append({"role": role_there, "content": _chat_content(item.content)})
            if item.name is not None and has_names:
                messages[-1]["name"] = item.name
            continue
        match item:
            case FunctionCall(call_id, name, text) | CustomToolCall(call_id, name, text):
                if not messages or messages[-1]["role"] != "assistant":
                    messages.append({"role": "assistant", "content": None})
                function = {"name": name, "arguments": _arguments(item, text)}
                call = {"id": call_id, "type": "function", "function": function}
                messages[-1].setdefault("tool_calls", []).append(call)
            case FunctionCallOutput(call_id, output) | CustomToolCallOutput(call_id, output):
                # Tool messages hold text only; attachments are named in it.
                text = parts_text(output)
                messages.append({"role": "tool", "tool_call_id": call_id, "content": text})
            case Reasoning() | Compaction():
                pass  # encrypted: only the server that wrote it can read it
    return messages


_NOT_SAID = ("system", "developer")  # roles of what neither side of the conversation said
_REMINDER = "<system-reminder>"


def _append_reminder(messages: list[dict[str, Any]], text: str) -> None:
    """Appends what neither side said, for a template with one system message, at the beginning."""
    if not messages:
        messages.append({"role": "system", "content": text})
        return
    if messages[-1]["role"] == "system":
        messages[-1]["content"] += f"\n\n{text}"
        return
    marked = text if text.startswith(_REMINDER) else f"{_REMINDER}\n{text}\n</system-reminder>"
    if messages[-1]["role"] != "user":
        messages.append({"role": "user", "content": marked})
    elif isinstance(messages[-1]["content"], str):
        messages[-1]["content"] += f"\n\n{marked}"
    else:
        messages[-1]["content"].append({"type": "text", "text": marked})


def _chat_content(parts: tuple[Part, ...]) -> str | list[dict[str, Any]]:
    if len(parts) == 1 and isinstance(only := parts[0], TextPart):  # as most are
        return only.text
    if all(isinstance(part, TextPart | RefusalPart) for part in parts):
        return parts_text(parts)
    return [_chat_part(part) for part in parts]


def _chat_part(part: Part) -> dict[str, Any]:
    match part:
        case ImagePart(image_url, _, detail) if image_url is not None:
            return {"type": "image_url", "image_url": {"url": image_url, "detail": detail}}
        case FilePart(file_id, None, filename, file_data):
            file = _given(file_id=file_id, filename=filename, file_data=file_data)
            return {"type": "file", "file": file}
        case _:
            return {"type": "text", "text": parts_text((part,))}


def _arguments(item: Item, text: str) -> str:
    """Returns a call's text as a function's arguments; wraps a custom call's input."""
    is_custom = isinstance(item, CustomToolCall)
    return msgspec.json.encode({"input": text}).decode() if is_custom else text


def _choice(request: GenerateRequest, named: dict[str, Any]) -> dict[str, Any]:
    """Returns the tool choice; `named` is how the protocol names the one that must be called."""
    choice = request.tool_choice
    is_named = choice.mode == "required" and len(choice.names) == 1
    return {
        "tool_choice": named if is_named else choice.mode,
        "parallel_tool_calls": request.parallel_tool_calls,
    }


def _offered(request: GenerateRequest) -> Sequence[Tool]:
    """Returns the tools that the choice allows, as few servers know `allowed_tools`.

    Namespaces stay with us; the names come back as they were sent.
    """
    tools, names = request.tools, request.tool_choice.names
    return [tool for tool in tools if tool.name in names] if names else tools


def _function(tool: Tool) -> dict[str, Any]:
    parameters, strict = _WRAPPED_PARAMETERS, False
    if isinstance(tool, FunctionTool):
        parameters, strict = tool.parameters or {"type": "object", "properties": {}}, tool.strict
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": parameters,
        "strict": strict,
    }


def _schema(text_format: TextFormat) -> dict[str, Any]:
    return _given(name=text_format.name, schema=text_format.schema, strict=text_format.strict)


def _add_sampling(body: dict[str, Any], request: GenerateRequest) -> None:
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.top_p is not None:
        body["top_p"] = request.top_p
    if request.prompt_cache_key is not None:
        body["prompt_cache_key"] = _cache_key(request.prompt_cache_key, request.cache_salt)


def _cache_key(sent: str, cache_salt: int) -> str:
    """Returns the client's cache key as another tenant's cannot be; OpenAI takes 64 characters."""
    if not cache_salt:
        return sent
    salt, key = cache_salt.to_bytes(8, "big"), sent.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(key, digest_size=16, salt=salt).hexdigest()


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
