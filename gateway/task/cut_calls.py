"""Leaves out of a context the calls that broke off, by a cancel or a limit: nobody runs them.

An engine refuses a context in which a call has no output.
"""

from collections.abc import Sequence

import msgspec

from backends.contract import (
    ContextItem,
    CustomToolCall,
    CustomToolCallOutput,
    FunctionCall,
    FunctionCallOutput,
    Message,
    Reasoning,
)


def cut_calls(items: Sequence[ContextItem]) -> frozenset[int]:
    """Returns where calls are that were cut and have no output, and the reasoning before them.

    One whose client has run it all the same stays, with its output: so the engine sees what came
    of it. An output is that of the latest call of its id; not every engine has an id only once.
    """
    unanswered: dict[str, list[int]] = {}
    for number, entry in enumerate(items):
        item = entry.item
        if isinstance(item, Message):
            continue  # most are
        if isinstance(item, FunctionCall | CustomToolCall):
            unanswered.setdefault(item.call_id, []).append(number)
        elif isinstance(item, FunctionCallOutput | CustomToolCallOutput):
            del unanswered.get(item.call_id, [])[-1:]
    if not unanswered:
        return frozenset()
    found: set[int] = set()
    for numbers in unanswered.values():
        for number in numbers:
            if _is_cut(items[number]):
                found.update(_with_reasoning(items, number))
    return frozenset(found)


def _with_reasoning(items: Sequence[ContextItem], number: int) -> range:
    """Returns the places of a call and its reasoning, which engines refuse without what follows."""
    start = number
    while start and isinstance(items[start - 1].item, Reasoning):
        start -= 1
    return range(start, number + 1)


def _is_cut(call: ContextItem) -> bool:
    """Says whether a call was cut; records of earlier versions only show it by its arguments."""
    item = call.item
    assert isinstance(item, FunctionCall | CustomToolCall)
    return item.is_cut or (isinstance(item, FunctionCall) and not _is_json(item.arguments))


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return False
    return True
