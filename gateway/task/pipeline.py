"""Handles one task, from its context to its settlement (`docs/architecture.md`).

This is an edge.
"""

import logging

import msgspec

from backends.contract import NO_USAGE, BackendError, BackendGroup, Compaction, Usage
from backends.prompt import measure
from gateway.core.gateway import Gateway
from gateway.core.job import Ended, Job
from gateway.core.spending import spent_nusd
from gateway.run.dispatch import Run, RunOutcome
from gateway.run.settlement import TaskReservation, start_settlement
from gateway.run.side_reservations import SideReservations
from gateway.store.stored_response import Lineage
from gateway.task.admit import admit
from gateway.task.context import give_back_opened, load
from gateway.task.context_usage import CONTEXT_EVENT, context_event
from gateway.task.ending import (
    ending_of,
    open_calls,
    outcome_of,
    refusal_outcome,
    rejoined_context,
    store_response,
    told_usage,
    unavailable,
    unheld_output,
    warmed,
)
from gateway.task.outcomes import note_end
from gateway.task.routing import decided_routing, ended_routing, running_routing, warmed_routing
from gateway.task.stages import (
    AdmittedTask,
    EndedTask,
    FinishedResponse,
    LoadedTask,
    RunningTask,
    TaskStage,
    WarmingTask,
)
from gateway.task.summary_run import SummaryRun
from gateway.task.task_record import costs, group_at, note_task
from gateway.task.traced import begun_trace, step, traced
from gateway.task.warming import Warming
from gateway.wire.compaction import Plan, Skipped, skipped_words
from gateway.wire.errors import ProtocolError
from gateway.wire.response import Ending, ResponseStream
from gateway.wire.response_json import ResponseError
from gateway.wire.routing import Routing

logger = logging.getLogger("lanewise")


async def handle_task(gw: Gateway, job: Job) -> Ended | None:
    """Runs one response from its request to its terminal event.

    Returns what can be continued, or None if it was refused. Cancelling stops generation at once
    and settles what was used.
    """
    gw.metrics.task_started()
    gw.state.num_tasks += 1
    began_us = gw.clock_us()
    queued_us = began_us - job.arrived_us
    if gw.tracer is not None:
        job.trace = begun_trace(gw.tracer, job, began_us)
    reached: TaskStage | None = None
    ended: EndedTask | None = None
    try:
        reached = loaded = await load(gw, job, queued_us)
        job.request = loaded.task.request
        loaded_us = step(gw, job, "load", began_us)
        reached = admitted = await admit(gw, job, loaded, loaded_us)  # classify, rank, reserve
        if job.trace is not None:
            step(gw, job, "admit", loaded_us)
        waits = gw.metrics.histograms["lanewise_queue_wait_seconds"]
        waits[(admitted.chosen.route,)].observe(queued_us / 1e6)
        if not loaded.task.generate:
            reached = warming = _warming_task(gw, job, admitted)
            ended = await _warm_up(gw, job, warming)
        else:
            reached = running = _running_task(gw, job, admitted)
            if running.summary is None or job.parsed.answers:
                ended = await _answer(gw, job, running)  # dispatch, generate, merge, stream, settle
            else:
                ended = await _only_compact(gw, job, running, running.summary)
        return await _deliver(gw, job, ended)
    except ProtocolError as error:
        ended = _refused(gw, job, reached, error)
        return await _deliver(gw, job, ended)
    except Exception:
        if isinstance(reached, AdmittedTask):  # nobody else has its reservation yet
            start_settlement(gw, reached.reservation, {})
        answered_by = None if ended is None else ended.answered_by
        ended = EndedTask(reached=reached, outcome="error", answered_by=answered_by)
        logger.exception("task %s failed inside the gateway", job.parsed.id)
        return _break(gw, job)
    finally:
        gw.state.num_tasks -= 1
        give_back_opened(gw, job)
        job.over()
        ended = ended or _cancelled(job, reached)
        gw.put_off(note_task(gw, job, ended))


