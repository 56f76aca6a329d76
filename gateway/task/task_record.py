"""What is noted of one task on its way, and what it leaves: metrics, ledger, decision log.

An edge: it calls other edges.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from backends.contract import NO_USAGE, BackendGroup, Usage
from gateway.core.gateway import Gateway
from gateway.core.job import Job
from gateway.metrics.metrics import Outcome as OutcomeLabel
from gateway.run.dispatch import Run
from gateway.run.side_reservations import SideReservations
from gateway.store.ledger_entry import entry_of
from gateway.task.admit import Admitted
from gateway.task.summary_run import SummaryRun
from gateway.task.warming import Warming
from gateway.wire.errors import ProtocolError
from gateway.wire.response import Ending
from router.classify.task import Task
from router.decide.decision import RouteDecision
from router.pools.cost import cost_by_group
from router.record.recording import TaskOutcome, record_of


@dataclass(slots=True)
class TaskRecord:
    """What a task's metrics are made from, on every path."""

    outcome: OutcomeLabel = "cancelled"  # until something else is known
    error: str | None = None  # the protocol's code
    is_degraded: bool = False  # an engine failed, and the answer did not
    task: Task | None = None
    queued_us: int = 0
    answered_by: str | None = None
    admitted: Admitted | None = None
    run: Run | None = None
    apart: SideReservations | None = None
    warming: Warming | None = None
    summary: SummaryRun | None = None  # before the answer

    def own_usages(self) -> list[Usage]:
        """What was used so far of the task's own reservation, by place of its route."""
        assert self.run is not None
        usages = self.run.own_usages()
        return usages if self.summary is None else self.summary.added_to(usages, so_far=True)

    def refused(self, error: ProtocolError) -> None:
        """Its client is told that it cannot be."""
        self.error = error.code
        if error.code == "rate_limit_exceeded":
            self.outcome = "rate_limited"
        elif error.code == "response_cancelled":
            self.outcome = "cancelled"
        elif error.kind.status == 503:
            self.outcome = "shed"
        else:
            self.outcome = "invalid" if error.kind.status < 500 else "error"

    def ended(self, ending: Ending) -> None:
        """Its client is told how it ended."""
        if ending.status == "failed":
            self.outcome = "error"
        elif "cancelled" not in (ending.status, ending.reason):
            self.outcome = "ok"

    def close(self, gw: Gateway, job: Job) -> None:
        """Count it, enter it into the ledger and log it; exactly once, when all is over."""
        chosen = decided(self.admitted, self.run).chosen if self.admitted else None
        duration_us = gw.clock_us() - job.arrived_us
        used = self.used()
        first = self.run.first if self.run else None
        first_backend = self.run.first_backend if self.run else None
        tpot_us = self.run.first_tpot_us if self.run else None
        if gw.adaptation is not None and chosen and first:
            gw.adaptation.observe(gw.infos[chosen.backends[first.backend_index]].group, tpot_us)
        gw.metrics.task_finished(
            tenant_id=job.tenant.id,
            route=chosen.route if chosen else None,
            outcome=self.outcome,
            duration_us=duration_us,
            usage_by_model=_by_model(gw, used),
            first_model=gw.infos[first_backend].model if first_backend else None,
            ttft_us=first.seen_us - job.arrived_us if first else None,
            tpot_us=tpot_us,
        )
        if chosen is not None and chosen.strategy is not None and self.run is not None:
            self._note_strategy(gw, chosen.strategy, self.run)
        for failover in self.run.failovers if self.run else ():
            gw.metrics.failures.replaced(failover.error, failover.to)
        if chosen is not None:  # then it was settled, so it has an entry: here, and nowhere else
            entry = entry_of(
                job.parsed.id,
                job.tenant,
                chosen,
                used,
                gw.infos,
                gw.weights,
                outcome=self.outcome,
                ended_s=gw.wall_s(),
                duration_us=duration_us,
            )
            gw.record_usage(entry)
        self._log(gw, job, used, tpot_us, duration_us)

    def let_go(self, job: Job) -> None:
        """Leave no cycle behind: a task's objects are freed as it ends, and never searched for."""
        job.over()
        if self.run is not None:
            self.run.let_go()

    def _note_strategy(self, gw: Gateway, strategy: str, run: Run) -> None:
        outcome = self.outcome if self.outcome in ("ok", "cancelled") else "error"
        answerer = self.answered_by if outcome == "ok" else None
        gw.metrics.strategies.ended(
            strategy,
            "degraded" if outcome == "ok" and self.is_degraded else outcome,
            gw.infos[answerer].group if answerer else None,
        )
        assert self.admitted is not None
        for place, usage in run.branches.wasted():
            gw.metrics.strategies.wasted(strategy, group_at(gw, self.admitted, place), usage)

    def used(self) -> Mapping[str, Usage]:
        """What is charged, by backend."""
        ran = self.run or self.warming
        used = ran.usage_by_backend() if ran else {}
        if self.summary is None:
            return used
        used = dict(used)
        for name, usage in self.summary.usage_by_backend().items():
            used[name] = used.get(name, NO_USAGE) + usage
        return used

    def _log(
        self,
        gw: Gateway,
        job: Job,
        used: Mapping[str, Usage],
        tpot_us: float | None,
        duration_us: int,
    ) -> None:
        """The task's line in the decision log."""
        if gw.recorder is None or self.task is None:
            return
        first = self.run.first if self.run else None
        ran = self.run or self.warming
        usages = ran.usages if ran else []
        if self.summary is not None and ran is not None:
            usages = self.summary.added_to(usages)
        course = TaskOutcome(
            outcome=self.outcome,
            error=self.error,
            answered_by=self.answered_by,
            queued_us=self.queued_us,
            ttft_us=first.seen_us - job.arrived_us if first else None,
            tpot_us=tpot_us,
            duration_us=duration_us,
            usages=used,
            cost=sum(costs(gw, self.admitted, lambda: usages).values()) if self.admitted else 0,
        )
        gw.recorder.record(
            record_of(
                self.task,
                job.decided,
                course,
                gw.infos,
                with_text=job.records_text,
                with_shape=gw.recorder.is_writing,
            )
        )


def decided(admitted: Admitted, run: Run | None) -> RouteDecision:
    """The decision, with the backends that failovers have left of it."""
    if run is None or not run.failovers:
        return admitted.decision
    chosen = msgspec.structs.replace(admitted.chosen, backends=run.backends)
    return msgspec.structs.replace(admitted.decision, chosen=chosen)


def _by_model(gw: Gateway, used: Mapping[str, Usage]) -> dict[str, Usage]:
    """What was used, by model; several backends may serve one."""
    usages: dict[str, Usage] = {}
    for name, usage in used.items():
        model = gw.infos[name].model
        usages[model] = usages.get(model, NO_USAGE) + usage
    return usages


def group_at(gw: Gateway, admitted: Admitted, place: int) -> BackendGroup:
    """The group of a place of the route; a failover stays in it."""
    return gw.backends[admitted.chosen.backends[place]].info.group


def costs(
    gw: Gateway, admitted: Admitted, usages: Callable[[], Sequence[Usage]]
) -> dict[BackendGroup, int]:
    """What usages in the route's order are charged, by group."""
    places = range(len(admitted.chosen.backends))
    groups = (group_at(gw, admitted, place) for place in places)
    return cost_by_group(zip(groups, usages(), strict=False), gw.weights)
