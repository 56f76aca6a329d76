"""`race`: both engines answer, the first complete answer wins and the other engine is cancelled.

Nothing is forwarded while both still run: words once sent cannot be taken back, so a part of an
answer must not go out before it is known to be the one that counts.

The failure of one engine leaves the other: from then on it is the answer. The response fails only
if both fail, or if the answer itself broke off in the middle.
"""

from backends.contract import Delta, Finish, FinishReason
from router.strategies.actions import DEEP, FAST, NOBODY, Action, CancelBranch, EndRun, StartBranch
from router.strategies.items import Items, end, joined
from router.strategies.record import StrategyOptions, StrategyRecord


class Race:
    """The first complete answer, whole."""

    transparent = False

    __slots__ = ("_ended", "_finishes", "_held", "_items")

    def __init__(self) -> None:
        self._items = Items()
        self._held: tuple[list[Delta], list[Delta]] = ([], [])
        self._finishes: list[Finish | None] = [None, None]
        self._ended = False

    def start(self, now_us: int) -> list[Action]:
        return [StartBranch(FAST, FAST), StartBranch(DEEP, DEEP)]

    def on_delta(self, branch: int, delta: Delta) -> list[Action]:
        if self._ended or self._finishes[branch] is not None:
            return []
        if self._finishes[1 - branch] is None:
            self._held[branch].append(delta)
            return []
        return [self._items.forward(branch, delta, "final_answer")]

    def on_finish(self, branch: int, finish: Finish, now_us: int) -> list[Action]:
        if self._ended or self._finishes[branch] is not None:
            return []
        self._finishes[branch] = finish
        other = 1 - branch
        if finish.reason is not FinishReason.ERROR:
            rival: list[Action] = [CancelBranch(other)] if self._finishes[other] is None else []
            return [*rival, *self._release(branch), self._end(finish)]
        self._held[branch].clear()
        if self._finishes[other] is None:
            return self._release(other)  # alone from now on: its answer is the one that counts
        return [self._end(finish)]

    def on_time(self, now_us: int, waiting: frozenset[int] = NOBODY) -> list[Action]:
        return []

    def may_start(self, backend_index: int) -> bool:
        return False

    def _release(self, branch: int) -> list[Action]:
        held = self._held[branch]
        actions: list[Action] = [
            self._items.forward(branch, delta, "final_answer") for delta in joined(held)
        ]
        self._held[0].clear()
        self._held[1].clear()
        return actions

    def _end(self, finish: Finish) -> EndRun:
        self._ended = True
        return end(self._finishes, finish, replaceable=True)


RECORD = StrategyRecord(
    name="race", options=StrategyOptions, machine=lambda _options, _request: Race(), competes=True
)
