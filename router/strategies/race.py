"""`race`: both engines answer, the first complete answer wins and the other engine is cancelled.

Nothing is forwarded while both run, since text that was sent cannot be taken back.

After a failure of one engine the other is the answer. The response fails only if both fail, or if
the answer itself breaks off in the middle.
"""

from backends.contract import Delta, Finish, FinishReason
from router.strategies.actions import DEEP, FAST, Action, StartBranch
from router.strategies.machine import Machine
from router.strategies.record import StrategyOptions, StrategyRecord


class Race(Machine):
    """Shows the first complete answer."""

    def __init__(self) -> None:
        super().__init__()
        self._held: tuple[list[Delta], list[Delta]] = ([], [])

    def start(self, now_us: int) -> list[Action]:
        return [StartBranch(FAST, FAST), StartBranch(DEEP, DEEP)]

    def _take_delta(self, branch: int, delta: Delta) -> list[Action]:
        if 1 - branch not in self._finishes:
            self._held[branch].append(delta)
            return []
        return [self._items.forward(branch, delta, "final_answer")]

    def _take_finish(self, branch: int, finish: Finish, now_us: int) -> list[Action]:
        other = 1 - branch
        if finish.reason is not FinishReason.ERROR:
            rival: list[Action] = [self._cancel(other)] if other not in self._finishes else []
            return [*rival, *self._release(branch), *self._conclude(finish)]
        self._held[branch].clear()
        if other not in self._finishes:
            return self._release(other)  # alone from now on: its answer is the one that counts
        return self._conclude(finish)

    def _release(self, branch: int) -> list[Action]:
        actions = self._forward_held(branch, self._held[branch], "final_answer")
        self._held[branch].clear()
        return actions

    def _conclude(self, finish: Finish) -> list[Action]:
        self._finishes = dict(sorted(self._finishes.items()))
        return self._end(finish, replaceable=True)


RECORD = StrategyRecord(
    name="race", options=StrategyOptions, machine=lambda _options, _request: Race(), competes=True
)
