"""How full a conversation's context is, and when it has got fuller than is good for the answers."""

from collections.abc import Sequence
from typing import Any

import msgspec

from backends.contract import (
    Compaction,
    ContextItem,
    CustomToolCall,
    FunctionCall,
    Message,
    Reasoning,
)
from router.classify.task import Task

CONTEXT_EVENT = "response.context"  # ours; sent only where the client asked for it

# Percent of the window below which a band ends. Assumed, from what users of long contexts tell:
# answers are sharp while less than a third is used; agents compact at about four fifths.
_BANDS = ((30, "sharp"), (60, "drift"), (80, "compaction_likely"))
_LAST_BAND = "compaction_certain"


def band(used_tokens: int, window_tokens: int) -> str:
    """What is to be expected of a context as full as this."""
    for percent, name in _BANDS:
        if 100 * used_tokens < percent * window_tokens:
            return name
    return _LAST_BAND


def context_view(task: Task, num_output_tokens: int, window_tokens: int) -> dict[str, Any]:
    """`routing.context`; `crossed_from` is in it where this turn led into a fuller band."""
    num_prompt_tokens = task.request.num_prompt_tokens
    used_tokens = num_prompt_tokens + num_output_tokens
    view: dict[str, Any] = {
        "used_tokens": used_tokens,
        "window_tokens": window_tokens,
        "used_percent": round(100 * used_tokens / window_tokens, 1),
        "band": band(used_tokens, window_tokens),
    }
    if view["band"] != _BANDS[0][1]:  # the lowest was crossed by nothing
        before = band(num_prompt_tokens - _num_new_tokens(task.request.items), window_tokens)
        if before != view["band"]:
            view["crossed_from"] = before
    return view


def context_event(response_id: str, view: dict[str, Any]) -> bytes | None:
    """The fields of the warning; None where no band was crossed."""
    if "crossed_from" not in view:
        return None
    return msgspec.json.encode({"response_id": response_id} | view)[1:-1]


def _num_new_tokens(items: Sequence[ContextItem]) -> int:
    """What came after the last that an engine said: this turn's own."""
    num_tokens = 0
    for entry in reversed(items):
        item = entry.item
        if isinstance(item, FunctionCall | CustomToolCall | Reasoning | Compaction):
            break
        if isinstance(item, Message) and item.role == "assistant":
            break
        num_tokens += entry.num_tokens
    return num_tokens
