"""The life of one task, from its context to its settlement (`docs/architecture.md`).

An edge: it uses the log.
"""

import logging
from functools import partial

import msgspec

from backends.contract import NO_USAGE, BackendError, Compaction, Usage
from backends.prompt import measure
from gateway.core.gateway import Gateway
from gateway.core.job import Ended, Job
from gateway.run.dispatch import Run, RunOutcome
from gateway.run.settlement import TaskReservation
from gateway.run.side_reservations import SideReservations
from gateway.task.admit import Admitted
from gateway.task.context import load_task
from gateway.task.ending import ending_of, open_calls, store_response, unavailable, warmed
from gateway.task.outcomes import note_end
from gateway.task.routing import decided_routing, ended_routing, running_routing
from gateway.task.summary_run import SummaryRun, admit_planned, plan_of
from gateway.task.task_record import TaskRecord, costs, decided, group_at
from gateway.task.warming import Warming
from gateway.wire.compaction import Plan
from gateway.wire.context_usage import CONTEXT_EVENT, context_event
from gateway.wire.errors import ProtocolError
from gateway.wire.response import Ending, ResponseStream
from gateway.wire.response_json import ResponseError
from gateway.wire.routing import Routing
from gateway.wire.stored_response import Lineage
from router.classify.task import Task

logger = logging.getLogger("lanewise")


async def handle_task(gw: Gateway, job: Job) -> Ended | None:
    """Run one response from its request to its terminal event.

    Returns what can be continued, or None where it was refused. Cancelling stops generation at
    once and settles what was used.
    """
    gw.metrics.task_started()
    gw.num_tasks += 1
    started_us = gw.clock_us()
    account = TaskRecord()
    try:
        task = account.task = await load_task(gw, job)
        account.queued_us = started_us - job.arrived_us
        plan = plan_of(gw, job, task)
        admitted = account.admitted = await admit_planned(gw, job, task, plan)
        gw.metrics.queue_wait(admitted.chosen.route, started_us - job.arrived_us)
        if not task.generate:
            return await _warm_up(gw, job, task, admitted, account)
        account.apart = SideReservations(gw, job, task)
        if plan is not None:
            account.summary = SummaryRun(gw, admitted.chosen, job.parsed, plan)
        expected = admitted.decision.task_class.expected_output_tokens
        run = account.run = Run(admitted.chosen, job.writer, gw.clock_us, account.apart, expected)
        held = TaskReservation(
            gw, job, admitted.reservation, partial(costs, gw, admitted, account.own_usages)
        )
        run.on_through = lambda place: held.give_back(group_at(gw, admitted, place))
        try:
            if isinstance(plan, Plan):
                task = await _compact(gw, job, task, admitted, account)
            if job.parsed.answers:
                begun = _dispatch(gw, job, task, admitted, account)
                outcome = await run.ended
        finally:
            run.close()
            if account.summary is not None:
                account.summary.close()
            held.settle()
        if not job.parsed.answers:
            return await _finish_compaction(gw, job, task, account)
        return await _finish(gw, job, task, outcome, account, begun)
    except ProtocolError as error:
        return await _refuse(gw, job, account, error)
    except Exception:
        account.outcome = "error"
        logger.exception("task %s failed inside the gateway", job.parsed.id)
        return _break(gw, job)
    finally:
        gw.num_tasks -= 1
        account.close(gw, job)
        account.let_go(job)


async def _compact(
    gw: Gateway, job: Job, task: Task, admitted: Admitted, account: TaskRecord
) -> Task:
    """The task with a shorter context; where that fails, as it was, if it fits so.

    Raises:
        ProtocolError: It does not fit.
    """
    summary = account.summary
    assert summary is not None
    summary.start()
    _open(gw, job, task, admitted, account)
    job.begin(summary.stop)
    compacted = await summary.compact(task)
    if compacted is None:
        if job.stopped is None and job.parsed.answers:
            summary.check_fits(task, admitted.chosen.backends)
        return task
    assert summary.item is not None
    assert isinstance(job.writer, ResponseStream)  # chat completions cannot ask for one
    job.writer.add_compaction(summary.item)
    job.lineage = Lineage()  # stored from here on with the compacted context
    return compacted


def _open(gw: Gateway, job: Job, task: Task, admitted: Admitted, account: TaskRecord) -> Routing:
    """Begin the response, or say what is new of one that a compaction began; its `routing`."""
    job.decision = admitted.decision
    assert account.run is not None
    routing = _routing(gw, task, admitted, account)
    if job.writer.is_open:
        job.writer.update(routing)
    else:
        job.writer.open(gw.wall_s(), gw.infos[account.run.backends[-1]].model, routing)
    return routing


def _dispatch(
    gw: Gateway, job: Job, task: Task, admitted: Admitted, account: TaskRecord
) -> Routing:
    """Start the backends and open the response; returns the `routing` that it begins with.

    Raises:
        ProtocolError: No backend would start.
    """
    run = account.run
    assert run is not None
    if job.stopped is not None and job.writer.is_open:
        run.stop()  # while its context was compacted
        return _routing(gw, task, admitted, account)
    started_us = gw.clock_us()
    try:
        run.start(gw.backends, task.request)
    except BackendError as error:
        gw.metrics.failures.failed(error)
        raise unavailable(error) from error
    routing = _open(gw, job, task, admitted, account)
    job.redirect = run.redirect

    def tell() -> None:
        job.delegations = run.running_delegations
        job.writer.update(_routing(gw, task, admitted, account))

    run.on_delegations = run.on_failover = tell
    job.begin(run.stop)
    gw.metrics.stage("dispatch", gw.clock_us() - started_us)
    return routing


