"""Defines the sub-tasks of `delegate`, and the parts of its branches."""

from dataclasses import dataclass, field
from typing import Literal

import msgspec

from backends.contract import (
    Delta,
    FunctionCall,
    GenerateRequest,
    Item,
    Message,
    TextFormat,
    TextPart,
)
from router.strategies.items import text_of
from router.strategies.part_requests import TaskPart, behind, in_words

State = Literal["running", "finished", "failed", "cancelled"]
SUBTASK_MAX_OUTPUT_TOKENS = 4_096


@dataclass(slots=True)
class Delegation:
    """Holds one sub-task; a steer gives it another branch."""

    number: int  # from 1, as clients address it
    call: FunctionCall
    task: str
    state: State
    note: str  # what the fast engine reads instead of words
    branch: int = -1  # once it has begun
    said: list[tuple[int, Delta]] = field(default_factory=list)  # (branch, delta)
    num_shown: int = 0

    @property
    def text(self) -> str:
        """Returns its text over all branches."""
        branches = dict.fromkeys(branch for branch, _ in self.said)
        texts = (text_of(delta for b, delta in self.said if b == branch) for branch in branches)
        return "\n\n".join(texts)


class Subtask(TaskPart, frozen=True):
    """Requests a sub-task; `said` has its output and the client's steers so far."""

    name = "subtask"
    task: str
    said: tuple[Item, ...] = ()

    def request(self, request: GenerateRequest) -> GenerateRequest:
        words = in_words(request, SUBTASK_MAX_OUTPUT_TOKENS, request.instructions)
        # Reasoning is what it is handed on for; a format belongs to the answer.
        words = msgspec.structs.replace(
            words,
            text_format=TextFormat(),
            reasoning_effort=request.reasoning_effort,
            reasoning_summary=request.reasoning_summary,
        )
        return behind(words, Message("user", (TextPart(self.task),)), *self.said)
