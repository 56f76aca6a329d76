"""The generations of a run: what part each does, what it pushes, what it used, and its end.

An edge: it calls other edges.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from backends.contract import NO_USAGE, BackendError, Delta, Finish, FinishReason, Generation, Usage
from gateway.run.side_reservations import PendingReservation, Settle
from gateway.wire.routing import RoutedGeneration, RoutedVariations
from router.strategies.breadth import Vary
from router.strategies.part_requests import TaskPart
from router.strategies.subtasks import Subtask


class Listener(Protocol):
    """What runs the branch; exceptions of the first two go to the third."""

    def on_delta(self, branch: "Branch", delta: Delta) -> None: ...

    def on_finish(self, branch: "Branch", finish: Finish) -> None: ...

    def break_off(self, error: Exception) -> None: ...


class TokenTimes(msgspec.Struct):
    """When a branch's tokens came, by its engine's time; and when the client saw the first."""

    first_at_us: int
    last_at_us: int
    seen_us: int = 0  # by the gateway's clock


@dataclass(slots=True, eq=False)
class Branch:
    """One generation of a run, and its sink."""

    run: Listener
    number: int
    backend_index: int
    part: TaskPart
    own_reservation: bool
    backend: str  # changes with a failover
    started_us: int
    generation: Generation | None = None  # None: not started, or refused
    pending: PendingReservation | None = None  # its own, until it is decided
    settle: Settle | None = None  # its own reservation, once it has that
    usage: Usage | None = None  # once it is over
    times: TokenTimes | None = None  # once it has a token
    num_prompt_tokens: int = 0
    num_streamed_tokens: int = 0
    cancelled: bool = False
    failed: bool = False
    gives_way: bool = False  # cancelled by its strategy, not from outside

    def push(self, delta: Delta) -> None:
        try:
            self.run.on_delta(self, delta)
        except Exception as error:  # a fault in one response must not reach its engine
            self.run.break_off(error)

    def finish(self, finish: Finish) -> None:
        try:
            self.run.on_finish(self, finish)
        except Exception as error:
            self.run.break_off(error)

    def fail(self, error: BackendError, at_us: int) -> None:
        """End it: its backend does not take it, or the pools."""
        self.finish(Finish(FinishReason.ERROR, NO_USAGE, at_us, error))

    def cancel(self) -> None:
        """Stop the generation now; harmless once it is over."""
        if self.usage is None:
            self.cancelled = True
            self.over(Usage() if self.generation is None else self.generation.cancel())

    def over(self, usage: Usage) -> None:
        """Note that it will use no more than this, and settle its own reservation."""
        self.usage = usage
        if self.settle is not None:
            self.settle(usage)
        elif self.pending is not None:
            self.pending.withdraw()

    def usage_so_far(self) -> Usage:
        """What it has used; the cached part is known once it has ended."""
        return self.usage or Usage(
            num_input_tokens=self.num_prompt_tokens, num_output_tokens=self.num_streamed_tokens
        )

    @property
    def tpot_us(self) -> float | None:
        """Mean time between its tokens; None with fewer than two."""
        num_tokens = 0 if self.usage is None else self.usage.num_output_tokens
        if self.times is None or num_tokens < 2:
            return None
        return (self.times.last_at_us - self.times.first_at_us) / (num_tokens - 1)

    @property
    def waits(self) -> bool:
        """Whether its own reservation is neither granted nor refused yet."""
        return self.own_reservation and self.settle is None and self.usage is None

    @property
    def state(self) -> str:
        if self.failed:
            return "failed"
        if self.cancelled:
            return "cancelled"
        return "running" if self.usage is None else "finished"


class Branches(dict[int, Branch]):
    """All branches of a run by their numbers, in the order they started."""

    def __init__(self, backends: Sequence[str]) -> None:
        super().__init__()
        self.backends = list(backends)  # of the route, as failovers have left them
        self._used: Mapping[str, Usage] | None = None  # once nothing is added to it

    def cancel(self) -> None:
        """Stop all of them for good; harmless when repeated."""
        for branch in self.values():
            branch.cancel()
        self._used = self.usage_by_backend()

    def usages(self) -> list[Usage]:
        """What was used, by backend index; whole after `cancel`."""
        totals = [NO_USAGE] * len(self.backends)
        for branch in self.values():
            totals[branch.backend_index] += branch.usage or NO_USAGE
        return totals

    def own_usages(self) -> list[Usage]:
        """What was used so far of the task's own reservation, by backend index."""
        totals = [NO_USAGE] * len(self.backends)
        for branch in self.values():
            if not branch.own_reservation:
                totals[branch.backend_index] += branch.usage_so_far()
        return totals

    def usage_by_backend(self) -> Mapping[str, Usage]:
        """What was used, by name: of the route's backends, and of those that they replaced."""
        if self._used is not None:
            return self._used
        used = dict.fromkeys(self.backends, NO_USAGE)
        for branch in self.values():
            used[branch.backend] = used.get(branch.backend, NO_USAGE) + (branch.usage or NO_USAGE)
        return used

    def timings(self) -> Iterator[tuple[str, int, float]]:
        """Backend, time to its first token and mean time between the others, of whole answers."""
        for branch in self.values():
            tpot_us = branch.tpot_us
            if branch.state == "finished" and branch.times is not None and tpot_us is not None:
                ttft_us = max(0, branch.times.first_at_us - branch.started_us)
                yield branch.backend, ttft_us, tpot_us

    def generations(self) -> tuple[RoutedGeneration, ...]:
        """What became of each branch, in the order they began."""
        return tuple(
            RoutedGeneration(
                branch.backend,
                branch.part.name,
                branch.state,
                (branch.usage or NO_USAGE).num_output_tokens,
            )
            for branch in self.values()
        )

    def wasted(self) -> Iterator[tuple[int, Usage]]:
        """Backend index and usage of each branch that gave way to another.

        Not of sub-tasks: those give way to what their client says, and stay in the context.
        """
        for branch in self.values():
            if branch.gives_way and not isinstance(branch.part, Subtask):
                yield branch.backend_index, branch.usage or Usage()

    def variations(self) -> RoutedVariations:
        """How many variations were started, and how many came to their end."""
        rows = [branch for branch in self.values() if isinstance(branch.part, Vary)]
        whole = sum(branch.state == "finished" for branch in rows)
        return RoutedVariations(len(rows), whole)
