"""Defines a strategy's machine: deltas and finishes of its branches come in, actions go out."""

from backends.contract import Delta, Finish, FinishReason, Usage
from router.strategies.actions import Action, CancelBranch, EndRun, Phase, WakeAt
from router.strategies.items import Items, joined

# Ours: how long a helping engine may be silent before the answer goes on without it. Far above any
# wait between two tokens of an engine that works, far below an upstream's own time limits.
PATIENCE_US = 5_000_000
WAITED_FOR_US = 1_000_000  # while words of a deep answer, or all that it needs, wait for it
NOBODY: frozenset[int] = frozenset()


class Machine:
    """Holds what all strategies share. Time is the gateway's clock; deltas have their engines' own.

    Every machine keeps these rules: forwarded items have rising indexes; an item holds deltas of
    one branch only; there is exactly one `EndRun`, and nothing follows it; a cancelled branch is
    not heard again. A strategy has `start`, `_take_delta` and `_take_finish` of its own.
    """

    transparent = False  # `on_delta` changes nothing: dispatch may pass deltas straight on

    def __init__(self) -> None:
        self._items = Items()
        self._finishes: dict[int, Finish] = {}
        self._cancelled: set[int] = set()
        self._ended = False
        self._heard_us = 0  # when a helper said something, or began

    def start(self, now_us: int) -> list[Action]:
        """Begins the run; called once, before anything else."""
        raise NotImplementedError

    def on_delta(self, branch: int, delta: Delta) -> list[Action]:
        """Takes a branch's delta."""
        if self._ended or branch in self._finishes or branch in self._cancelled:
            return []
        return self._take_delta(branch, delta)

    def _take_delta(self, branch: int, delta: Delta) -> list[Action]:
        raise NotImplementedError

    def on_finish(self, branch: int, finish: Finish, now_us: int) -> list[Action]:
        """Takes the end of a branch, by itself or by a refusal."""
        if self._is_over(branch):
            return []
        self._finishes[branch] = finish
        return self._take_finish(branch, finish, now_us)

    def _take_finish(self, branch: int, finish: Finish, now_us: int) -> list[Action]:
        raise NotImplementedError

    def on_time(self, now_us: int, waiting: frozenset[int] = NOBODY) -> list[Action]:
        """Takes the time of the latest `WakeAt`; `waiting` branches have no reservation yet."""
        return []

    @property
    def explanation(self) -> str:
        """Says in whole sentences what it has decided, for `routing.why`."""
        return ""

    def on_stall(self, branch: int) -> list[Action]:
        """Takes the stall of a branch that no engine goes on with; nothing: it is waited for."""
        return []

    def does_without(self, branch: int) -> bool:
        """Returns whether there is an answer without a branch that has said nothing."""
        return False

    def may_start(self, backend_index: int) -> bool:
        """Returns whether a branch may still start on the task's reservation; False is for good."""
        return False

    def _is_over(self, branch: int) -> bool:
        return self._ended or branch in self._finishes or branch in self._cancelled

    def _cancel(self, branch: int, *, is_silent: bool = False) -> CancelBranch:
        self._cancelled.add(branch)
        return CancelBranch(branch, is_silent)

    def _forward_held(self, branch: int, held: list[Delta], phase: Phase) -> list[Action]:
        return [self._items.forward(branch, delta, phase) for delta in joined(held)]

    def _end(self, answer: Finish, *, replaceable: bool) -> list[Action]:
        """Ends as `answer` finished, or as another branch that replaces it after a failure."""
        self._ended = True
        heard = self._finishes.values()
        errors = tuple(finish.error for finish in heard if finish.error is not None)
        if answer.reason is FinishReason.ERROR and replaceable:
            answer = next((f for f in heard if f.reason is not FinishReason.ERROR), answer)
        usage = sum((finish.usage for finish in heard), Usage())
        at_us = max(finish.at_us for finish in heard)
        ended = Finish(answer.reason, usage, at_us, answer.error, answer.stop_sequence)
        return [EndRun(ended, errors)]

    def _patience_us(self) -> int:
        """Returns how long a helper may be silent now."""
        return PATIENCE_US

    def _hear(self, at_us: int) -> None:
        """Notes a helper's word, or its beginning."""
        self._heard_us = max(self._heard_us, at_us)

    def _next_look(self) -> WakeAt:
        return WakeAt(self._heard_us + self._patience_us())

    def _is_silent(self, now_us: int) -> bool:
        return now_us >= self._heard_us + self._patience_us()
