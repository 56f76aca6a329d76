"""Finds the last user message of a request, and the items before and after it.

A turn begins with its last user message. The items after it (calls and their outputs) belong to the
turn; the items before it are the context that answers draw on. Some agents (smolagents) write calls
and outputs as messages: "Calling tools: [...]" of the assistant, "Observation: ..." of the user.
"""

import re
from collections.abc import Iterable, Iterator

import msgspec

from backends.contract import (
    CustomToolCall,
    CustomToolCallOutput,
    FunctionCall,
    FunctionCallOutput,
    GenerateRequest,
    Item,
    Message,
)
from backends.prompt import parts_text

# So much of a long message's beginning and end is read; it bounds the cost of pattern matching.
EXCERPT_CHARS = 1_000
# Patterns see no more white space in a row: some try every way to share a gap among their parts.
MAX_GAP_CHARS = 8
_LONG_GAP = re.compile(rf"(\s{{{MAX_GAP_CHARS}}})\s+")
_WRITTEN_CALL, _WRITTEN_OUTPUT = "Calling tools:", "Observation:"
_WRITTEN_NAME = re.compile(r"'function': \{'name': '([\w.-]{1,128})'")


class ToolResult(msgspec.Struct, frozen=True):
    """Is the output of one of this turn's calls."""

    name: str  # of the tool; empty if the call is not in the context
    arguments: str  # of a function; else empty
    output: str


class LastMessage(msgspec.Struct, frozen=True):
    """Holds the last user message and the items around it."""

    text: str  # empty if there is no user message
    excerpt: str  # the text, or its beginning and end, where people state requests; short gaps
    results: tuple[ToolResult, ...]  # of this turn's calls, in order
    called: tuple[str, ...]  # the tools called in this turn, in order
    context: tuple[Item, ...]  # everything before the message
    instructions: str | None  # the request's

    @property
    def num_calls(self) -> int:
        """Returns the number of calls made in this turn."""
        return len(self.called)


def read_last_message(request: GenerateRequest) -> LastMessage:
    """Finds the last user message among a request's items."""
    items = [measured.item for measured in request.items]
    # From the end: a turn is short, and a context may have thousands of items.
    start = next((i for i in reversed(range(len(items))) if _begins_turn(items[i])), 0)
    turn = items[start:]
    text = next(user_texts(turn), "")
    excerpt = text
    if len(text) > 2 * EXCERPT_CHARS:
        excerpt = f"{text[:EXCERPT_CHARS]}\n{text[-EXCERPT_CHARS:]}"
    calls = {
        call.call_id: (call.name, call.arguments if isinstance(call, FunctionCall) else "")
        for call in turn
        if isinstance(call, FunctionCall | CustomToolCall)
    }
    results = [
        ToolResult(*calls.get(item.call_id, ("", "")), parts_text(item.output))
        for item in turn
        if isinstance(item, FunctionCallOutput | CustomToolCallOutput)
    ]
    written = [parts_text(item.content) for item in turn[1:] if isinstance(item, Message)]
    outputs = (said for said in written if said.startswith(_WRITTEN_OUTPUT))
    results += [ToolResult("", "", said.removeprefix(_WRITTEN_OUTPUT)) for said in outputs]
    names = [name for said in written for name in _written_calls(said)]
    return LastMessage(
        text=text,
        excerpt=short_gaps(excerpt),
        results=tuple(results),
        called=(*(name for name, _ in calls.values()), *names),
        context=tuple(items[:start]),
        instructions=request.instructions,
    )


def _begins_turn(item: Item) -> bool:
    if not isinstance(item, Message) or item.role != "user":
        return False
    return not parts_text(item.content[:1]).startswith(_WRITTEN_OUTPUT)


def _written_calls(said: str) -> list[str]:
    return _WRITTEN_NAME.findall(said) if said.startswith(_WRITTEN_CALL) else []


def user_texts(items: Iterable[Item]) -> Iterator[str]:
    """Yields the texts of user messages, in order."""
    return (
        parts_text(item.content)
        for item in items
        if isinstance(item, Message) and item.role == "user"
    )


def short_gaps(text: str) -> str:
    """Shortens white space of more than `MAX_GAP_CHARS` in a row to that, for patterns."""
    return _LONG_GAP.sub(r"\1", text)
