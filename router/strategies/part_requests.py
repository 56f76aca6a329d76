"""Makes the request that a backend gets for a branch's part of a task.

A part adds its items behind the conversation if it can, so that its KV prefix stays usable.
"""

from typing import ClassVar

import msgspec

from backends.contract import BackendInfo, ContextItem, GenerateRequest, Item, ToolChoice
from backends.prompt import measure, prompt_size

ADDED_TOKENS = 64  # at most, of each instruction that a strategy adds


class TaskPart(msgspec.Struct, frozen=True):
    """Describes what one branch contributes; every strategy has kinds of its own."""

    name: ClassVar[str]  # in `routing.generations`
    goes_on: ClassVar[bool] = True  # on another engine, where it breaks off amid its words
    is_sent: ClassVar[bool] = False  # to the client as it comes, whatever comes of it

    def request(self, request: GenerateRequest) -> GenerateRequest:
        """Rewrites the task's request for this part."""
        return request


class WholeAnswer(TaskPart, frozen=True):
    """Requests the task unchanged."""

    name = "answer"
    is_sent = True


def branch_request(
    request: GenerateRequest, branch: int, part: TaskPart, info: BackendInfo, *, alone: bool
) -> GenerateRequest:
    """Makes a branch's request within its backend's limits; `alone` it keeps the task's id."""
    if not alone:
        request = msgspec.structs.replace(request, id=f"{request.id}-{branch}")
    request = part.request(request)
    if request.prediction is not None and not info.takes_predictions:
        request = msgspec.structs.replace(request, prediction=None)
    room_tokens = min(info.max_output_tokens, info.window_tokens - request.num_prompt_tokens)
    if request.max_output_tokens > room_tokens:
        request = msgspec.structs.replace(request, max_output_tokens=max(1, room_tokens))
    return request


def in_words(
    request: GenerateRequest, max_output_tokens: int, instructions: str | None
) -> GenerateRequest:
    """Makes a shorter request without tools, since only the final answer may act.

    The client's stop sequences end that answer alone; a plan or a verdict may say them.
    """
    num_prompt_tokens, prefix = prompt_size(
        instructions, (), request.text_format, request.items, request.cache_salt
    )
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
        stop=(),
        prediction=None,  # of the whole answer
    )


def behind(request: GenerateRequest, *added: Item) -> GenerateRequest:
    """Appends items to a request."""
    items: tuple[ContextItem, ...] = (*request.items, *map(measure, added))
    num_prompt_tokens, prefix = prompt_size(
        request.instructions, request.tools, request.text_format, items, request.cache_salt
    )
    return msgspec.structs.replace(
        request, items=items, num_prompt_tokens=num_prompt_tokens, prefix=prefix
    )
