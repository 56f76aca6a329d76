"""Reads the fields of an answer with their types, as DSPy's adapters and its ReAct tell them."""

import ast
import re
from typing import Any

import msgspec

MAX_FIELDS = 64
MAX_TYPE_CHARS = 1_000

_OUTPUTS = re.compile(r"^Your output fields are:\n((?:\d+\. `[^\n]*\n(?: {2,}[^\n]*\n)*)+)", re.M)
_FIELD = re.compile(r"^\d+\. `(\w{1,80})` \((.*?)\):", re.M)
_PLAIN = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}
_OPTIONS = re.compile(r"Literal\[(.*)\]")
_LIST = re.compile(r"(?:list|List)\[(.*)\]")
# An agent's tools, and those it has called in this turn.
_TOOL = re.compile(r"^[ \t]*\(\d+\) (\w{1,80}), whose .* It takes arguments (\{.*\})\.$", re.M)
_CALLED = re.compile(r"tool_name_\d+\W{1,10}(\w+)")


def asked_fields(told: str, prompt: str) -> dict[str, Any] | None:
    """Makes a JSON schema of the fields that a text asks for; None if it asks for none."""
    outputs = _OUTPUTS.search(told + "\n") if "Your output fields are:" in told else None
    if outputs is None:
        return None
    properties = {
        name: _schema_of(kind[:MAX_TYPE_CHARS])
        for name, kind in _FIELD.findall(outputs[1])[:MAX_FIELDS]
    }
    if {"next_tool_name", "next_tool_args"} <= properties.keys():
        properties |= _next_call(told, prompt)
    return {"type": "object", "properties": properties, "required": [*properties]}


def _schema_of(kind: str) -> dict[str, Any]:
    """Makes a schema of a Python type's name; what is not known may be any object."""
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if options := _OPTIONS.fullmatch(kind):
        value = _literal(f"[{options[1]}]")
        return {"enum": value} if isinstance(value, list) else {"type": "string"}
    if items := _LIST.fullmatch(kind):
        return {"type": "array", "items": _schema_of(items[1])}
    return {"type": "object"}


def _next_call(told: str, prompt: str) -> dict[str, Any]:
    """Chooses an agent's next tool: one that the prompt names and was not called, else the last."""
    tools = {name: _literal(arguments) for name, arguments in _TOOL.findall(told)[:MAX_FIELDS]}
    called = _CALLED.findall(prompt)
    left = [name for name in tools if name in prompt and name not in called]
    chosen = next(iter(left), next(reversed(tools), "finish"))
    properties = tools.get(chosen)
    properties = properties if isinstance(properties, dict) else {}
    arguments = {"type": "object", "properties": properties, "required": [*properties]}
    return {"next_tool_name": {"const": chosen}, "next_tool_args": arguments}


def _literal(text: str) -> Any:
    """Evaluates a Python literal; None for any other text, and for one that JSON cannot hold."""
    try:
        value = ast.literal_eval(text)
        msgspec.json.encode(value)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None
    return value