def _routing(gw: Gateway, task: Task, admitted: Admitted, account: TaskRecord) -> Routing:
    """`routing` as the run stands."""
    run = account.run
    assert run is not None
    return running_routing(gw, task, decided(admitted, run), run, account.summary)


def _ended_routing(
    gw: Gateway,
    task: Task,
    account: TaskRecord,
    begun: Routing | None = None,
    outcome: RunOutcome | None = None,
) -> Routing:
    """`routing` once it is over."""
    run, admitted, summary = account.run, account.admitted, account.summary
    assert run is not None
    assert admitted is not None
    decision, used = decided(admitted, run), account.used()
    return ended_routing(gw, task, decision, run, summary, used, begun=begun, outcome=outcome)


async def _finish(
    gw: Gateway,
    job: Job,
    task: Task,
    outcome: RunOutcome,
    account: TaskRecord,
    begun: Routing,
) -> Ended:
    """Store, then say that it is over: what a client does next finds it stored and settled.

    The settlement was sent before, so that whatever this client asks next comes behind it. `begun`
    is the `routing` that the response began with.
    """
    assert account.run is not None
    assert account.admitted is not None
    assert account.apart is not None
    ending = ending_of(outcome, job, sum(account.used().values(), NO_USAGE))
    account.ended(ending)
    account.is_degraded = bool(outcome.errors)
    for name, ttft_us, tpot_us in account.run.branches.timings():
        gw.experience.backend_speeds.note(name, ttft_us, tpot_us)
    for error in outcome.errors:
        gw.metrics.failures.failed(error)
    job.writer.close_items(ending)
    backend = account.answered_by = account.run.answered_by
    routing = _ended_routing(gw, task, account, begun, outcome)
    warning = context_event(task.id, routing.context) if job.parsed.wants_context else None
    if warning is not None:
        job.writer.send_about(CONTEXT_EVENT, warning)
    job.writer.answered_by(gw.infos[backend].model)
    body = job.writer.finish(ending, gw.wall_s(), routing)
    said = (item for item in job.writer.output if not isinstance(item, Compaction))
    output = tuple(measure(item) for item in said)  # a compaction is in the task's own context
    trial = None
    if ending.status == "completed" or ending.reason == "max_output_tokens":
        trial = note_end(gw, task, account.admitted, account.run, output)
    lineage = await store_response(gw, job, task, output, body, backend, ending, trial)
    await account.apart.settled()
    job.writer.send_terminal()
    return Ended(
        ending=ending,
        items=task.request.items + output,
        backend=backend,
        lineage=lineage,
        open_calls=open_calls(job.writer.output),
    )


async def _finish_compaction(gw: Gateway, job: Job, task: Task, account: TaskRecord) -> Ended:
    """The end of what was a compaction and nothing else.

    Raises:
        ProtocolError: It did not come off.
    """
    summary, usage = account.summary, sum(account.used().values(), Usage())
    assert summary is not None
    ending = Ending(status="completed", usage=usage)
    if summary.item is None:
        if job.stopped is None or not job.parsed.input.triggers:
            message = f"The compaction failed: {summary.error}. Send it again."
            raise ProtocolError("server_error", message)
        ending = ending_of(RunOutcome(None), job, usage)
    account.ended(ending)
    body = job.writer.finish(ending, gw.wall_s(), _ended_routing(gw, task, account))
    if job.parsed.input.triggers:
        job.lineage = await store_response(gw, job, task, (), body, job.last_backend, ending)
    job.writer.send_terminal()
    items, backend = task.request.items, job.last_backend
    return Ended(ending=ending, items=items, backend=backend, lineage=job.lineage)


async def _refuse(gw: Gateway, job: Job, account: TaskRecord, error: ProtocolError) -> Ended | None:
    """Tell the client what hinders its task; as a failed response where that had begun."""
    account.refused(error)
    if not job.writer.is_open:
        job.refuse(error)
        return None
    assert account.task is not None
    # Clients that find "server_error" in a failed response repeat it, and with others give up.
    code = error.code if error.kind.status < 500 else "server_error"
    usage = sum(account.used().values(), Usage())
    fault = ResponseError(code, error.message)
    ending = Ending(status="failed", error=fault, retry_after_us=error.retry_after_us, usage=usage)
    job.writer.close_items(ending)
    routing = _ended_routing(gw, account.task, account)
    body = job.writer.finish(ending, gw.wall_s(), routing)
    await store_response(gw, job, account.task, (), body, None, ending)
    job.writer.send_terminal()
    return Ended(ending=ending, items=(), backend=None)


async def _warm_up(
    gw: Gateway, job: Job, task: Task, admitted: Admitted, account: TaskRecord
) -> Ended:
    """Take a context in without generating, and have it ready where the next turn will go."""
    job.decision = admitted.decision
    gw.limiter.leave(task.id)  # it takes none of the places of tasks that answer
    routing = decided_routing(task, admitted.decision, gw.infos)
    warming = account.warming = Warming(gw, task, admitted.decision)
    held = TaskReservation(
        gw, job, admitted.reservation, partial(costs, gw, admitted, lambda: warming.usages)
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
    ending = warmed(job, task, warming.num_cached_tokens)
    account.ended(ending)
    routing = msgspec.structs.replace(routing, warm=warming.view())
    body = job.writer.finish(ending, gw.wall_s(), routing)
    backend = warming.holder or job.last_backend
    if warming.holder is not None:
        gw.experience.note_warm(task, warming.holder)
    lineage = await store_response(gw, job, task, (), body, backend, ending)
    job.writer.send_terminal()
    return Ended(ending=ending, items=task.request.items, backend=backend, lineage=lineage)


def _break(gw: Gateway, job: Job) -> Ended | None:
    """A fault of ours: the client hears of it, and its stream goes on."""
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
