"""The life of one task, from its context to its settlement (`docs/architecture.md`)."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from backends.contract import (
    BackendError,
    BackendGroup,
    ContextItem,
    CustomToolCall,
    FinishReason,
    FunctionCall,
    Item,
    Usage,
)
from backends.prompt import measure
from gateway.admit import Admitted, admit
from gateway.context import load_task
from gateway.dispatch import Outcome, Run
from gateway.errors import ProtocolError
from gateway.fullness import CONTEXT_EVENT, context_event
from gateway.gateway import Gateway
from gateway.job import Ended, Job
from gateway.ledger_entry import entry_of
from gateway.metrics import Outcome as OutcomeLabel
from gateway.outcomes import note_end
from gateway.records import MAX_ANCESTORS, Lineage, StoredResponse
from gateway.response import Ending
from gateway.routing import ended_view, routing_view
from gateway.settlement import SideReservations, TaskReservation
from gateway.warming import Warming
from router.cost import cost_by_group
from router.decision import RouteDecision
from router.recording import Course, record_of
from router.task import Strategy, Task
from router.trials import Trial

logger = logging.getLogger("lanewise")

_DRAINED = {
    "code": "server_error",  # of the codes that a failed response may have, by the SDKs' types
    "message": "The gateway was stopped before the response ended. Connect again and repeat it.",
}


async def handle_task(gw: Gateway, job: Job) -> Ended | None:
    """Run one response from its request to its terminal event.

    Returns what can be continued, or None where it was refused. Cancelling stops generation at
    once and settles what was used.
    """
    gw.metrics.task_started()
    gw.num_tasks += 1
    started_us = gw.clock_us()
    account = _Account()
    try:
        task = account.task = await load_task(gw, job)
        account.queued_us = started_us - job.arrived_us
        admitted = account.admitted = await admit(gw, task, job)
        gw.metrics.queue_wait(admitted.chosen.route, started_us - job.arrived_us)
        if not task.generate:
            return await _warm_up(gw, job, task, admitted, account)
        account.apart = SideReservations(gw, job)
        expected = admitted.decision.task_class.expected_output_tokens
        run = account.run = Run(admitted.chosen, job.writer, gw.clock_us, account.apart, expected)
        held = TaskReservation(
            gw, job, admitted.reservation, partial(_costs, gw, admitted, run.own_usages)
        )
        run.on_through = lambda place: held.give_back(_group(gw, admitted, place))
        try:
            begun = _dispatch(gw, job, task, admitted, run)
            outcome = await run.ended
        finally:
            run.close()
            held.settle()
        return await _finish(gw, job, task, outcome, account, begun)
    except ProtocolError as error:
        account.refused(error)
        job.refuse(error)
        return None
    except Exception:
        account.outcome = "error"
        logger.exception("task %s failed inside the gateway", job.parsed.id)
        return _break(gw, job)
    finally:
        gw.num_tasks -= 1
        account.close(gw, job)


@dataclass(slots=True)
class _Account:
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

    def refused(self, error: ProtocolError) -> None:
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
        if ending.status == "failed":
            self.outcome = "error"
        elif "cancelled" not in (ending.status, ending.reason):
            self.outcome = "ok"

    def close(self, gw: Gateway, job: Job) -> None:
        chosen = _decided(self.admitted, self.run).chosen if self.admitted else None
        used = self._used()
        first = self.run.first if self.run else None
        first_backend = self.run.first_backend if self.run else None
        tpot_us = self.run.first_tpot_us if self.run else None
        if gw.adaptation is not None and chosen and first:
            gw.adaptation.observe(gw.infos[chosen.backends[first.backend]].group, tpot_us)
        gw.metrics.task_finished(
            tenant_id=job.tenant.id,
            route=chosen.route if chosen else None,
            outcome=self.outcome,
            duration_us=gw.clock_us() - job.arrived_us,
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
                duration_us=gw.clock_us() - job.arrived_us,
            )
            gw.record_usage(entry)
        self._log(gw, job, used, tpot_us)

    def _note_strategy(self, gw: Gateway, strategy: Strategy, run: Run) -> None:
        outcome = self.outcome if self.outcome in ("ok", "cancelled") else "error"
        answerer = self.answered_by if outcome == "ok" else None
        gw.metrics.strategies.ended(
            strategy,
            "degraded" if outcome == "ok" and self.is_degraded else outcome,
            gw.infos[answerer].group if answerer else None,
        )
        assert self.admitted is not None
        for place, usage in run.branches.wasted():
            gw.metrics.strategies.wasted(strategy, _group(gw, self.admitted, place), usage)

    def _used(self) -> dict[str, Usage]:
        """What is charged, by backend."""
        ran = self.run or self.warming
        return ran.usage_by_backend() if ran else {}

    def _log(self, gw: Gateway, job: Job, used: Mapping[str, Usage], tpot_us: float | None) -> None:
        """The task's line in the decision log."""
        if gw.recorder is None or self.task is None:
            return
        first = self.run.first if self.run else None
        ran = self.run or self.warming
        usages = ran.usages if ran else []
        course = Course(
            outcome=self.outcome,
            error=self.error,
            answered_by=self.answered_by,
            queued_us=self.queued_us,
            ttft_us=first.seen_us - job.arrived_us if first else None,
            tpot_us=tpot_us,
            duration_us=gw.clock_us() - job.arrived_us,
            usages=used,
            cost=sum(_costs(gw, self.admitted, lambda: usages).values()) if self.admitted else 0,
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


def _dispatch(gw: Gateway, job: Job, task: Task, admitted: Admitted, run: Run) -> dict[str, Any]:
    """Start the backends and open the response; returns the `routing` that it begins with.

    Raises:
        ProtocolError: No backend would start.
    """
    started_us = gw.clock_us()
    job.decision = admitted.decision
    try:
        run.start(gw.backends, task.request)
    except BackendError as error:
        gw.metrics.failures.failed(error)
        raise ProtocolError(
            "server_is_overloaded", f"{error}. Try again in 1s.", retry_after_us=1_000_000
        ) from error
    infos = gw.infos
    model = infos[run.backends[-1]].model
    routing = _routing(gw, task, admitted, run)
    job.writer.open(gw.wall_s(), model, routing)
    job.redirect = run.redirect

    def tell() -> None:
        job.delegations = run.running_delegations
        job.writer.update(_routing(gw, task, admitted, run))

    run.on_delegations = run.on_failover = tell
    job.begin(run.stop)
    gw.metrics.stage("dispatch", gw.clock_us() - started_us)
    return routing


def _decided(admitted: Admitted, run: Run | None) -> RouteDecision:
    """The decision, with the backends that failovers have left of it."""
    if run is None or not run.failovers:
        return admitted.decision
    chosen = msgspec.structs.replace(admitted.chosen, backends=run.backends)
    return msgspec.structs.replace(admitted.decision, chosen=chosen)


def _routing(gw: Gateway, task: Task, admitted: Admitted, run: Run) -> dict[str, Any]:
    """`routing` as the run stands."""
    routing = routing_view(task, _decided(admitted, run), gw.infos)
    if run.failovers:
        routing["failovers"] = [
            {"from": failover.error.backend, "to": failover.to, "error": str(failover.error)}
            for failover in run.failovers
        ]
    if admitted.chosen.strategy == "delegate":
        routing["delegations"] = run.delegations()
    return routing


def _by_model(gw: Gateway, used: Mapping[str, Usage]) -> dict[str, Usage]:
    """What was used, by model; several backends may serve one."""
    usages: dict[str, Usage] = {}
    for name, usage in used.items():
        model = gw.infos[name].model
        usages[model] = usages.get(model, Usage()) + usage
    return usages


def _group(gw: Gateway, admitted: Admitted, place: int) -> BackendGroup:
    """The group of a place of the route; a failover stays in it."""
    return gw.backends[admitted.chosen.backends[place]].info.group


def _costs(
    gw: Gateway, admitted: Admitted, usages: Callable[[], Sequence[Usage]]
) -> dict[BackendGroup, int]:
    """What usages in the route's order are charged, by group."""
    places = range(len(admitted.chosen.backends))
    groups = (_group(gw, admitted, place) for place in places)
    return cost_by_group(zip(groups, usages(), strict=False), gw.weights)


async def _finish(
    gw: Gateway,
    job: Job,
    task: Task,
    outcome: Outcome,
    account: _Account,
    begun: dict[str, Any],
) -> Ended:
    """Store, then say that it is over: what a client does next finds it stored and settled.

    The settlement was sent before, so that whatever this client asks next comes behind it. `begun`
    is the `routing` that the response began with.
    """
    assert account.run is not None
    assert account.admitted is not None
    assert account.apart is not None
    chosen, usages = account.admitted.chosen, account.run.usage_by_backend()
    ending = _ending(outcome, job, sum(usages.values(), Usage()))
    account.ended(ending)
    account.is_degraded = bool(outcome.errors)
    for name, ttft_us, tpot_us in account.run.branches.timings():
        gw.experience.paces.note(name, ttft_us, tpot_us)
    for error in outcome.errors:
        gw.metrics.failures.failed(error)
    job.writer.close_items(ending)
    backend = account.answered_by = account.run.answered_by
    if account.run.failovers or chosen.strategy == "delegate":
        begun = _routing(gw, task, account.admitted, account.run)
    routing = ended_view(begun, task, usages) | {"answered_by": backend}
    if outcome.errors:
        # Variations mostly fail for the same reason.
        routing["errors"] = list(dict.fromkeys(map(str, outcome.errors)))
    if chosen.strategy is not None:
        routing["generations"] = account.run.branches.generations()
    if chosen.strategy == "breadth":
        routing["variations"] = account.run.branches.variations()
    warning = context_event(task.id, routing["context"]) if job.parsed.wants_context else None
    if warning is not None:
        job.writer.send_about(CONTEXT_EVENT, warning)
    job.writer.answered_by(gw.infos[backend].model)
    body = job.writer.finish(ending, gw.wall_s(), routing)
    output = tuple(measure(item) for item in job.writer.output)
    trial = None
    if ending.status == "completed" or ending.reason == "max_output_tokens":
        trial = note_end(gw, task, account.admitted, account.run, output)
    lineage = await _store(gw, job, task, output, body, backend, ending, trial)
    await account.apart.settled()
    job.writer.send_terminal()
    return Ended(
        ending=ending,
        items=task.request.items + output,
        backend=backend,
        lineage=lineage,
        open_calls=_open_calls(job.writer.output),
    )


def _ending(outcome: Outcome, job: Job, usage: Usage) -> Ending:
    """How the response ends, from how its generation did."""
    finish = outcome.finish
    if finish is None:
        assert job.stopped is not None
        if job.stopped == "draining":
            return Ending(status="failed", error=_DRAINED, usage=usage)
        if job.stopped == "cancelled" and job.parsed.body.background:
            return Ending(status="cancelled", usage=usage)
        return Ending(status="incomplete", reason=job.stopped, usage=usage)
    if finish.error is not None:
        error = {"code": finish.error.code, "message": finish.error.message}
        return Ending(status="failed", error=error, usage=usage)
    if finish.reason is FinishReason.LENGTH:
        return Ending(status="incomplete", reason="max_output_tokens", usage=usage)
    if finish.reason is FinishReason.CONTENT_FILTER:
        return Ending(status="incomplete", reason="content_filter", usage=usage)
    return Ending(status="completed", usage=usage)


async def _store(
    gw: Gateway,
    job: Job,
    task: Task,
    output: tuple[ContextItem, ...],
    body: bytes,
    backend: str | None,
    ending: Ending,
    trial: Trial | None = None,
) -> Lineage:
    """Keep the response if it is to be kept; returns what of its context is stored now."""
    lineage = job.lineage
    if not job.parsed.store:
        return lineage
    if len(lineage.ids) >= MAX_ANCESTORS:
        lineage = Lineage()
    items = task.request.items
    stored = StoredResponse(
        response=body,
        ancestors=lineage.ids,
        input=items[lineage.num_items :],
        output=output,
        num_own=len(job.parsed.input.items),
        backend=backend,
        can_continue=ending.status in ("completed", "incomplete"),
        trial=trial,
    )
    try:
        await gw.store.save(task.tenant.id, task.id, stored)
    except ProtocolError as error:
        logger.warning("response %s could not be stored: %s", task.id, error)
        return job.lineage
    return Lineage((*lineage.ids, task.id), len(items) + len(output))


def _open_calls(output: tuple[Item, ...]) -> tuple[dict[str, str], ...]:
    """A stub of the output each call of a response waits for."""
    stubs: list[dict[str, str]] = []
    for item in output:
        if isinstance(item, FunctionCall):
            kind = {"type": "function_call_output", "call_id": item.call_id, "name": item.name}
            stubs.append(kind)
        elif isinstance(item, CustomToolCall):
            stubs.append({"type": "custom_tool_call_output", "call_id": item.call_id})
    return tuple(stubs)


async def _warm_up(
    gw: Gateway, job: Job, task: Task, admitted: Admitted, account: _Account
) -> Ended:
    """Take a context in without generating, and have it ready where the next turn will go."""
    job.decision = admitted.decision
    gw.gate.leave(task.id)  # it takes none of the places of tasks that answer
    routing = routing_view(task, admitted.decision, gw.infos)
    warming = account.warming = Warming(gw, task, admitted.decision)
    held = TaskReservation(
        gw, job, admitted.reservation, partial(_costs, gw, admitted, lambda: warming.usages)
    )
    try:
        model = gw.infos[admitted.chosen.backends[-1]].model
        job.writer.open(gw.wall_s(), model, routing)
        warming.start()
        job.begin(warming.stop)
        await warming.ended
    finally:
        warming.close()
        held.settle()
    ending = _warmed(job, task, warming)
    account.ended(ending)
    body = job.writer.finish(ending, gw.wall_s(), routing | {"warm": warming.view()})
    backend = warming.holder or job.last_backend
    if warming.holder is not None:
        gw.experience.note_warm(task, warming.holder)
    lineage = await _store(gw, job, task, (), body, backend, ending)
    job.writer.send_terminal()
    return Ended(ending=ending, items=task.request.items, backend=backend, lineage=lineage)


def _warmed(job: Job, task: Task, warming: Warming) -> Ending:
    """How a warm-up ends: whether anything could be done or not, its context can be continued."""
    usage = Usage(
        num_input_tokens=task.request.num_prompt_tokens,
        num_cached_tokens=warming.num_cached_tokens,
    )
    if job.stopped in ("cancelled", "steered"):
        return Ending(status="incomplete", reason=job.stopped, usage=usage)
    return Ending(status="completed", usage=usage)


def _break(gw: Gateway, job: Job) -> Ended | None:
    """A fault of ours: the client hears of it, and its stream goes on."""
    error = {"code": "server_error", "message": "The gateway failed. Send the request again."}
    if not job.writer.is_open:
        job.refuse(ProtocolError(error["code"], error["message"]))
        return None
    ending = Ending(status="failed", error=error, usage=Usage())
    if not job.writer.ended:
        job.writer.close_items(ending)
        job.writer.finish(ending, gw.wall_s(), {})
        job.writer.send_terminal()
    return Ended(ending=ending, items=(), backend=None)