def _cancelled(job: Job, reached: TaskStage | None) -> EndedTask:
    """Makes the end of a task that was cancelled, which may be how it was refused."""
    error = job.turned_away
    if error is None:
        return EndedTask(reached=reached, outcome="cancelled")
    return EndedTask(reached=reached, outcome=refusal_outcome(error), error=error.code)


def _running_task(gw: Gateway, job: Job, admitted: AdmittedTask) -> RunningTask:
    """Makes the run and reservation of a task; nothing starts yet."""
    task, plan = admitted.loaded.task, admitted.loaded.plan
    if job.trace is not None:
        task = traced(task, job.trace)
    late_words_us = gw.experience.backend_speeds.late_words_us
    chosen = admitted.chosen.tuned(late_words_us)
    side_reservations = SideReservations(gw, job, task)
    summary = SummaryRun(gw, chosen, job.parsed, plan) if plan is not None else None
    expected = admitted.decision.task_class.expected_output_tokens
    run = Run(chosen, job.writer, gw.clock_us, side_reservations, expected, late_words_us)

    def used() -> dict[BackendGroup, int]:
        usages = run.branches.own_usages()
        if summary is not None:
            usages = summary.added_to(usages)
        return costs(gw, run.branches.backends, usages)

    def spent() -> int:
        own = run.branches.own_by_backend()
        prepared = () if summary is None else summary.used()
        return spent_nusd(gw, job.parsed.hints, (*own, *prepared))

    reservation = TaskReservation(gw, job, admitted.reservation, used, spent)
    run.on_group_done = lambda index: reservation.release(group_at(gw, chosen.backends, index))
    return RunningTask(admitted, task, summary, run, side_reservations, reservation)


async def _answer(gw: Gateway, job: Job, running: RunningTask) -> EndedTask:
    """Generates the answer, after a compaction if one is planned.

    Raises `ProtocolError` if it does not fit, or no backend would start.
    """
    summary = running.summary
    try:
        if summary is not None and isinstance(summary.plan, Plan):
            running = await _compact(gw, job, running, summary)
        begun = _dispatch(gw, job, running)
        outcome = await running.run.ended
    finally:
        running.close()
    return _finish(gw, job, running, outcome, begun)


async def _only_compact(
    gw: Gateway, job: Job, running: RunningTask, summary: SummaryRun
) -> EndedTask:
    """Makes a compaction and no answer. Raises `ProtocolError`: the compaction failed."""
    try:
        running = await _compact(gw, job, running, summary)
    finally:
        running.close()
    usage = sum(running.usage_by_backend().values(), NO_USAGE)
    ending = Ending(status="completed", usage=usage)
    if summary.item is None:
        if job.stopped is None or not job.parsed.input.triggers:
            message = f"The compaction failed: {summary.error}. Send it again."
            raise ProtocolError("server_error", message)
        ending = ending_of(RunOutcome(None), job, usage)
    finished = FinishedResponse(
        task=running.task,
        ending=ending,
        body=job.writer.finish(ending, gw.wall_s(), ended_routing(gw, job, running)),
        backend=job.last_backend,
        is_to_be_stored=job.parsed.input.triggers and job.parsed.body.store is not False,
    )
    return EndedTask(reached=running, outcome=outcome_of(ending), response=finished)


async def _compact(gw: Gateway, job: Job, running: RunningTask, summary: SummaryRun) -> RunningTask:
    """Compacts the task's context; returns the task as it was if that fails and it fits.

    Raises `ProtocolError` if it does not fit.
    """
    summary.start()
    _open(gw, job, running)
    job.begin(summary.stop)
    compacted = await summary.compact(running.task)
    if compacted is None:
        if job.stopped is None and job.parsed.answers:
            summary.check_fits(running.task, running.admitted.chosen.backends)
        return running
    task, item = compacted
    assert isinstance(job.writer, ResponseStream)  # chat completions cannot request one
    job.writer.add_compaction(item)
    job.lineage = Lineage()  # the next record holds the compacted context
    return msgspec.structs.replace(running, task=task)


