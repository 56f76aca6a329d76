"""Ends a response: decides its status and error, what is stored, and its open calls.

This is an edge.
"""

import logging

import msgspec

from backends.contract import (
    BackendError,
    CustomToolCall,
    FinishReason,
    FunctionCall,
    Item,
    Usage,
)
from gateway.core.gateway import Gateway
from gateway.core.job import Job, Pause
from gateway.metrics.labels import Outcome as OutcomeLabel
from gateway.run.dispatch import RunOutcome
from gateway.store.stored_response import MAX_ANCESTORS, Lineage, StoredResponse
from gateway.task.stages import FinishedResponse, RunningTask
from gateway.wire.errors import ProtocolError
from gateway.wire.response import Ending, ResponseStream
from gateway.wire.response_json import ResponseError
from router.classify.durations import LEAST_WAIT_US, in_words
from router.classify.task import Task
from router.learn.pending_outcomes import PendingOutcome

logger = logging.getLogger("lanewise")

_CUT_SHORT: dict[FinishReason, str] = {
    FinishReason.LENGTH: "max_output_tokens",
    FinishReason.CONTENT_FILTER: "content_filter",
}
_DRAINED = ResponseError(
    "server_error",  # of the codes that a failed response may have, by the SDKs' types
    "The gateway was stopped before the response ended. Connect again and repeat it.",
)

_AMID_CALL = (
    "The answer broke off before its tool call was complete ({}). Do not run that call, and send "
    "the request again."
)


def told_usage(job: Job, running: RunningTask) -> Usage:
    """Returns the usage of the conversation, and notes its input for the turn that continues it.

    That is told no smaller one. Engines count differently, also what a strategy adds to a context,
    and agents compact by what they are told.
    """
    before, num_prompt_tokens = job.lineage, running.task.request.num_prompt_tokens
    usage = running.run.branches.answer_usage(num_prompt_tokens)
    holds_it = num_prompt_tokens >= before.num_prompt_tokens  # else it has fewer tools, say
    if holds_it and usage.num_input_tokens < before.num_input_tokens:
        usage = msgspec.structs.replace(usage, num_input_tokens=before.num_input_tokens)
    job.lineage = Lineage(before.ids, before.num_items, num_prompt_tokens, usage.num_input_tokens)
    return usage


def ending_of(outcome: RunOutcome, job: Job, usage: Usage) -> Ending:
    """Makes the response's ending from its generation's outcome."""
    finish = outcome.finish
    if finish is None:
        assert job.stopped is not None
        if job.stopped == "draining":
            return Ending(status="failed", error=_DRAINED, usage=usage)
        if job.stopped == "cancelled" and job.parsed.body.background:
            return Ending(status="cancelled", usage=usage)
        return Ending(status="incomplete", reason=job.stopped, usage=usage)
    if finish.error is not None:
        writer = job.writer
        is_amid_call = writer.calls if isinstance(writer, ResponseStream) else writer.words()[1]
        return _failed(finish.error, usage, is_amid_call=is_amid_call)
    reason = _CUT_SHORT.get(finish.reason)
    status = "incomplete" if reason else "completed"
    return Ending(status=status, reason=reason, usage=usage, stop_sequence=finish.stop_sequence)


def _failed(fault: BackendError, usage: Usage, *, is_amid_call: bool) -> Ending:
    """Makes a failed ending; a rate limit's message has the wait, which clients parse."""
    message, retry_after_us = fault.message, fault.retry_after_us
    if is_amid_call and fault.code == "server_error":
        message = _AMID_CALL.format(message.rstrip("."))
    if fault.code == "rate_limit_exceeded":
        retry_after_us = retry_after_us or LEAST_WAIT_US
        if "try again in" not in fault.message.lower():
            message = f"{message.rstrip('.')}. Please try again in {in_words(retry_after_us)}."
    error = ResponseError(fault.code, message, fault.param)
    return Ending(status="failed", error=error, retry_after_us=retry_after_us, usage=usage)


