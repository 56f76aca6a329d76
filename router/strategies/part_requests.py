"""The part of a task that a branch does, and the request that its backend gets for it.

What a part adds goes behind the conversation wherever it can: an engine that holds the
conversation's KV prefix keeps the use of it.
"""

from typing import ClassVar

import msgspec

from backends.contract import BackendInfo, ContextItem, GenerateRequest, Item, ToolChoice
from backends.prompt import measure, prompt_size

ADDED_TOKENS = 64  # at most, of each instruction that a strategy adds


class TaskPart(msgspec.Struct, frozen=True):
    """What one branch contributes; every strategy has kinds of its own."""

    name: ClassVar[str]  # in `routing.generations`

    def request(self, request: GenerateRequest) -> GenerateRequest:
        """The task's request, rewritten for this part."""
        return request


class WholeAnswer(TaskPart, frozen=True):
    """The task, as it came."""

    name = "answer"


def branch_request(
    request: GenerateRequest, branch: int, part: TaskPart, info: BackendInfo, *, alone: bool
) -> GenerateRequest:
    """The request of one branch, within what its backend can give.

    `alone`: there is no other branch, so that the request keeps its id.
    """
    if not alone:
        request = msgspec.structs.replace(request, id=f"{request.id}-{branch}")
    request = part.request(request)
    room_tokens = min(info.max_output_tokens, info.window_tokens - request.num_prompt_tokens)
    if request.max_output_tokens > room_tokens:
        request = msgspec.structs.replace(request, max_output_tokens=max(1, room_tokens))
    return request


def in_words(
    request: GenerateRequest, max_output_tokens: int, instructions: str | None
) -> GenerateRequest:
    """A shorter request without tools, since only the final answer may act."""
    num_prompt_tokens, prefix = prompt_size(instructions, (), request.text_format, request.items)
    return msgspec.structs.replace(
        request,
        instructions=instructions,
        num_prompt_tokens=num_prompt_tokens,
        prefix=prefix,
        max_output_tokens=min(request.max_output_tokens, max_output_tokens),
        tools=(),
        tool_choice=ToolChoice("none"),
        reasoning_effort=None,
        reasoning_summary=None,
    )


def behind(request: GenerateRequest, *added: Item) -> GenerateRequest:
    """The request with more items behind its own."""
    items: tuple[ContextItem, ...] = (*request.items, *map(measure, added))
    num_prompt_tokens, prefix = prompt_size(
        request.instructions, request.tools, request.text_format, items
    )
    return msgspec.structs.replace(
        request, items=items, num_prompt_tokens=num_prompt_tokens, prefix=prefix
    )


def shows_commentary(request: GenerateRequest) -> bool:
    """Whether words beside the answer may be shown.

    An answer that must be JSON is one message: clients read all of a response's text as one value.
    """
    return request.text_format.type == "text"