def _open(gw: Gateway, job: Job, running: RunningTask) -> Routing:
    """Opens the response, or updates one that a compaction opened; returns `routing`."""
    job.decision = running.admitted.decision
    routing = running_routing(gw, running)
    if job.writer.is_open:
        job.writer.update(routing)
        return routing
    backend = running.run.branches.backends[-1]
    if job.on_turn_state is not None and not running.task.held_turn:
        job.on_turn_state(gw.seals.sign_turn(job.tenant.id, backend))
    job.writer.open(gw.wall_s(), gw.backends[backend].info.model, routing)
    return routing


def _dispatch(gw: Gateway, job: Job, running: RunningTask) -> Routing:
    """Starts the backends and opens the response; returns its first `routing`.

    Raises `ProtocolError`: no backend would start.
    """
    run = running.run
    if job.stopped is not None and job.writer.is_open:
        run.stop()  # it was stopped during its compaction
        return running_routing(gw, running)
    started_us = gw.clock_us()
    try:
        run.start(gw.backends, running.task.request)
    except BackendError as error:
        gw.metrics.failed(error)
        raise unavailable(error) from error
    routing = _open(gw, job, running)
    job.redirect = run.redirect

    def update() -> None:
        job.delegations = run.running_delegations
        job.writer.update(running_routing(gw, running))

    run.on_delegations = run.on_failover = update
    job.begin(run.stop)
    gw.metrics.stage("dispatch", step(gw, job, "dispatch", started_us) - started_us)
    return routing


def _finish(
    gw: Gateway, job: Job, running: RunningTask, outcome: RunOutcome, begun: Routing
) -> EndedTask:
    """Makes the terminal event; `begun` is the `routing` that the response began with.

    The settlement was sent before, so that the client's next request comes after it.
    """
    task = running.task
    answer = told_usage(job, running)
    ending = ending_of(outcome, job, answer)
    job.writer.close_items(ending)
    routing = ended_routing(gw, job, running, begun, outcome, answer)
    backend = routing.answered_by
    assert backend is not None
    warning = context_event(task.id, routing.context) if job.parsed.wants_context else None
    if warning is not None:
        job.writer.send_about(CONTEXT_EVENT, warning)
    job.writer.answered_by(gw.backends[backend].info.model)
    if job.pause is not None:
        routing = msgspec.structs.replace(routing, rejoined=job.pause.rejoined)
    body = job.writer.finish(ending, gw.wall_s(), routing)
    said = job.writer.output
    if running.summary is not None:  # a compaction is in the task's own context
        said = tuple([item for item in said if not isinstance(item, Compaction)])
    finished = FinishedResponse(
        task=task,
        ending=ending,
        body=body,
        output=tuple(map(measure, said)),
        backend=backend,
        is_to_be_stored=job.parsed.body.store is not False,
    )
    return EndedTask(
        reached=running,
        outcome=outcome_of(ending),
        error=None if ending.error is None else ending.error.code,
        answered_by=backend,
        errors=outcome.errors,
        response=finished,
    )


async def _deliver(gw: Gateway, job: Job, ended: EndedTask) -> Ended | None:
    """Stores the response, then sends the terminal event, so the next request finds it."""
    finished = ended.response
    if finished is None:
        return None
    if job.pause is not None:
        finished = rejoined_context(finished, job.pause)
    lineage = job.lineage
    if finished.is_to_be_stored:
        lineage = await store_response(gw, job, finished, note_end(gw, ended))
    if isinstance(ended.reached, RunningTask) and ended.reached.side_reservations.under_way:
        await ended.reached.side_reservations.settled()
    job.writer.send_terminal()
    return Ended(
        ending=finished.ending,
        items=finished.task.request.items + finished.output,
        backend=finished.backend,
        lineage=lineage,
        open_calls=open_calls(unheld_output(job)) if job.writer.has_calls else (),
    )


