"""`hedge`: the deep engine answers; the fast one joins if the deep one stays silent, or fails.

Then the engine with the first token answers, and the other is cancelled. Most answers never need
the fast engine, so it is reserved when it joins, and released when it loses. A failure of one
engine leaves the other.
"""

from typing import Annotated

from msgspec import Meta

from backends.contract import Delta, Finish, FinishReason
from router.strategies.actions import DEEP, FAST, Action, StartBranch, WakeAt
from router.strategies.machine import NOBODY, Machine
from router.strategies.record import StrategyOptions, StrategyRecord

MAX_HEDGE_MS = 600_000


class HedgeOptions(StrategyOptions, frozen=True, kw_only=True):
    """Sets how long the deep engine may stay silent before the fast one joins."""

    hedge_after_ms: Annotated[int, Meta(ge=0, le=MAX_HEDGE_MS)] = 500


class Hedge(Machine):
    """Shows the deep answer unless the fast engine's first token comes earlier."""

    def __init__(self, after_us: int | None) -> None:
        """`after_us`: how long deep may be silent. None: until it fails; fast is reserved then."""
        super().__init__()
        self._after_us = after_us
        self._begun = {DEEP}
        self._winner: int | None = None  # the branch whose token came first

    def start(self, now_us: int) -> list[Action]:
        deep = StartBranch(DEEP, DEEP)
        return [deep] if self._after_us is None else [deep, WakeAt(now_us + self._after_us)]

    def on_time(self, now_us: int, waiting: frozenset[int] = NOBODY) -> list[Action]:
        return [] if self._ended or self._winner is not None else self._join()

    def _take_delta(self, branch: int, delta: Delta) -> list[Action]:
        rival = self._win(branch) if self._winner is None else []
        return [*rival, self._items.forward(branch, delta, "final_answer")]

    def _take_finish(self, branch: int, finish: Finish, now_us: int) -> list[Action]:
        other = 1 - branch
        if finish.reason is FinishReason.ERROR and self._winner is None:
            if other not in self._begun:
                return self._join()
            if other not in self._finishes:
                return []  # alone from now on
        rival = self._win(branch) if self._winner is None else []
        return [*rival, *self._end(finish, replaceable=self._winner != branch)]

    def may_start(self, backend_index: int) -> bool:
        return backend_index == FAST and self._after_us is None and FAST not in self._begun

    def _join(self) -> list[Action]:
        if FAST in self._begun:
            return []
        self._begun.add(FAST)
        return [StartBranch(FAST, FAST, own_reservation=self._after_us is not None)]

    def _win(self, branch: int) -> list[Action]:
        self._winner = branch
        other = 1 - branch
        runs = other in self._begun and other not in self._finishes
        return [self._cancel(other)] if runs else []


RECORD = StrategyRecord(
    name="hedge",
    machine=lambda options, _request: Hedge(options.hedge_after_ms * 1_000),
    usage=lambda _options, once: {"deep": once},
    options=HedgeOptions,
    metadata={"hedge_after_ms": "hedge_after_ms"},
    prepared_by=DEEP,
    competes=True,
)
