"""The protocol's objects as JSON: usage, output items, and the fixed part of a response."""

from typing import Any

import msgspec

from backends.contract import (
    CustomToolCall,
    DeltaKind,
    FunctionCall,
    Item,
    Message,
    Reasoning,
    TextPart,
    Usage,
)
from gateway.wire.events import NULL
from gateway.wire.requests import ParsedCreate

_encode = msgspec.json.encode


def usage_json(usage: Usage) -> dict[str, Any]:
    """`usage` of a response; the SDK's types require every field."""
    return {
        "input_tokens": usage.num_input_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.num_cached_tokens,
            "cache_write_tokens": 0,
        },
        "output_tokens": usage.num_output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.num_reasoning_tokens},
        "total_tokens": usage.num_input_tokens + usage.num_output_tokens,
    }


def text_part(text: str) -> dict[str, Any]:
    """An `output_text` content part."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def output_item(
    kind: DeltaKind,
    item_id: str,
    status: str,
    text: str | None,
    *,
    phase: str | None = None,
    call_id: str = "",
    name: str = "",
    namespace: str | None = None,
    sealed: str = "",
) -> dict[str, Any]:
    """An output item; `text` is None while it is being written."""
    if kind is DeltaKind.TEXT:
        content = [] if text is None else [text_part(text)]
        item: dict[str, Any] = {"id": item_id, "type": "message", "role": "assistant"}
        item |= {"status": status, "content": content}
        return item if phase is None else item | {"phase": phase}
    if kind is DeltaKind.REASONING:
        summary = [{"type": "summary_text", "text": text}] if text else []
        item = {"id": item_id, "type": "reasoning", "summary": summary, "status": status}
        return item | {"encrypted_content": sealed} if sealed else item
    call = {"id": item_id, "call_id": call_id, "name": name, "status": status}
    if kind is DeltaKind.CUSTOM_CALL:
        return call | {"type": "custom_tool_call", "input": text or ""}
    if namespace is not None:
        call["namespace"] = namespace
    return call | {"type": "function_call", "arguments": text or ""}


def context_item(
    kind: DeltaKind,
    item_id: str,
    text: str,
    *,
    phase: str | None,
    call_id: str,
    name: str,
    namespace: str | None,
    sealed: str = "",
) -> Item:
    """A finished output item as context for the next turn."""
    if kind is DeltaKind.TEXT:
        return Message("assistant", (TextPart(text),), id=item_id, phase=phase)
    if kind is DeltaKind.REASONING:
        return Reasoning(item_id, (text,) if text else (), encrypted_content=sealed or None)
    if kind is DeltaKind.CUSTOM_CALL:
        return CustomToolCall(call_id, name, text, id=item_id)
    return FunctionCall(call_id, name, text, item_id, namespace)


def static_fields(parsed: ParsedCreate, created_at: int) -> bytes:
    """The part of a response object that never changes, as JSON without its closing brace.

    Tools and format are the client's own bytes, copied: Codex sends 40 KB of tools every turn.
    """
    body = parsed.body
    reasoning, text = body.reasoning, body.text
    summary = (reasoning.summary or reasoning.generate_summary) if reasoning else None
    text_echo: dict[str, Any] = {"format": {"type": "text"}}
    if text and text.format != NULL:
        text_echo["format"] = text.format
    if text and text.verbosity:
        text_echo["verbosity"] = text.verbosity
    fields = {
        "id": parsed.id,
        "object": "response",
        "created_at": created_at,
        "background": body.background is True,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "max_tool_calls": body.max_tool_calls,
        "metadata": body.metadata or {},
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": body.previous_response_id,
        "prompt_cache_key": body.prompt_cache_key,
        "reasoning": {"effort": reasoning.effort if reasoning else None, "summary": summary},
        "safety_identifier": body.safety_identifier,
        "service_tier": _effective_tier(body.service_tier),
        "store": parsed.store,
        "temperature": 1.0 if body.temperature is None else body.temperature,
        "text": text_echo,
        "tool_choice": "auto" if body.tool_choice == NULL else body.tool_choice,
        "tools": body.tools or [],
        "top_logprobs": body.top_logprobs or 0,
        "top_p": 1.0 if body.top_p is None else body.top_p,
        "truncation": body.truncation or "disabled",
        "user": body.user,
    }
    return _encode(fields)[:-1]


def _effective_tier(asked: str | None) -> str:
    """The tier used, as the response names it: `fast` is reported as `priority`."""
    if asked in (None, "auto", "default"):
        return "default"
    assert asked is not None
    return "priority" if asked == "fast" else asked