def _refused(gw: Gateway, job: Job, reached: TaskStage | None, error: ProtocolError) -> EndedTask:
    """Refuses a task; fails its response if that has begun."""
    plan = reached.plan if isinstance(reached, LoadedTask) else None
    if isinstance(plan, Skipped) and error.code == "context_length_exceeded":
        error.message += f" {skipped_words(plan)}"
    outcome = refusal_outcome(error)
    if not (job.writer.is_open and isinstance(reached, RunningTask)):
        job.refuse(error)
        return EndedTask(reached=reached, outcome=outcome, error=error.code)
    # Clients retry a failed response with "server_error", and give up with other codes.
    code = error.code if error.kind.status < 500 else "server_error"
    ending = Ending(
        status="failed",
        error=ResponseError(code, error.message),
        retry_after_us=error.retry_after_us,
        usage=told_usage(job, reached),
    )
    job.writer.close_items(ending)
    body = job.writer.finish(ending, gw.wall_s(), ended_routing(gw, job, reached))
    finished = FinishedResponse(
        task=reached.task,
        ending=ending,
        body=body,
        is_to_be_stored=job.parsed.body.store is not False,
    )
    return EndedTask(reached=reached, outcome=outcome, error=error.code, response=finished)


def _warming_task(gw: Gateway, job: Job, admitted: AdmittedTask) -> WarmingTask:
    """Makes the warm-ups and reservation of a task; nothing starts yet."""
    job.decision = admitted.decision
    gw.waiting.limiter.release(admitted.loaded.task.id)  # its slots are for tasks that answer
    warming = Warming(gw, admitted.loaded.task, admitted.chosen, admitted.decision.balances)
    reservation = TaskReservation(
        gw,
        job,
        admitted.reservation,
        lambda: costs(gw, admitted.chosen.backends, warming.usages),
        lambda: spent_nusd(gw, job.parsed.hints, warming.usage_by_backend().items()),
    )
    return WarmingTask(admitted, warming, reservation)


async def _warm_up(gw: Gateway, job: Job, warming_task: WarmingTask) -> EndedTask:
    """Warms up a context where the next turn will go, without generating."""
    admitted, warming = warming_task.admitted, warming_task.warming
    task = admitted.loaded.task
    try:
        routing = decided_routing(task, admitted.decision, gw.infos)
        job.writer.open(gw.wall_s(), gw.infos[admitted.chosen.backends[-1]].model, routing)
        warming.start()
        job.begin(warming.stop)
        await warming.ended
    finally:
        warming_task.close()
    ending = warmed(job, task, warming.num_cached_tokens)
    if warming.holder is not None:
        gw.experience.note_warm(task, warming.holder)
    routing = warmed_routing(gw, job, routing, warming_task)
    finished = FinishedResponse(
        task=task,
        ending=ending,
        body=job.writer.finish(ending, gw.wall_s(), routing),
        backend=warming.holder or job.last_backend,
        is_to_be_stored=job.parsed.body.store is not False,
    )
    return EndedTask(reached=warming_task, outcome=outcome_of(ending), response=finished)


def _break(gw: Gateway, job: Job) -> Ended | None:
    """Reports an internal error to the client; its stream goes on."""
    error = ResponseError("server_error", "The gateway failed. Send the request again.")
    if not job.writer.is_open:
        job.refuse(ProtocolError(error.code, error.message))
        return None
    ending = Ending(status="failed", error=error, usage=Usage())
    if not job.writer.ended:
        job.writer.close_items(ending)
        job.writer.finish(ending, gw.wall_s(), None)
        job.writer.send_terminal()
    return Ended(ending=ending, items=(), backend=None)
