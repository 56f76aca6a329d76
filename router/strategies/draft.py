"""`draft`: the fast engine's draft goes to the deep one as a prediction of its answer.

The deep engine checks the draft in blocks instead of writing every word, so its own answer comes at
several times its own speed where the two agree. The client sees that answer alone, and no draft.

A server takes a prediction only with the request, so the deep engine begins when the draft is
there: whole, or as far as it is when the time for it is up. A fast engine that is silent, fails or
calls a tool holds nothing up: the deep engine begins with what there is. A prediction of the
client's own needs no draft.

If the deep engine fails before a word of it was seen, a whole draft is the answer; without one the
fast engine is asked for it.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from backends.contract import Delta, DeltaKind, Finish, FinishReason, GenerateRequest
from router.strategies.actions import DEEP, FAST, Action, StartBranch, WakeAt
from router.strategies.items import text_of
from router.strategies.machine import NOBODY, WAITED_FOR_US, Machine
from router.strategies.part_requests import TaskPart, WholeAnswer
from router.strategies.record import StrategyOptions, StrategyRecord

STAND_IN = 2  # the branch of the fast engine's own whole answer
MAX_DRAFT_MS = 60_000


class DraftOptions(StrategyOptions, frozen=True, kw_only=True):
    """Sets how long the deep engine waits for the draft.

    By default as long as an engine of 1,000 tokens/s takes for 300 lines of code.
    """

    draft_ms: Annotated[int, Meta(ge=1, le=MAX_DRAFT_MS)] = 4_000


class Draft(TaskPart, frozen=True):
    """Requests the answer without reasoning, which nobody would read."""

    name = "draft"
    goes_on = False  # half of it predicts half of the answer

    def request(self, request: GenerateRequest) -> GenerateRequest:
        return msgspec.structs.replace(request, reasoning_effort=None, reasoning_summary=None)


class Predicted(TaskPart, frozen=True):
    """Requests the task's answer, with what it will mostly be."""

    name = "answer"
    is_sent = True
    prediction: str

    def request(self, request: GenerateRequest) -> GenerateRequest:
        return msgspec.structs.replace(request, prediction=self.prediction)


class Drafting(Machine):
    """Gathers the draft, then streams the deep engine's answer."""

    def __init__(self, draft_us: int, *, is_predicted: bool) -> None:
        """Takes as `is_predicted` whether the client knows the answer already."""
        super().__init__()
        self._draft_us = draft_us
        self._is_predicted = is_predicted
        self._draft: list[Delta] = []
        self._due_us = 0  # when the deep engine begins at the latest
        self._has_deep = False
        self._was_heard = False  # the fast engine

    def start(self, now_us: int) -> list[Action]:
        if self._is_predicted:
            return self._begin()
        self._due_us = now_us + self._draft_us
        self._hear(now_us)
        return [StartBranch(FAST, FAST, Draft()), self._next_look()]

    def _take_delta(self, branch: int, delta: Delta) -> list[Action]:
        if branch != FAST:
            return [self._items.forward(branch, delta, "final_answer")]
        self._was_heard = True
        self._hear(delta.at_us)
        if delta.kind >= DeltaKind.FUNCTION_CALL:
            return [self._cancel(FAST), *self._begin()]
        if delta.kind is DeltaKind.TEXT:
            self._draft.append(delta)
        return []

    def _take_finish(self, branch: int, finish: Finish, now_us: int) -> list[Action]:
        if branch == FAST:
            if finish.reason is FinishReason.CONTENT_FILTER:
                self._draft.clear()
            return self._begin()
        if finish.reason is not FinishReason.ERROR or self._items.has_words_of(branch):
            return self._end(finish, replaceable=False)
        if branch == STAND_IN:
            return self._end(self._finishes[DEEP], replaceable=False)
        return self._replace(finish)

    def on_time(self, now_us: int, waiting: frozenset[int] = NOBODY) -> list[Action]:
        if self._has_deep or self._ended:
            return []
        if self._is_silent(now_us):
            return [self._cancel(FAST, is_silent=True), *self._begin()]
        if now_us < self._due_us:
            return [self._next_look()]
        return [self._cancel(FAST), *self._begin()]

    def _patience_us(self) -> int:
        return WAITED_FOR_US

    def _next_look(self) -> WakeAt:
        return WakeAt(min(self._due_us, super()._next_look().at_us))

    def does_without(self, branch: int) -> bool:
        drafted = self._finishes.get(FAST)
        is_whole = drafted is not None and drafted.reason is FinishReason.STOP
        return branch == DEEP and is_whole and bool(self._draft)

    def may_start(self, backend_index: int) -> bool:
        return backend_index == DEEP and not self._has_deep

    def _begin(self) -> list[Action]:
        self._has_deep = True
        draft = text_of(self._draft)
        return [StartBranch(DEEP, DEEP, Predicted(draft) if draft else WholeAnswer())]

    def _replace(self, failed: Finish) -> list[Action]:
        """Handles a failure of the deep engine before its first word."""
        drafted = self._finishes.get(FAST)
        if self.does_without(DEEP):
            shown = self._forward_held(FAST, self._draft, "final_answer")
            return [*shown, *self._end(failed, replaceable=True)]
        was_silent = FAST in self._cancelled and not self._was_heard
        if drafted is not None or was_silent:
            return self._end(failed, replaceable=False)
        return [StartBranch(STAND_IN, FAST, own_reservation=True)]  # there is no whole draft


RECORD = StrategyRecord(
    name="draft",
    machine=lambda options, request: Drafting(
        options.draft_ms * 1_000, is_predicted=request.prediction is not None
    ),
    options=DraftOptions,
    metadata={"draft_ms": "draft_ms"},
    needs_prediction=True,
    simulated_as="Drafts run as if no predicted token were right: the slowest they are.",
)
