"""What a request asks: the last user message, and what happened since and before.

A turn begins with its last user message. What follows it (calls the model made, what they gave)
belongs to it; what precedes it is the context that answers draw on.
"""

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

# Of a long message's beginning and of its end: enough to read the ask from, and a bound on what
# pattern matching costs.
GIST_CHARS = 1_000


class ToolResult(msgspec.Struct, frozen=True):
    """A call of this turn and what it gave."""

    name: str  # empty if the call itself is not in the context
    arguments: str
    output: str


class Ask(msgspec.Struct, frozen=True):
    """A request, read."""

    text: str  # the last user message; empty if there is none
    results: tuple[ToolResult, ...]  # of this turn, in order
    is_after_output: bool  # the prompt ends in a tool's output
    num_calls: int  # calls made in this turn
    gist: str  # the text; of a long one, its beginning and end, where people say what they want
    context: tuple[Item, ...]  # everything before the last user message


def read_ask(request: GenerateRequest) -> Ask:
    """Find the turn in the request's items."""
    items = [measured.item for measured in request.items]
    start = _turn_start(items)
    text = ""
    turn = items[start:]
    if turn and isinstance(turn[0], Message) and turn[0].role == "user":
        text = parts_text(turn[0].content)
    calls = {call.call_id: call for call in turn if isinstance(call, FunctionCall | CustomToolCall)}
    outputs = [o for o in turn if isinstance(o, FunctionCallOutput | CustomToolCallOutput)]
    return Ask(
        text=text,
        results=tuple(_result(calls.get(o.call_id), parts_text(o.output)) for o in outputs),
        is_after_output=bool(outputs) and turn[-1] is outputs[-1],
        num_calls=len(calls),
        gist=text if len(text) <= 2 * GIST_CHARS else f"{text[:GIST_CHARS]}\n{text[-GIST_CHARS:]}",
        context=tuple(items[:start]),
    )


def user_texts(items: Iterable[Item]) -> Iterator[str]:
    """What users said, in order."""
    for item in items:
        if isinstance(item, Message) and item.role == "user":
            yield parts_text(item.content)


def _turn_start(items: list[Item]) -> int:
    """Where the last user message is; users may send several in a row, the last one counts."""
    for index in range(len(items) - 1, -1, -1):
        item = items[index]
        if isinstance(item, Message) and item.role == "user":
            return index
    return 0


def _result(call: FunctionCall | CustomToolCall | None, output: str) -> ToolResult:
    if call is None:
        return ToolResult("", "", output)
    arguments = call.arguments if isinstance(call, FunctionCall) else call.input
    return ToolResult(call.name, arguments, output)
