"""Notes a task that ended, in metrics, ledger and decision log. This is an edge."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter

import msgspec

from backends.contract import NO_USAGE, BackendGroup, BackendInfo, Usage
from gateway.core.gateway import Gateway
from gateway.core.job import Job
from gateway.core.spending import bill
from gateway.logs.task_line import TaskLine
from gateway.metrics.engine_requests import EngineRequest
from gateway.metrics.finished_tasks import FinishedTask
from gateway.metrics.labels import Arm
from gateway.run.branch import Branch
from gateway.store.decision_log import Recorder
from gateway.store.ledger_entry import entry_of
from gateway.task.outcomes import note_end
from gateway.task.routing import cost_of, energy_joules
from gateway.task.stages import EndedTask, RunningTask, WarmingTask
from gateway.task.traced import send_trace
from gateway.wire.routing import RoutedCost
from router.classify.task import Route, Task
from router.decide.decision import RankedRoute
from router.money.cost import cost_by_group
from router.record.recording import MAX_NAME_CHARS, TaskOutcome, record_of
from router.record.seen import GenerationRecord

_GROUP = attrgetter("info.group")  # of a backend


def note_task(gw: Gateway, job: Job, ended: EndedTask) -> Iterator[None]:
    """Counts a task, enters it into the ledger, logs it and learns of it, in three steps.

    Take all of them, once per task. What was stored with the response has been learned already.
    """
    running = ended.running
    try:
        worked = ended.reached if isinstance(ended.reached, WarmingTask) else running
        admitted = ended.admitted if worked is None else worked.admitted
        loaded = ended.loaded if admitted is None else admitted.loaded
        usages = {} if worked is None else worked.usage_by_backend()
        cost = sum(costs(gw, usages, usages.values()).values()) if usages else 0
        if job.pause is not None:
            job.pause.note_cost(cost)
        now_us = gw.clock_us()
        branch = None if running is None else running.run.shown.first_branch
        ttft_us = tpot_us = first_model = None
        if branch is not None and branch.times is not None:
            ttft_us, tpot_us = branch.times.seen_us - job.arrived_us, branch.tpot_us
            first_model = gw.backends[branch.backend].info.model
        outcome = TaskOutcome(
            outcome=ended.outcome,
            error=ended.error,
            answered_by=ended.answered_by,
            queued_us=loaded.queued_us if loaded is not None else None,
            ttft_us=ttft_us,
            tpot_us=tpot_us,
            duration_us=now_us - job.arrived_us,
            usages=usages,
            cost=cost,
        )
        chosen = None if admitted is None else admitted.chosen
        gw.metrics.task_finished(
            FinishedTask(
                tenant_id=job.tenant.id,
                route=None if chosen is None else chosen.route,
                ended=outcome,
                usage_by_model=_by_model(gw, usages),
                first_model=first_model,
                arm=_arm(chosen) if chosen and (chosen.canary or chosen.control) else None,
                wanted=_wanted(job) if ended.outcome == "rate_limited" else None,
            )
        )
        yield
        if job.trace is not None:
            send_trace(gw, job, ended, outcome)
        billed = job.bill  # None: it was cancelled, or refused
        if billed is None:
            billed = bill(gw, job.parsed.hints, () if worked is None else worked.used())
        if gw.task_log is not None:
            gw.task_log(line_of(job, outcome, gw.unix_s(), cost_of(gw, billed), ended.served_tier))
        if running is not None:
            _note_run(gw, running, ended)
        if chosen is not None:  # then it was settled, so it has a ledger entry
            chosen = running.chosen if running is not None else chosen
            entry = entry_of(
                *(job.parsed.id, job.tenant, chosen, billed, gw.infos, gw.weights),
                outcome=ended.outcome,
                ended_s=gw.wall_s(),
                duration_us=outcome.duration_us,
            )
            gw.record_usage(entry)
        yield
        if gw.recorder is not None and loaded is not None and gw.recorder.wants(now_us):
            _record(gw.recorder, gw, job, loaded.task, ended, outcome)
        if ended.response is not None and not ended.response.is_to_be_stored:
            note_end(gw, ended)
    finally:
        if running is not None:
            running.run.release()


def _record(
    recorder: Recorder, gw: Gateway, job: Job, task: Task, ended: EndedTask, outcome: TaskOutcome
) -> None:
    """Enters a task into the decision log."""
    with_shape = recorder.is_writing
    line = record_of(
        task,
        job.decided,
        _detailed(job, ended, outcome) if with_shape else outcome,
        gw.infos,
        with_text=job.records_text,
        with_shape=with_shape,
        policy=job.policy,
        seen=job.seen,
    )
    recorder.record(line)


def _arm(chosen: RankedRoute) -> Arm:
    return "canary" if chosen.canary else "control"


def _wanted(job: Job) -> Route | None:
    return job.decided.ranked[0].route if job.decided and job.decided.ranked else None


def _detailed(job: Job, ended: EndedTask, outcome: TaskOutcome) -> TaskOutcome:
    """Adds what only the decision log has."""
    was_stopped = ended.outcome == "cancelled" or job.stopped in ("cancelled", "steered")
    began_us = job.arrived_us + (outcome.queued_us or 0)
    branches = () if ended.running is None else ended.running.run.branches.all()
    return msgspec.structs.replace(
        outcome,
        waited_us=None if job.admitted_us is None else job.admitted_us - began_us,
        left_us=outcome.duration_us if was_stopped else None,
        generations=tuple([_generation(branch, job.arrived_us) for branch in branches]),
    )


def _generation(branch: Branch, arrived_us: int) -> GenerationRecord:
    usage, times = branch.usage or NO_USAGE, branch.times
    return GenerationRecord(
        backend=branch.backend,
        part=branch.part.name,
        state=branch.state,
        started_ms=(branch.started_us - arrived_us) / 1e3,
        first_ms=None if times is None else (times.first_at_us - arrived_us) / 1e3,
        last_ms=None if times is None else (branch.last_at_us - arrived_us) / 1e3,
        input_tokens=usage.num_input_tokens,
        cached_tokens=usage.num_cached_tokens,
        output_tokens=usage.num_output_tokens,
        reasoning_tokens=usage.num_reasoning_tokens,
    )


def line_of(
    job: Job, ended: TaskOutcome, at: float, cost: RoutedCost | None, service_tier: str
) -> TaskLine:
    """Returns what the log says of a task that ended at that Unix time."""
    decision = job.decided
    chosen = decision.chosen if decision is not None else None
    first = chosen or (decision.ranked[0] if decision is not None and decision.ranked else None)
    usages = ended.usages.values()
    return TaskLine(
        at=round(at, 3),
        id=job.parsed.id,
        tenant=job.tenant.id,
        key=job.tenant.key_id,
        model=job.parsed.hints.model[:MAX_NAME_CHARS],
        route=chosen.route.value if chosen is not None else None,
        strategy=chosen.strategy if chosen is not None else None,
        rule=first.rule if first is not None else None,
        reason=first.reason.value if first is not None else None,
        policy=decision.policy_version if decision is not None else None,
        answered_by=ended.answered_by,
        outcome=ended.outcome,
        error=ended.error,
        queued_ms=_ms(ended.queued_us),
        ttft_ms=_ms(ended.ttft_us),
        tpot_ms=_ms(ended.tpot_us),
        duration_ms=ended.duration_us / 1e3,
        input_tokens=sum(usage.num_input_tokens for usage in usages),
        cached_tokens=sum(usage.num_cached_tokens for usage in usages),
        output_tokens=sum(usage.num_output_tokens for usage in usages),
        cost_units=ended.cost,
        cost_usd=None if cost is None else cost.amount,
        service_tier=service_tier or None,
        energy_joules=energy_joules(usages),
        rejoined=0 if job.pause is None else job.pause.num_joins,
        grace_units=0 if job.pause is None else job.pause.grace_cost,
    )


def _ms(time_us: float | None) -> float | None:
    return None if time_us is None else round(time_us / 1e3, 3)


def _note_run(gw: Gateway, running: RunningTask, ended: EndedTask) -> None:
    """Counts what a run did, by engine and strategy, and learns the engines' speeds of it."""
    run, admitted = running.run, running.admitted
    if ended.answered_by is not None:
        for name, ttft_us, tpot_us in run.branches.timings():
            gw.experience.backend_speeds.note(name, ttft_us, tpot_us)
        for name, first_words_us in run.first_words():
            gw.experience.backend_speeds.note_words(name, first_words_us)
    for error in ended.errors:
        gw.metrics.failed(error)
    first = run.shown.first_branch
    if gw.adaptation is not None and first is not None:
        gw.adaptation.observe(gw.backends[first.backend].info.group, first.tpot_us)
    strategy = admitted.chosen.strategy
    if strategy is not None:
        outcome = ended.outcome if ended.outcome in ("ok", "cancelled") else "error"
        answerer = ended.answered_by if outcome == "ok" else None
        gw.metrics.strategy_ended(
            strategy,
            "degraded" if outcome == "ok" and ended.errors else outcome,
            gw.infos[answerer].group if answerer else None,
        )
        wasted = gw.metrics.counts["lanewise_strategy_wasted_tokens_total"]
        for index, usage in run.branches.wasted():
            tokens = usage.num_input_tokens + usage.num_output_tokens
            wasted[strategy, group_at(gw, run.branches.backends, index)].inc(tokens)
    for branch in run.branches.all():
        info = gw.backends[branch.backend].info
        if info.simulated:
            _note_engine(gw, info, branch)
    for failover in run.failovers:
        gw.metrics.replaced(failover.error, failover.to)
    for each in run.continued:
        gw.metrics.continued(each.error, each.to, each.reason)


