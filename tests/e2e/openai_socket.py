"""Takes turns over the official Python SDK's WebSocket."""

from collections.abc import Iterable
from typing import Any

from openai.resources.responses.responses import ResponsesConnection

TERMINALS = ("response.completed", "response.incomplete", "response.failed")

TOOL: Any = {
    "type": "function",
    "name": "add",
    "parameters": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
    "strict": True,
}


def until_terminal(events: Iterable[Any]) -> tuple[list[str], Any]:
    """Returns types of the events up to the next terminal, and its response."""
    kinds: list[str] = []
    for event in events:
        kinds.append(event.type)
        assert event.type != "error", event
        if event.type in TERMINALS:
            return kinds, event.response
    raise AssertionError(f"the connection ended after {kinds}")


def turn(connection: ResponsesConnection, **body: Any) -> Any:
    connection.response.create(**body)
    return until_terminal(connection)[1]
