"""Turns the tools of a request, and its choice among them, into those of Responses."""

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from gateway.wire.errors import ProtocolError
from gateway.wire.events import NULL

# Claude Code's stand-in for tools that are deferred: its description is for Anthropic's service.
PLACEHOLDER = "DeferredToolPlaceholder"


class ToolParam(msgspec.Struct, frozen=True):
    """Is a tool: the client's own, or one of Anthropic's by its dated `type`."""

    name: str = ""
    description: str = ""
    input_schema: msgspec.Raw = NULL
    type: str | None = None
    strict: bool | None = None
    defer_loading: bool | None = None


class ToolChoiceParam(msgspec.Struct, frozen=True):
    """Says whether and which tools may be called."""

    type: Literal["auto", "any", "tool", "none"]
    name: str = ""
    disable_parallel_tool_use: bool | None = None


def offered(tools: Iterable[ToolParam], loaded: Mapping[str, bool]) -> list[ToolParam]:
    """Returns the tools that the model sees: not the deferred ones that nobody has asked for yet.

    `loaded` says which tools were added, or removed, in the conversation.
    Raises `ProtocolError` for a tool that is not served here.
    """
    found: dict[str, ToolParam] = {}
    for index, tool in enumerate(tools):
        where = f"tools.{index}"
        if tool.type not in (None, "custom"):
            raise ProtocolError(
                "unsupported_parameter",
                f"{where}.type: '{tool.type[:64]}' is not served here: Anthropic's own tools need "
                "its service. Offer a tool with a name and an 'input_schema'.",
            )
        if not tool.name:
            raise ProtocolError("missing_required_parameter", f"{where}.name: Field required")
        if tool.input_schema == NULL:
            message = f"{where}.input_schema: Field required"
            raise ProtocolError("missing_required_parameter", message)
        if tool.name in found:
            raise ProtocolError("invalid_value", "tools: Tool names must be unique.")
        found[tool.name] = tool
    return [
        tool
        for tool in found.values()
        if tool.name != PLACEHOLDER and loaded.get(tool.name, not tool.defer_loading)
    ]


def wire_tool(tool: ToolParam) -> msgspec.Raw:
    """Writes a tool as a function of Responses."""
    function = {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.input_schema,
        "strict": bool(tool.strict),
    }
    return msgspec.Raw(msgspec.json.encode(function))


def wire_choice(choice: ToolChoiceParam | None, tools: list[ToolParam]) -> msgspec.Raw:
    """Writes the choice; raises `ProtocolError` if it names a tool that is not offered."""
    if choice is None or choice.type == "auto":
        return NULL
    if choice.type == "none":
        return msgspec.Raw(b'"none"')
    if choice.type == "any":
        if not tools:
            message = "tool_choice: 'any' needs at least one tool in 'tools'."
            raise ProtocolError("invalid_value", message)
        return msgspec.Raw(b'"required"')
    if choice.name not in {tool.name for tool in tools}:
        message = f"tool_choice.name: Tool '{choice.name[:64]}' not found in provided tools"
        raise ProtocolError("invalid_value", message)
    return msgspec.Raw(msgspec.json.encode({"type": "function", "name": choice.name}))
