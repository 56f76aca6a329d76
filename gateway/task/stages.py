"""Defines the stages of a task; each holds the previous one, and adds to it. This is an edge."""

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from backends.contract import NO_USAGE, BackendError, ContextItem, Usage
from gateway.metrics.labels import Outcome as OutcomeLabel
from gateway.run.dispatch import Run
from gateway.run.settlement import TaskReservation
from gateway.run.side_reservations import SideReservations
from gateway.task.summary_run import SummaryRun
from gateway.task.warming import Warming
from gateway.wire.compaction import Plan, Skipped
from gateway.wire.response import Ending
from router.classify.task import Task
from router.decide.decision import RankedRoute, RouteDecision
from router.pools.pools import Reservation


class LoadedTask(msgspec.Struct, frozen=True):
    """Is a task whose context is loaded."""

    task: Task
    plan: Plan | Skipped | None  # of a compaction before the answer
    queued_us: int


class AdmittedTask(msgspec.Struct, frozen=True):
    """Is a task that may run: it has the router's choice, and the pools' reservation."""

    loaded: LoadedTask
    decision: RouteDecision
    chosen: RankedRoute
    reservation: Reservation


class WarmingTask(msgspec.Struct, frozen=True):
    """Is a task that warms up its context, without generating."""

    admitted: AdmittedTask
    warming: Warming
    reservation: TaskReservation

    def close(self) -> None:
        """Ends what is under way, and settles what was used."""
        self.warming.close()
        self.reservation.settle()

    def usage_by_backend(self) -> Mapping[str, Usage]:
        """Returns the usage that is charged, by backend."""
        return self.warming.usage_by_backend()

    def used(self) -> list[tuple[str, Usage]]:
        """Returns the usage that is charged, of each generation with its backend."""
        return list(self.warming.usage_by_backend().items())


class RunningTask(msgspec.Struct, frozen=True):
    """Is a task that generates, or is about to."""

    admitted: AdmittedTask
    task: Task  # as loaded, or with a compacted context
    summary: SummaryRun | None  # before the answer
    run: Run
    side_reservations: SideReservations
    reservation: TaskReservation

    def close(self) -> None:
        """Ends what is under way, and settles what was used."""
        self.run.close()
        if self.summary is not None:
            self.summary.close()
        self.reservation.settle()

    @property
    def chosen(self) -> RankedRoute:
        """Returns the router's choice, with the backends after failovers."""
        chosen = self.admitted.chosen
        if not (self.run.failovers or self.run.continued):
            return chosen
        return msgspec.structs.replace(chosen, backends=tuple(self.run.branches.backends))

    @property
    def decision(self) -> RouteDecision:
        """Returns the decision, with the backends after failovers."""
        decision = self.admitted.decision
        if not (self.run.failovers or self.run.continued):
            return decision
        return msgspec.structs.replace(decision, chosen=self.chosen)

    def usage_by_backend(self) -> Mapping[str, Usage]:
        """Returns the usage that is charged, by backend."""
        branches = self.run.branches
        used = branches.final_usage or branches.usage_by_backend()
        if self.summary is None:
            return used
        used = dict(used)
        for name, usage in self.summary.usage_by_backend().items():
            used[name] = used.get(name, NO_USAGE) + usage
        return used

    def used(self) -> list[tuple[str, Usage]]:
        """Returns the usage that is charged, of each generation with its backend."""
        used = self.run.branches.used()
        return used if self.summary is None else used + self.summary.used()


TaskStage: TypeAlias = LoadedTask | AdmittedTask | WarmingTask | RunningTask


class FinishedResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Is a response whose terminal event is made, but not stored and sent yet."""

    task: Task
    ending: Ending
    body: bytes
    output: tuple[ContextItem, ...] = ()
    backend: str | None = None  # holds the KV prefix
    is_to_be_stored: bool  # it asks for that, and may be


class EndedTask(msgspec.Struct, frozen=True, kw_only=True):
    """Is a task that is over, with its outcome and the response still to be sent."""

    reached: TaskStage | None  # where it ended; None: its context could not be loaded
    outcome: OutcomeLabel
    error: str | None = None  # the protocol's code
    answered_by: str | None = None
    errors: tuple[BackendError, ...] = ()  # of engines that failed, and the answer did not
    response: FinishedResponse | None = None  # None: it was refused before its response began

    @property
    def served_tier(self) -> str:
        """Returns the tier that its answer was served in, if an upstream says so."""
        return "" if self.response is None else self.response.ending.usage.service_tier

    @property
    def running(self) -> RunningTask | None:
        """Returns the stage of that name, if it was reached; so do the next two."""
        return self.reached if isinstance(self.reached, RunningTask) else None

    @property
    def admitted(self) -> AdmittedTask | None:
        if isinstance(self.reached, RunningTask | WarmingTask):
            return self.reached.admitted
        return self.reached if isinstance(self.reached, AdmittedTask) else None

    @property
    def loaded(self) -> LoadedTask | None:
        if isinstance(self.reached, LoadedTask):
            return self.reached
        admitted = self.admitted
        return None if admitted is None else admitted.loaded
