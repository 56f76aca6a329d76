"""Reads agents' runs that somebody recorded as messages of a chat, as SWE-agent's `.traj`.

A file holds a JSON list of messages, or an object with them below `messages` or `history`. Calls of
tools are `tool_calls`; results are messages of the role `tool`, by `tool_call_id`, or by the first
of `tool_call_ids`. Other messages are those of their role; a system's is the user's here.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from backends.contract import ContextItem, FunctionCall, FunctionCallOutput, Message, TextPart
from backends.prompt import measure
from tests.unit.router.agent_runs.planted_runs import PlantedRun


def recorded_run(path: Path) -> PlantedRun:
    """Reads one run; nobody says where it is stuck. A request comes before each answer."""
    found = json.loads(path.read_text("utf-8"))
    if isinstance(found, dict):
        found = found.get("messages") or found.get("history")
    if not isinstance(found, list):
        raise ValueError(f"{path}: expected messages, or an object with `messages` or `history`")
    items: list[ContextItem] = []
    requests: list[int] = []
    for message in found:
        if message["role"] == "assistant" and items:
            requests.append(len(items))
        items += [measure(item) for item in _items(message)]
    return PlantedRun(path.name, tuple(items), tuple(requests), None)


def _items(message: Mapping[str, Any]) -> Iterable[Message | FunctionCall | FunctionCallOutput]:
    text = _text(message.get("content"))
    if message["role"] == "tool":
        call_id = message.get("tool_call_id") or message["tool_call_ids"][0]
        yield FunctionCallOutput(call_id, (TextPart(text),))
        return
    if text:
        role = "assistant" if message["role"] == "assistant" else "user"
        yield Message(role, (TextPart(text),))
    for call in message.get("tool_calls") or []:
        called = call["function"]
        yield FunctionCall(call["id"], called["name"], called["arguments"])


def _text(content: object) -> str:
    if isinstance(content, list):
        return "\n".join([part.get("text", "") for part in content])
    return content if isinstance(content, str) else ""
