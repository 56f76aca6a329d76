"""`hedge`: the deep engine answers; the fast one joins if the deep one has no words yet, or fails.

Then the engine with the first words wins. What it reasons are no words: the deep engine's reasoning
is shown as it comes, the fast one's once it has won. Where both run, the first words are shown when
they lead, some tokens later: who breaks off or stalls before that, and nobody goes on with, gives
way to the other unseen, so that a client never reads the beginnings of two answers. The loser is
cancelled then. Most answers never need the fast engine, so it is reserved when it joins, and
released when it loses.
"""

from collections.abc import Callable
from math import ceil
from typing import Annotated

import msgspec
from msgspec import Meta

from backends.contract import Delta, DeltaKind, Finish, FinishReason
from router.strategies.actions import DEEP, FAST, Action, StartBranch, WakeAt
from router.strategies.machine import NOBODY, Machine
from router.strategies.record import StrategyOptions, StrategyRecord

MAX_HEDGE_MS = 600_000
DEFAULT_HEDGE_MS = 500  # until the deep engine was measured
LEAD_TOKENS = 8  # of words, behind the first: ours, a fraction of a second of any engine


class HedgeOptions(StrategyOptions, frozen=True, kw_only=True):
    """Sets how long the deep engine may have no words before the fast one joins.

    None: as long as 95 % of its answers take to their first words.
    """

    hedge_after_ms: Annotated[int, Meta(ge=0, le=MAX_HEDGE_MS)] | None = None


class Hedge(Machine):
    """Shows the deep answer unless the fast engine's first words come earlier."""

    def __init__(self, after_us: int) -> None:
        """Takes as `after_us` how long deep may have no words."""
        super().__init__()
        self._after_us = after_us
        self._begun = {DEEP}
        self._first: int | None = None  # the branch whose words came first, and are not shown yet
        self._winner: int | None = None  # the branch that is shown
        self._num_led = 0  # tokens of the first behind its first words
        self._held: dict[int, list[Delta]] = {FAST: [], DEEP: []}  # of who has not won

    def start(self, now_us: int) -> list[Action]:
        return [StartBranch(DEEP, DEEP), WakeAt(now_us + self._after_us)]

    def on_time(self, now_us: int, waiting: frozenset[int] = NOBODY) -> list[Action]:
        return [] if self._ended or self._winner is not None else self._join()

    def _take_delta(self, branch: int, delta: Delta) -> list[Action]:
        if branch == self._winner:
            return [self._items.forward(branch, delta, "final_answer")]
        is_word = delta.kind is not DeltaKind.REASONING
        if branch == DEEP and not is_word and self._first is None:
            return [self._items.forward(DEEP, delta, "final_answer")]
        self._held[branch].append(delta)
        if not is_word or self._first not in (None, branch):
            return []
        self._num_led += 0 if self._first is None else delta.num_tokens
        self._first = branch
        leads = self._num_led >= LEAD_TOKENS or not self._runs(1 - branch)
        return self._win(branch) if leads else []

    def _take_finish(self, branch: int, finish: Finish, now_us: int) -> list[Action]:
        if finish.reason is FinishReason.ERROR:
            return self._failed(branch, finish)
        if self._first not in (None, branch):
            return []  # it is there if the first one breaks off
        shown = self._win(branch) if self._winner is None else []
        return [*shown, *self._end(finish, replaceable=False)]

    def on_stall(self, branch: int) -> list[Action]:
        """Gives way to the other engine if the one with the first words has stalled unseen."""
        other = 1 - branch
        is_unseen = branch == self._first and self._winner is None
        if self._is_over(branch) or not is_unseen or not self._stands_by(other):
            return []
        return [self._cancel(branch, is_silent=True), *self._left_to(other)]

    def _failed(self, branch: int, finish: Finish) -> list[Action]:
        other = 1 - branch
        if self._winner is not None:
            return self._end(finish, replaceable=False) if branch == self._winner else []
        if other not in self._begun:
            return self._join()
        if self._stands_by(other):
            return self._left_to(other)
        return self._end(finish, replaceable=True)

    def _join(self) -> list[Action]:
        if FAST in self._begun:
            return []
        self._begun.add(FAST)
        return [StartBranch(FAST, FAST, own_reservation=True)]

    def _win(self, branch: int) -> list[Action]:
        """Shows what a branch has said until now, and leaves the other."""
        self._first = self._winner = branch
        rival = [self._cancel(1 - branch)] if self._runs(1 - branch) else []
        held, self._held = self._held[branch], {FAST: [], DEEP: []}
        return [*rival, *self._forward_held(branch, held, "final_answer")]

    def _left_to(self, branch: int) -> list[Action]:
        """Goes on with one branch alone, which has said something, or nothing yet."""
        finish = self._finishes.get(branch)
        has_words = any(delta.kind is not DeltaKind.REASONING for delta in self._held[branch])
        if finish is None and not has_words:
            self._first = None
            self._held[1 - branch].clear()
            if branch == FAST:
                return []
            reasoned, self._held[DEEP] = self._held[DEEP], []  # what it says next is shown at once
            return self._forward_held(DEEP, reasoned, "final_answer")
        shown = self._win(branch)
        return shown if finish is None else [*shown, *self._end(finish, replaceable=False)]

    def _runs(self, branch: int) -> bool:
        return branch in self._begun and not self._is_over(branch)

    def _stands_by(self, branch: int) -> bool:
        """Returns whether a branch runs, or has ended whole."""
        finish = self._finishes.get(branch)
        return self._runs(branch) or (finish is not None and finish.error is None)


def _tuned(options: HedgeOptions, first_words_us: Callable[[int], float | None]) -> HedgeOptions:
    """Waits for as long as the deep engine's first words usually take, where nobody says."""
    measured_us = None if options.hedge_after_ms is not None else first_words_us(DEEP)
    if measured_us is None:
        return options
    after_ms = min(MAX_HEDGE_MS, ceil(measured_us / 1_000))
    return msgspec.structs.replace(options, hedge_after_ms=after_ms)


def _machine(options: HedgeOptions) -> Hedge:
    after_ms = DEFAULT_HEDGE_MS if options.hedge_after_ms is None else options.hedge_after_ms
    return Hedge(after_ms * 1_000)


RECORD = StrategyRecord(
    name="hedge",
    machine=lambda options, _request: _machine(options),
    usage=lambda _options, once: {"deep": once},
    options=HedgeOptions,
    tuned=_tuned,
    metadata={"hedge_after_ms": "hedge_after_ms"},
    prepared_by=DEEP,
    competes=True,
)
