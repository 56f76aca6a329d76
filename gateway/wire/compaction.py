"""Decides when a context is compacted, and what of it is kept or summarized.

An engine writes a summary of the folded part. Kept word for word are the pinned items (system and
developer messages, the first user message, the current prompt) and the tail: the latest turns, or
the latest steps of a long one, up to a share of the threshold.
"""

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Literal

import msgspec

from backends.contract import (
    Compaction,
    ContextItem,
    CustomToolCall,
    CustomToolCallOutput,
    FunctionCall,
    FunctionCallOutput,
    GenerateRequest,
    Message,
    Part,
    Reasoning,
    TextFormat,
    TextPart,
    ToolChoice,
    Usage,
)
from backends.prompt import is_tool_output, is_user, measure, parts_text, prompt_size
from gateway.wire.items import wire_item
from gateway.wire.output_items import response_usage
from gateway.wire.sealing import Folded
from router.classify.task import Task

THRESHOLD_PERCENT = 80  # of the largest window, where a client names no threshold
SHARE = 4  # a threshold's share for the summary, and for the tail: a quarter each
MIN_SUMMARY_TOKENS = 256
MAX_SUMMARY_TOKENS = 4_096
MAX_KEPT_CHARS = 400  # of an old item, if the context fits no engine

INSTRUCTIONS = (
    "Stop here and summarize this conversation so far. Your summary takes the place of what it "
    "covers, so keep what later turns may need: facts, names, numbers, paths, decisions and their "
    "reasons, what was done and what is still to do. Give nothing but the summary."
)

_EMPTY = measure(Compaction("", summary=""))  # the overhead of a summary


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Plans a compaction before a task's answer."""

    number: int  # of the automatic ones of this conversation
    threshold_tokens: int
    num_tokens: int  # of the whole prompt, as it came
    request: GenerateRequest | None  # for the summary; None: nothing is folded
    pinned: tuple[ContextItem, ...]
    tail: tuple[ContextItem, ...]
    covers_all: bool = True

    @property
    def usage(self) -> Usage:
        """Returns the most that its generation may use."""
        if self.request is None:
            return Usage()
        request = self.request
        return Usage(request.num_prompt_tokens, num_output_tokens=request.max_output_tokens)


class Skipped(msgspec.Struct, frozen=True, kw_only=True):
    """Tells that a context over its threshold stays as it is."""

    state: Literal["limit_reached", "nothing_to_fold"]
    number: int  # of the automatic compactions so far
    threshold_tokens: int
    num_tokens: int


