"""Runs an engine in rounds, with a tool of the gateway's: what `delegate` and `advise` share.

The fast engine is offered the tool besides the client's own. Its calls are no items of the
response: the gateway runs them, and the next round has their outputs. A round that says nothing at
all, or stops within a call of the tool, is given up after a while, as a hung engine's.
"""

from typing import Literal, TypeVar

import msgspec

from backends.contract import (
    Delta,
    DeltaKind,
    FunctionTool,
    GenerateRequest,
    Item,
    Message,
    TextPart,
    ToolChoice,
)
from backends.delegation import DELEGATE
from router.strategies.actions import FAST, Action, StartBranch, WakeAt
from router.strategies.items import joined
from router.strategies.machine import Machine
from router.strategies.part_requests import TaskPart, behind
from router.strategies.prelude import Prelude

UNHEARD_US = 3_000_000  # ours: a fast engine's first token takes a tenth, with a long prompt
CALLING_US = 10_000_000  # ours: many servers are silent while their engine writes a call
TOOL_TOKENS = 160  # at most, of a tool of the gateway's
Arguments = TypeVar("Arguments", bound=msgspec.Struct)


class Converse(TaskPart, frozen=True):
    """Requests the task with a tool of the gateway's; `said` follows the task's items.

    The tools are the same in every round, so that the prompt's prefix stays the same.
    """

    name = "converse"
    round: Literal["opening", "meanwhile", "closing"]
    said: tuple[Item, ...] = ()
    tool: FunctionTool = DELEGATE
    num_spent_tokens: int = 0  # of the task's limit of output, by earlier rounds of the answer

    def request(self, request: GenerateRequest) -> GenerateRequest:
        choice = request.tool_choice
        if self.round == "meanwhile" or (self.round == "closing" and not request.tools):
            choice = ToolChoice("none")
        elif self.round == "closing" and not choice.names:
            choice = ToolChoice("auto", tuple(tool.name for tool in request.tools))
        tools = (*request.tools, self.tool)
        left = max(1, request.max_output_tokens - self.num_spent_tokens)
        offered = msgspec.structs.replace(
            request, tools=tools, tool_choice=choice, max_output_tokens=left
        )
        return behind(offered, *self.said)


class ToolRounds(Machine):
    """Numbers the branches, holds a round's first words, and looks whether it says anything."""

    def __init__(self, tool: FunctionTool, *, offered: bool, max_output_tokens: int) -> None:
        """`max_output_tokens` is the request's limit, of all rounds of the answer together."""
        super().__init__()
        self._tool = tool
        self._offered = offered
        self._max_output_tokens = max_output_tokens
        self._num_branches = 0
        self._prelude = Prelude()
        self._round_now: int | None = None  # the latest round of the fast engine
        self._unheard: int | None = None  # the round that has said nothing yet
        self._looked = False  # at that round
        self._is_calling = False  # the round's latest word is of a call of the tool

    def on_delta(self, branch: int, delta: Delta) -> list[Action]:
        if branch == self._unheard:
            self._unheard = None
        actions = super().on_delta(branch, delta)
        if branch == self._round_now:
            was_calling, self._is_calling = self._is_calling, self._is_ours(delta)
            if self._is_calling:
                self._hear(delta.at_us)
                if not was_calling and not self._is_over(branch):
                    actions = [*actions, WakeAt(self._heard_us + CALLING_US)]
        return actions

    def _new_branch(self) -> int:
        self._num_branches += 1
        return self._num_branches - 1

    def _start_round(self, branch: int, part: TaskPart) -> list[Action]:
        """Starts a round of the fast engine, and looks at it at once, for the time it is."""
        self._round_now = self._unheard = branch
        self._looked = self._is_calling = False
        return [StartBranch(branch, FAST, part), WakeAt(self._heard_us)]

    def _look(self, now_us: int) -> list[Action]:
        """Gives up a round that is hung, or looks again where one may be."""
        branch = self._round_now if self._is_calling else self._unheard
        if branch is None or self._is_over(branch):
            return []
        if not self._looked:
            self._looked = True
            self._hear(now_us)
        due_us = self._heard_us + (CALLING_US if self._is_calling else UNHEARD_US)
        if now_us < due_us:
            return [WakeAt(due_us)]
        return [self._cancel(branch, is_silent=True), *self._round_failed(branch)]

    def _round_failed(self, branch: int) -> list[Action]:
        """Answers without a round that has said nothing of the answer."""
        raise NotImplementedError

    def _is_ours(self, delta: Delta) -> bool:
        """Returns whether a delta calls the gateway's tool, and not a client's of that name."""
        is_call = delta.kind is DeltaKind.FUNCTION_CALL and delta.name == self._tool.name
        return is_call and self._offered

    def _say(self, branch: int, deltas: list[Delta]) -> list[Action]:
        """Forwards words of a round in their phase."""
        said = joined(deltas) if len(deltas) > 1 else deltas
        return [self._items.forward(branch, d, self._prelude.phase_of(d)) for d in said]


def can_offer(tool: FunctionTool, request: GenerateRequest) -> bool:
    """Returns whether a tool of the gateway's can be offered beside a request's own.

    Forced and forbidden calls are the client's; an answer in JSON has no words before a call.
    """
    taken = any(each.name == tool.name for each in request.tools)
    in_words = request.text_format.type == "text"
    return request.tool_choice.mode == "auto" and in_words and not taken


def arguments_of(deltas: list[Delta], index: int) -> str:
    """Returns the arguments of the call at an index."""
    return "".join(delta.text for delta in deltas if delta.index == index)


def decoded(arguments: str, kind: type[Arguments]) -> Arguments:
    """Decodes a call's arguments; what is no such call has none."""
    try:
        return msgspec.json.decode(arguments, type=kind)
    except msgspec.DecodeError:
        return kind()


def assistant_said(text: str) -> tuple[Item, ...]:
    """Returns words as a message of the assistant's; none for no words."""
    return (Message("assistant", (TextPart(text),)),) if text else ()
