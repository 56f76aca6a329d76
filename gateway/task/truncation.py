"""Drops the oldest items of a context that fits no engine: `truncation: "auto"` of a request."""

from collections.abc import Iterable, Sequence

from backends.contract import (
    BackendInfo,
    ContextItem,
    CustomToolCall,
    CustomToolCallOutput,
    FunctionCall,
    FunctionCallOutput,
    Reasoning,
)
from router.classify.task import Task

ANSWER_SHARE = 4  # of the window, at most, that is kept for the answer


def room_tokens(task: Task, infos: Iterable[BackendInfo]) -> int:
    """Returns the longest prompt that an engine takes which the task may use."""
    allowed = [info for info in infos if info.group in task.tenant.limits]
    named = [info for info in allowed if info.model == task.request.model]
    window_tokens = max((info.window_tokens for info in named or allowed), default=0)
    return window_tokens - min(task.request.max_output_tokens, window_tokens // ANSWER_SHARE)


def newest_items(items: Sequence[ContextItem], excess_tokens: int) -> tuple[ContextItem, ...]:
    """Drops items from the beginning, at least so many tokens, but never the last item.

    Outputs go with their calls: an engine refuses one without the other.
    """
    calls: set[str] = set()
    start = 0
    while start < len(items) - 1:
        item = items[start].item
        if excess_tokens <= 0 and not isinstance(item, Reasoning):
            break
        excess_tokens -= items[start].num_tokens
        if isinstance(item, FunctionCall | CustomToolCall):
            calls.add(item.call_id)
        start += 1
    return tuple(
        entry
        for entry in items[start:]
        if not isinstance(entry.item, FunctionCallOutput | CustomToolCallOutput)
        or entry.item.call_id not in calls
    )