def unavailable(fault: BackendError) -> ProtocolError:
    """Makes the refusal of a task that no backend would start; a retry may not help."""
    if not fault.retryable:
        return ProtocolError(fault.code, fault.message, param=fault.param)
    wait_us = max(LEAST_WAIT_US, fault.retry_after_us or 0)
    is_limit = fault.code == "rate_limit_exceeded"  # of its server
    return ProtocolError(
        fault.code if is_limit else "server_is_overloaded",
        f"{fault}. Please try again in {in_words(wait_us)}.",
        retry_after_us=wait_us,
    )


def warmed(job: Job, task: Task, num_cached_tokens: int) -> Ending:
    """Makes a warm-up's ending; its context can be continued in any case."""
    num_tokens = task.request.num_prompt_tokens
    usage = Usage(num_input_tokens=num_tokens, num_cached_tokens=num_cached_tokens)
    if job.stopped in ("cancelled", "steered"):
        return Ending(status="incomplete", reason=job.stopped, usage=usage)
    return Ending(status="completed", usage=usage)


def outcome_of(ending: Ending) -> OutcomeLabel:
    """Returns the metrics' label of a response's ending."""
    if ending.status == "completed":
        return "ok"
    if ending.status == "failed":
        return "error"
    return "cancelled" if "cancelled" in (ending.status, ending.reason) else "ok"


def refusal_outcome(error: ProtocolError) -> OutcomeLabel:
    """Returns the metrics' label of a refusal."""
    if error.code in ("rate_limit_exceeded", "budget_exceeded"):
        return "rate_limited"
    if error.code == "response_cancelled":
        return "cancelled"
    if error.kind.status == 503:
        return "shed"
    return "invalid" if error.kind.status < 500 else "error"


async def store_response(
    gw: Gateway, job: Job, finished: FinishedResponse, pending: PendingOutcome | None
) -> Lineage:
    """Stores a response and what it is to teach; returns what is stored of its context."""
    lineage, task, output = job.lineage, finished.task, finished.output
    sizes = (lineage.num_prompt_tokens, lineage.num_input_tokens)
    if len(lineage.ids) >= MAX_ANCESTORS:
        lineage = Lineage()
    items = task.request.items
    stored = StoredResponse(
        response=finished.body,
        ancestors=lineage.ids,
        input=items[lineage.num_items :],
        output=output,
        num_own=len(job.parsed.input.items),
        backend=finished.backend,
        can_continue=finished.ending.status in ("completed", "incomplete"),
        pending=pending,
        num_prompt_tokens=sizes[0],
        num_input_tokens=sizes[1],
    )
    try:
        await gw.store.save(task.tenant.id, task.id, stored)
    except ProtocolError as error:
        once = {"once": "a response could not be stored"}
        logger.warning("response %s could not be stored: %s", task.id, error, extra=once)
        return job.lineage
    return Lineage((*lineage.ids, task.id), len(items) + len(output), *sizes)


def rejoined_context(finished: FinishedResponse, pause: Pause) -> FinishedResponse:
    """Returns a response whose client came back with more context, as the next turn is to see it.

    That client takes its own input, and what it was sent since, to be the context.
    """
    if pause.context is None:
        return finished
    request = msgspec.structs.replace(finished.task.request, items=pause.context)
    task = msgspec.structs.replace(finished.task, request=request)
    return msgspec.structs.replace(finished, task=task, output=finished.output[pause.num_held :])


def unheld_output(job: Job) -> tuple[Item, ...]:
    """Returns a response's output, without what a client that came back has worked on already."""
    pause = job.pause
    if pause is None or pause.context is None:
        return job.writer.output
    return job.writer.output[pause.num_held :]


def open_calls(output: tuple[Item, ...]) -> tuple[dict[str, str], ...]:
    """Returns a stub of each output that the response's whole calls wait for."""
    stubs: list[dict[str, str]] = []
    for item in output:
        if isinstance(item, FunctionCall) and not item.is_cut:
            stub = {"type": "function_call_output", "call_id": item.call_id, "name": item.name}
            stubs.append(stub)
        elif isinstance(item, CustomToolCall) and not item.is_cut:
            stubs.append({"type": "custom_tool_call_output", "call_id": item.call_id})
    return tuple(stubs)
