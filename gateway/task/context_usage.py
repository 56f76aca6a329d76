"""Measures how full a context is, and warns when it gets too full for good answers."""

from bisect import bisect_right
from collections.abc import Sequence

import msgspec

from backends.contract import (
    Compaction,
    ContextItem,
    CustomToolCall,
    FunctionCall,
    Message,
    Reasoning,
)
from gateway.wire.routing import Band, ContextUse
from router.classify.task import Task

_encode = msgspec.json.encode

CONTEXT_EVENT = "response.context"  # ours; sent only where the client asked for it

# Upper bounds of the bands, in percent of the window. Assumed, from users' reports: answers are
# sharp while less than a third is used; agents compact at about four fifths.
_UPPER_BOUNDS = (30, 60, 80)
_BANDS: tuple[Band, ...] = ("sharp", "drift", "compaction_likely", "compaction_certain")


def band(used_tokens: int, window_tokens: int) -> Band:
    """Returns the band of a context that is this full."""
    return _BANDS[bisect_right(_UPPER_BOUNDS, 100 * used_tokens // window_tokens)]


def context_use(task: Task, num_output_tokens: int, window_tokens: int) -> ContextUse:
    """Makes `routing.context`, with `crossed_from` if this turn led into a fuller band."""
    num_prompt_tokens = task.request.num_prompt_tokens
    used_tokens = num_prompt_tokens + num_output_tokens
    used_percent = (2_000 * used_tokens // window_tokens + 1) // 2 / 10  # rounded to a tenth
    if 100 * used_tokens < _UPPER_BOUNDS[0] * window_tokens:  # nothing crosses into the lowest
        return ContextUse(used_tokens, window_tokens, used_percent, _BANDS[0])
    now = band(used_tokens, window_tokens)
    before = band(num_prompt_tokens - _num_new_tokens(task.request.items), window_tokens)
    crossed_from = None if before == now else before
    return ContextUse(used_tokens, window_tokens, used_percent, now, crossed_from)


def context_event(response_id: str, use: ContextUse) -> bytes | None:
    """Makes the fields of the warning; None if no band was crossed."""
    if use.crossed_from is None:
        return None
    return b'"response_id":%b,%b' % (_encode(response_id), _encode(use)[1:-1])


def _num_new_tokens(items: Sequence[ContextItem]) -> int:
    """Counts the tokens after the engine's last output: this turn's own."""
    num_tokens = 0
    for entry in reversed(items):
        item = entry.item
        is_answer = isinstance(item, Message) and item.role == "assistant"
        if is_answer or isinstance(item, FunctionCall | CustomToolCall | Reasoning | Compaction):
            break
        num_tokens += entry.num_tokens
    return num_tokens
