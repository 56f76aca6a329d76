"""Passes one engine's answer through, for tasks without a strategy."""

from backends.contract import Delta, Finish
from router.strategies.actions import Action, EndRun, Forward, StartBranch
from router.strategies.machine import Machine
from router.strategies.record import StrategyOptions, StrategyRecord


class Single(Machine):
    """Forwards one branch unchanged."""

    # Dispatch may connect the engine straight to the response: `on_delta` changes nothing.
    transparent = True

    def start(self, now_us: int) -> list[Action]:
        return [StartBranch(0, 0)]

    def on_delta(self, branch: int, delta: Delta) -> list[Action]:
        return [Forward(delta, None, branch)]

    def on_finish(self, branch: int, finish: Finish, now_us: int) -> list[Action]:
        return [EndRun(finish, () if finish.error is None else (finish.error,))]


_SINGLE = Single()  # of all runs, as it keeps nothing of one
RECORD = StrategyRecord(
    name="single", options=StrategyOptions, machine=lambda _options, _request: _SINGLE
)