def plan_compaction(
    task: Task, threshold_tokens: int | None, *, max_compactions: int, window_tokens: int
) -> Plan | Skipped | None:
    """Plans a compaction before a task's answer; None if its context is short enough.

    `threshold_tokens` is the longest prompt (None: a share of the window), `max_compactions` is of
    one conversation, and `window_tokens` is the largest window of any engine.
    """
    if threshold_tokens is None:
        threshold_tokens = window_tokens * THRESHOLD_PERCENT // 100
    num_tokens = task.request.num_prompt_tokens
    if num_tokens <= threshold_tokens:
        return None
    items = task.request.items
    number = num_compactions(items)
    skipped = Skipped(
        state="limit_reached",
        number=number,
        threshold_tokens=threshold_tokens,
        num_tokens=num_tokens,
    )
    if number >= max_compactions:
        return skipped
    start = _tail_start(items, threshold_tokens // SHARE)
    kept = _pinned_indexes(items, start)
    summary_tokens = max(MIN_SUMMARY_TOKENS, min(MAX_SUMMARY_TOKENS, threshold_tokens // SHARE))
    num_folded = sum(e.num_tokens for index, e in enumerate(items[:start]) if index not in kept)
    if num_folded <= 2 * summary_tokens:  # it would save too little
        return msgspec.structs.replace(skipped, state="nothing_to_fold")
    return Plan(
        number=number + 1,
        threshold_tokens=threshold_tokens,
        num_tokens=num_tokens,
        request=_summary_request(task.request, items[:start], summary_tokens, window_tokens),
        pinned=tuple(items[index] for index in sorted(kept)),
        tail=items[start:],
    )


def plan_whole(task: Task, window_tokens: int) -> Plan:
    """Plans a requested compaction, which keeps only user messages and instructions."""
    items = task.request.items
    pinned = tuple(filter(_is_input, items))
    num_folded = sum(entry.num_tokens for entry in items if not _is_input(entry))
    summary_tokens = max(MIN_SUMMARY_TOKENS, min(MAX_SUMMARY_TOKENS, num_folded // SHARE))
    request = _summary_request(task.request, items, summary_tokens, window_tokens)
    return Plan(
        number=num_compactions(items),
        threshold_tokens=0,
        num_tokens=task.request.num_prompt_tokens,
        request=request if len(pinned) < len(items) else None,
        pinned=pinned,
        tail=(),
        covers_all=False,
    )


def expected_task(task: Task, plan: Plan) -> Task:
    """Returns the task that the router admits: with the compacted context's expected size."""
    if plan.request is None:  # nothing is asked of an engine
        return msgspec.structs.replace(task, generate=False)
    if not plan.covers_all:  # the summary is all there is
        return msgspec.structs.replace(task, request=plan.request)
    num_before = sum(entry.num_tokens for entry in task.request.items)
    num_after = sum(entry.num_tokens for entry in (*plan.pinned, *plan.tail))
    num_summary = plan.usage.num_output_tokens + _EMPTY.num_tokens
    num_prompt_tokens = task.request.num_prompt_tokens - num_before + num_after + num_summary
    request = msgspec.structs.replace(task.request, num_prompt_tokens=num_prompt_tokens)
    return msgspec.structs.replace(task, request=request, beforehand=plan.usage)


def folded_of(plan: Plan, summary: str) -> Folded:
    """Returns the content of the compaction."""
    return Folded(
        number=plan.number,
        summary=summary,
        covers_all=plan.covers_all,
        pinned=tuple(entry.item for entry in plan.pinned) if plan.covers_all else (),
        tail=tuple(entry.item for entry in plan.tail),
    )


def unfolded(
    before: tuple[ContextItem, ...], item: Compaction, folded: Folded
) -> tuple[ContextItem, ...]:
    """Opens a compaction that a client sent after the items `before`.

    Of the items that it covers, only the client's current instructions stay.
    """
    opened = measure(opened_item(item, folded))
    if not folded.covers_all:
        return (*before, opened)
    staying = tuple(entry for entry in before if _is_instruction(entry))
    known = {entry.digest for entry in staying}
    pinned = (measure(pinned) for pinned in folded.pinned)
    missing = (p for p in pinned if not _is_instruction(p) or p.digest not in known)
    return (*staying, *missing, opened, *map(measure, folded.tail))


def opened_item(item: Compaction, folded: Folded) -> Compaction:
    """Returns a compaction item with its content."""
    return msgspec.structs.replace(item, summary=folded.summary, number=folded.number)


def compacted_task(task: Task, plan: Plan, item: Compaction) -> Task:
    """Returns the task with its compacted context."""
    request = _with_items(task.request, (*plan.pinned, measure(item), *plan.tail))
    return msgspec.structs.replace(task, request=request)


def _with_items(request: GenerateRequest, items: tuple[ContextItem, ...]) -> GenerateRequest:
    size, prefix = prompt_size(
        request.instructions, request.tools, request.text_format, items, request.cache_salt
    )
    return msgspec.structs.replace(request, items=items, num_prompt_tokens=size, prefix=prefix)


def compaction_object(
    response_id: str, items: Iterable[ContextItem], usage: Usage, created_at: int
) -> dict[str, object]:
    """Makes the `response.compaction` object of a compacted context."""
    tail = response_id.removeprefix("resp_")
    output = [wire_item(entry.item, f"msg_{tail}{n:04x}") for n, entry in enumerate(items)]
    return {
        "id": response_id,
        "object": "response.compaction",
        "created_at": created_at,
        "output": output,
        "usage": response_usage(usage),
    }


def skipped_words(skipped: Skipped) -> str:
    """Says in a sentence why a context that is too long was not compacted."""
    why = "nearly all of it must stay word for word"
    if skipped.state == "limit_reached":
        why = f"this conversation has been {skipped.number} times, which is the most"
    return f"It was not compacted: {why}."


def num_compactions(items: Iterable[ContextItem]) -> int:
    """Counts the automatic compactions of a context."""
    numbers = (entry.item.number for entry in items if isinstance(entry.item, Compaction))
    return max(numbers, default=0)


def _is_instruction(entry: ContextItem) -> bool:
    return isinstance(entry.item, Message) and entry.item.role in ("system", "developer")


def _is_input(entry: ContextItem) -> bool:
    return isinstance(entry.item, Message) and entry.item.role != "assistant"


def _pinned_indexes(items: tuple[ContextItem, ...], start: int) -> set[int]:
    """Finds instructions, the first user message, and a prompt whose turn the tail cuts."""
    users = [index for index, entry in enumerate(items[:start]) if is_user(entry)]
    pinned = {index for index, entry in enumerate(items[:start]) if _is_instruction(entry)}
    pinned.update(users[:1])
    if not any(is_user(entry) for entry in items[start:]):
        pinned.update(users[-1:])
    return pinned


def _tail_start(items: tuple[ContextItem, ...], room_tokens: int) -> int:
    """Finds where the tail begins: as early as its tokens allow, not within a call."""
    last = max((n for n, e in enumerate(items) if isinstance(e.item, Compaction)), default=-1)
    starts = [index for index in _starts(items) if index > last]
    sizes = list(accumulate((entry.num_tokens for entry in reversed(items)), initial=0))
    fitting = (index for index in starts if sizes[len(items) - index] <= room_tokens)
    start = next(fitting, starts[-1] if starts else len(items))
    return _with_calls(items, start)


def _starts(items: tuple[ContextItem, ...]) -> Iterator[int]:
    """Yields where a tail may begin: at turns, and at tool calls of the last turn."""
    turn = max((index for index, entry in enumerate(items) if is_user(entry)), default=0)
    for index, entry in enumerate(items):
        after_user = index > 0 and is_user(items[index - 1])
        after_output = index > 0 and is_tool_output(items[index - 1])
        is_turn = is_user(entry) and not after_user
        is_step = index > turn and not is_tool_output(entry) and (after_user or after_output)
        if is_turn or is_step:
            yield index


def _with_calls(items: tuple[ContextItem, ...], start: int) -> int:
    """Moves the start back to keep outputs with their calls, and calls with their reasoning."""
    calls = {
        entry.item.call_id: index
        for index, entry in enumerate(items)
        if isinstance(entry.item, FunctionCall | CustomToolCall)
    }
    for entry in items[start:]:
        if isinstance(entry.item, FunctionCallOutput | CustomToolCallOutput):
            start = min(start, calls.get(entry.item.call_id, start))
    while start and start < len(items) and isinstance(items[start - 1].item, Reasoning):
        start -= 1
    return start


def _summary_request(
    request: GenerateRequest,
    items: tuple[ContextItem, ...],
    summary_tokens: int,
    window_tokens: int,
) -> GenerateRequest:
    """Appends an instruction to the conversation, so that its KV prefix is reused."""
    prompt = measure(Message("user", (TextPart(INSTRUCTIONS),)))
    head_tokens, _ = prompt_size(request.instructions, request.tools, TextFormat(), ())
    room_tokens = window_tokens - head_tokens - prompt.num_tokens - summary_tokens
    plain = msgspec.structs.replace(
        request,
        id=f"{request.id}-c",
        max_output_tokens=summary_tokens,
        stop=(),
        tool_choice=ToolChoice("none"),
        text_format=TextFormat(),
        reasoning_effort=None,
        reasoning_summary=None,
    )
    return _with_items(plain, (*_shortened(items, room_tokens), prompt))


def _shortened(items: tuple[ContextItem, ...], room_tokens: int) -> tuple[ContextItem, ...]:
    """Cuts the oldest answers and outputs short, until the items fit."""
    num_tokens = sum(entry.num_tokens for entry in items)
    shorter = list(items)
    for index, entry in enumerate(items):
        if num_tokens <= room_tokens:
            break
        shorter[index] = _beginning(entry)
        num_tokens += shorter[index].num_tokens - entry.num_tokens
    return tuple(shorter)


def _beginning(entry: ContextItem) -> ContextItem:
    item = entry.item
    if isinstance(item, Message) and item.role == "assistant":
        shorter = measure(msgspec.structs.replace(item, content=_cut(item.content)))
    elif isinstance(item, FunctionCallOutput | CustomToolCallOutput):
        shorter = measure(msgspec.structs.replace(item, output=_cut(item.output)))
    else:
        return entry
    return shorter if shorter.num_tokens < entry.num_tokens else entry


def _cut(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    return (TextPart(parts_text(parts)[:MAX_KEPT_CHARS] + " ..."),)