def _note_engine(gw: Gateway, info: BackendInfo, branch: Branch) -> None:
    """Hands over what a simulated engine said of its request."""
    ended, usage = branch.ended, branch.usage
    if usage is None or branch.failed:
        return
    gw.metrics.engine_request(
        EngineRequest(
            info.model,
            info.name,
            usage.num_input_tokens,
            usage.num_output_tokens,
            None if ended is None else ended.reason,
            None if ended is None else ended.times,
        )
    )


def _by_model(gw: Gateway, used: Mapping[str, Usage]) -> dict[str, Usage]:
    """Sums usage by model; several backends may serve one."""
    usages: dict[str, Usage] = {}
    for name in used:
        model = gw.backends[name].info.model
        usages[model] = usages[model] + used[name] if model in usages else used[name]
    return usages


def group_at(gw: Gateway, backends: Sequence[str], backend_index: int) -> BackendGroup:
    """Returns the group of a route's backend; a failover stays in it."""
    return gw.backends[backends[backend_index]].info.group


def costs(gw: Gateway, backends: Iterable[str], usages: Iterable[Usage]) -> dict[BackendGroup, int]:
    """Returns the charge by group, from the usages of these backends."""
    groups = map(_GROUP, map(gw.backends.__getitem__, backends))
    return cost_by_group(zip(groups, usages, strict=False), gw.weights)
