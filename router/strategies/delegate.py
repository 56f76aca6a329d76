"""`delegate`: the fast engine holds the conversation and hands sub-tasks to the deep one.

The fast engine is offered a tool of the gateway's. It works in rounds:

1. opening: the fast engine answers. Without a call of the tool that is the whole response; a few
   words before a call are commentary.
2. Each call becomes a sub-task on the deep engine, begun when the call is complete. The fast engine
   goes on meanwhile and knows that they run.
3. closing: with what the sub-tasks came to, the fast engine gives the final answer.

What the fast engine says meanwhile and what the sub-tasks say is commentary; sub-tasks wait until
the fast engine is silent, then the first to speak streams and the others follow whole. A client may
steer or cancel one sub-task; the response goes on.

Bounds: so many sub-tasks in a response; the deep engine is not offered the tool, so none has
sub-tasks of its own; one opening and one closing round. Where the opening also calls a tool of the
client's, there is no closing: the response ends with that call when the sub-tasks are done.

A sub-task that fails is an answer to its call: the fast engine says what it can. If the fast engine
fails unheard the deep one answers; if it fails after sub-tasks came to something, or says nothing
then, that is the answer.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from backends.contract import (
    ContextItem,
    Delta,
    DeltaKind,
    Finish,
    FinishReason,
    FunctionCall,
    FunctionCallOutput,
    Item,
    TextPart,
)
from backends.delegation import (
    CANCELLED,
    DELEGATE,
    DELEGATE_TOOL,
    FAILED,
    NOT_BEGUN,
    RUNNING,
    SAID_NOTHING,
)
from router.strategies.actions import DEEP, FAST, Action, Phase, StartBranch
from router.strategies.items import joined, text_of
from router.strategies.machine import NOBODY, PATIENCE_US, WAITED_FOR_US
from router.strategies.part_requests import WholeAnswer
from router.strategies.record import StrategyOptions, StrategyRecord, reading
from router.strategies.subtasks import Delegation, Subtask
from router.strategies.tool_rounds import (
    TOOL_TOKENS,
    Converse,
    ToolRounds,
    arguments_of,
    assistant_said,
    can_offer,
    decoded,
)

OPENING = 0  # the branch of the first round
MAX_TASK_CHARS = 32_768
MAX_DELEGATIONS = 8


class DelegateOptions(StrategyOptions, frozen=True, kw_only=True):
    """Limits the sub-tasks of one response."""

    max_delegations: Annotated[int, Meta(ge=1, le=MAX_DELEGATIONS)] = 3


class _Arguments(msgspec.Struct):
    task: str = ""


class Delegate(ToolRounds):
    """Runs the rounds of the fast engine and the sub-tasks of the deep one."""

    def __init__(
        self, max_delegations: int, *, offered: bool = True, max_output_tokens: int = 1 << 30
    ) -> None:
        """`max_output_tokens` is the request's limit, of opening and closing together."""
        super().__init__(DELEGATE, offered=offered, max_output_tokens=max_output_tokens)
        self._max_delegations = max_delegations
        self._new_branch()  # the opening's
        self._opening: list[Delta] = []  # its words and calls
        self._meanwhile: int | None = None  # the branch of the round beside the sub-tasks
        self._meanwhile_said: list[Delta] = []
        self._fast_speaks = True  # sub-tasks wait
        self._deep_waits = False  # one has words, or is over
        self._closing: int | None = None  # the branch that gives the final answer
        self._speaker: Delegation | None = None
        self._deep_closes = False
        self._client_calls = False
        self.delegations: list[Delegation] = []

    def start(self, now_us: int) -> list[Action]:
        return self._start_round(OPENING, Converse("opening") if self._offered else WholeAnswer())

    def _take_delta(self, branch: int, delta: Delta) -> list[Action]:
        if branch == OPENING:
            return self._on_opening(delta)
        if branch == self._closing:
            if delta.name == DELEGATE_TOOL:
                return []  # it was not offered again
            return [self._items.forward(branch, delta, "final_answer")]
        if branch == self._meanwhile:
            if delta.kind >= DeltaKind.FUNCTION_CALL:
                return []
            self._hear(delta.at_us)
            self._meanwhile_said.append(delta)
            return [self._items.forward(branch, delta, "commentary")]
        if delta.kind >= DeltaKind.FUNCTION_CALL:
            return []
        delegation = self._of_branch(branch)
        delegation.said.append((branch, delta))
        if self._fast_speaks:
            is_first = self._meanwhile is not None and not self._deep_waits
            self._deep_waits = True
            return [self._next_look()] if is_first else []
        self._speaker = self._speaker or delegation
        return self._show(delegation) if self._speaker is delegation else []

    def _take_finish(self, branch: int, finish: Finish, now_us: int) -> list[Action]:
        if branch == OPENING:
            return self._opening_over(finish, now_us)
        if branch == self._closing:
            return self._closing_over(branch, finish)
        if branch == self._meanwhile:
            return self._fast_silent()
        delegation = self._of_branch(branch)
        delegation.state = "finished"
        if finish.error is not None:
            delegation.state = "failed"
            delegation.note = f"{FAILED}: {finish.error.message}."
        return self._delegation_over(delegation)

    def on_time(self, now_us: int, waiting: frozenset[int] = NOBODY) -> list[Action]:
        if self._ended or self._meanwhile is None or not self._fast_speaks:
            return [] if self._ended else self._look(now_us)
        if self._is_silent(now_us):
            return [self._cancel(self._meanwhile, is_silent=True), *self._fast_silent()]
        return [self._next_look()]

    def _patience_us(self) -> int:
        return WAITED_FOR_US if self._deep_waits else PATIENCE_US

    def does_without(self, branch: int) -> bool:
        return any(each.branch == branch and each.state == "running" for each in self.delegations)

    def may_start(self, backend_index: int) -> bool:
        return backend_index == FAST and self._closing is None and not self._ended

    def redirect(self, number: int, items: tuple[ContextItem, ...] | None) -> list[Action]:
        """Steers one sub-task or cancels it (None), if it runs; what it said stays."""
        running = (d for d in self.delegations if d.number == number and d.state == "running")
        delegation = None if self._ended else next(running, None)
        if delegation is None:
            return []
        cancel = self._cancel(delegation.branch)
        if items is not None:
            said = (*assistant_said(delegation.text), *(entry.item for entry in items))
            return [cancel, self._begin(delegation, said)]
        delegation.state = "cancelled"
        delegation.note = CANCELLED
        return [cancel, *self._delegation_over(delegation)]

    def _on_opening(self, delta: Delta) -> list[Action]:
        actions: list[Action] = []
        if self._opening and delta.index != self._opening[-1].index:
            actions += self._take_call()
        self._opening.append(delta)
        if self._is_ours(delta):
            return actions + self._say(OPENING, self._prelude.settle("commentary"))
        self._client_calls = self._client_calls or delta.kind >= DeltaKind.FUNCTION_CALL
        return actions + self._say(OPENING, self._prelude.take(delta))

    def _take_call(self) -> list[Action]:
        """Starts a sub-task if the opening's latest item is a call of the tool."""
        last = self._opening[-1] if self._opening else None
        if last is None or not self._is_ours(last):
            return []
        arguments = arguments_of(self._opening, last.index)
        number = len(self.delegations) + 1
        call = FunctionCall(last.call_id or f"call_{number}", DELEGATE_TOOL, arguments)
        task = decoded(arguments, _Arguments).task.strip()
        note = ""
        if not task or len(task) > MAX_TASK_CHARS:
            note = f'{NOT_BEGUN}: "task" must say what to do, in at most 32,768 characters.'
        elif number > self._max_delegations:
            note = f"{NOT_BEGUN}: one answer may have {self._max_delegations} sub-tasks."
        delegation = Delegation(number, call, task, "failed" if note else "running", note)
        self.delegations.append(delegation)
        return [] if note else [self._begin(delegation)]

    def _begin(self, delegation: Delegation, said: tuple[Item, ...] = ()) -> StartBranch:
        """Starts the sub-task, or continues it after a steer."""
        delegation.branch = self._new_branch()
        part = Subtask(delegation.task, said)
        return StartBranch(delegation.branch, DEEP, part, own_reservation=True)

    def _opening_over(self, finish: Finish, now_us: int) -> list[Action]:
        if finish.reason is FinishReason.ERROR:
            if self._prelude.phase != "final_answer":
                return self._round_failed(OPENING)
            running = (d.branch for d in self.delegations if d.state == "running")
            return [*map(self._cancel, running), *self._end(finish, replaceable=False)]
        actions = [] if finish.reason is FinishReason.LENGTH else self._take_call()
        if not self.delegations:
            actions += self._say(OPENING, self._prelude.settle("final_answer"))
            return actions + self._end(finish, replaceable=False)
        if self._client_calls or not any(d.state == "running" for d in self.delegations):
            return actions + self._fast_silent()
        self._meanwhile = self._new_branch()
        start = StartBranch(self._meanwhile, FAST, Converse("meanwhile", self._context()))
        self._hear(now_us)
        return [*actions, start, self._next_look()]

    def _fast_silent(self) -> list[Action]:
        """Lets sub-tasks speak once the fast engine is silent."""
        self._fast_speaks = False
        return self._next_speaker()

    def _delegation_over(self, delegation: Delegation) -> list[Action]:
        if self._fast_speaks:
            self._deep_waits = True
            return [] if self._meanwhile is None else [self._next_look()]
        if self._speaker not in (None, delegation):
            return []
        return self._next_speaker()

    def _next_speaker(self) -> list[Action]:
        """Shows finished sub-tasks and lets a running one stream, or starts the closing round."""
        actions: list[Action] = []
        if self._speaker is not None:
            actions += self._show(self._speaker)
            self._speaker = None
        for delegation in self.delegations:
            if delegation.state == "finished":
                actions += self._show(delegation)
        running = [d for d in self.delegations if d.state == "running"]
        if not running:
            return actions + self._close()
        self._speaker = next((d for d in running if d.said), None)
        return actions + (self._show(self._speaker) if self._speaker else [])

    def _close(self) -> list[Action]:
        opening = self._finishes[OPENING]
        answered = self._prelude.phase == "final_answer"
        num_spent = opening.usage.num_output_tokens if answered else 0
        if self._client_calls or num_spent >= self._max_output_tokens:
            return self._end(opening, replaceable=False)
        self._closing = self._new_branch()
        part = Converse("closing", self._context(), num_spent_tokens=num_spent)
        return self._start_round(self._closing, part)

    def _closing_over(self, branch: int, finish: Finish) -> list[Action]:
        unheard = not self._items.has_words_of(branch)
        # Unheard, one that stopped has only called the tool.
        is_lost = finish.reason in (FinishReason.ERROR, FinishReason.STOP)
        if is_lost and unheard and not self._deep_closes:
            return self._round_failed(branch)
        return self._end(finish, replaceable=False)

    def _round_failed(self, branch: int) -> list[Action]:
        """Ends with what the sub-tasks said as the answer, else has the deep engine give one.

        Where the opening fails, which may still have called for more, the deep engine does so.
        """
        cancelled: list[Action] = []
        if branch == OPENING:
            for each in self.delegations:
                if each.state == "running":
                    each.state = "cancelled"
                    cancelled.append(self._cancel(each.branch))
        else:
            finished = [each for each in self.delegations if each.state == "finished"]
            stand_in = [action for each in finished for action in self._show(each, "final_answer")]
            if stand_in or self._prelude.phase == "final_answer":
                return [*stand_in, *self._end(self._finishes[OPENING], replaceable=False)]
        self._deep_closes = True
        self._closing = self._new_branch()
        return [*cancelled, StartBranch(self._closing, DEEP, own_reservation=True)]

    def _show(self, delegation: Delegation, phase: Phase = "commentary") -> list[Action]:
        """Forwards a sub-task's deltas that were not shown yet in this phase."""
        num_shown = delegation.num_shown if phase == "commentary" else 0
        new = delegation.said[num_shown:]
        delegation.num_shown = len(delegation.said)
        branches = dict.fromkeys(branch for branch, _ in new)
        return [
            self._items.forward(branch, delta, phase)
            for branch in branches
            for delta in joined([delta for b, delta in new if b == branch])
        ]

    def _context(self) -> tuple[Item, ...]:
        """Returns the fast engine's messages so far, its calls, and their outputs."""
        opening = (d for d in self._opening if d.kind is DeltaKind.TEXT)
        words = (*assistant_said(text_of(opening)), *assistant_said(text_of(self._meanwhile_said)))
        return (*words, *(d.call for d in self.delegations), *map(_output, self.delegations))

    def _of_branch(self, branch: int) -> Delegation:
        return next(d for d in self.delegations if d.branch == branch)


def _output(delegation: Delegation) -> FunctionCallOutput:
    """Makes a call's output, which may be that it is still running."""
    text = delegation.note or delegation.text or SAID_NOTHING
    if delegation.state == "running":
        text = f'{{"status":"{RUNNING}","note":"Say now what needs no waiting for it."}}'
    elif delegation.note and delegation.text:
        text = f"{delegation.note} Before that, it said:\n\n{delegation.text}"
    return FunctionCallOutput(delegation.call.call_id, (TextPart(text),))


RECORD = StrategyRecord(
    name="delegate",
    machine=lambda options, request: Delegate(
        options.max_delegations,
        offered=can_offer(DELEGATE, request),
        max_output_tokens=request.max_output_tokens,
    ),
    usage=lambda _options, once: {"fast": once + reading(TOOL_TOKENS)},
    options=DelegateOptions,
    shows=frozenset({"delegations"}),
    simulated_as="Who may delegate does so in {handed_on:.0%} of tasks, as in the log.",
)
