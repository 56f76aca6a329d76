"""Sends the trace of a task that ended, if it has one. This is an edge."""

import msgspec

from gateway.core.gateway import Gateway
from gateway.core.job import Job
from gateway.run.branch import Branch
from gateway.task.stages import EndedTask
from gateway.tracing.trace import TaskStep, Trace
from gateway.tracing.tracer import GenerationSpan, Tracer
from router.classify.task import Task
from router.record.recording import MAX_NAME_CHARS, TaskOutcome


def begun_trace(tracer: Tracer, job: Job, began_us: int) -> Trace | None:
    """Begins a task's trace, if it is to have one."""
    trace = tracer.begin(job.parsed.hints.agent.traceparent)
    if trace is not None:
        trace.step("queue", job.arrived_us, began_us)
    return trace


def step(gw: Gateway, job: Job, name: str, began_us: int) -> int:
    """Notes a step that ends now, if the task is traced; returns the time."""
    now_us = gw.clock_us()
    if job.trace is not None:
        job.trace.step(name, began_us, now_us)
    return now_us


def traced(task: Task, trace: Trace) -> Task:
    """Returns a task whose engines are told its trace."""
    request = msgspec.structs.replace(task.request, traceparent=trace.traceparent)
    return msgspec.structs.replace(task, request=request)


def send_trace(gw: Gateway, job: Job, ended: EndedTask, outcome: TaskOutcome) -> None:
    """Makes the spans of a traced task: itself, its steps and its generations."""
    if gw.tracer is None or job.trace is None:
        return
    now_us = gw.clock_us()
    running = ended.running
    branches = () if running is None else running.run.branches.all()
    attributes: dict[str, str | int | float | bool] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": job.parsed.hints.model[:MAX_NAME_CHARS],
        "gen_ai.response.id": job.parsed.id,
        "lanewise.tenant": job.tenant.id,
        "lanewise.key": job.tenant.key_id,
        "lanewise.outcome": ended.outcome,
    }
    if ended.error is not None:
        attributes["error.type"] = ended.error
    if ended.admitted is not None:
        chosen = ended.admitted.chosen
        attributes["lanewise.route"] = chosen.route.value
        attributes["lanewise.rule"] = chosen.rule or chosen.reason.value
        if chosen.strategy is not None:
            attributes["lanewise.strategy"] = chosen.strategy
    is_fault = ended.outcome not in ("ok", "cancelled")
    gw.tracer.end(
        job.trace,
        TaskStep("task", job.arrived_us, job.arrived_us + outcome.duration_us),
        attributes,
        [_generation(gw, branch, now_us) for branch in branches if branch.generation is not None],
        error=(ended.error or ended.outcome) if is_fault else None,
        epoch_ns=int(gw.unix_s() * 1e9) - now_us * 1_000,
    )


def _generation(gw: Gateway, branch: Branch, now_us: int) -> GenerationSpan:
    """Returns a generation's span, up to its last token."""
    info, usage = gw.infos[branch.backend], branch.usage_so_far()
    attributes: dict[str, str | int | float | bool] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": branch.backend,
        "gen_ai.request.model": info.model,
        "gen_ai.usage.input_tokens": usage.num_input_tokens,
        "gen_ai.usage.output_tokens": usage.num_output_tokens,
        "lanewise.group": info.group,
        "lanewise.state": branch.state,
    }
    ended_us = now_us
    if branch.times is not None:
        ended_us = branch.last_at_us
        first_us = branch.times.first_at_us - branch.started_us
        attributes["gen_ai.server.time_to_first_token"] = max(0, first_us) / 1e6
    span = TaskStep(f"chat {info.model}", branch.started_us, ended_us)
    return GenerationSpan(span, attributes, branch.failed)
