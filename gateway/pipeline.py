"""The life of one task, from its context to its settlement (`docs/architecture.md`)."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from backends.contract import (
    Backend,
    BackendError,
    ContextItem,
    CustomToolCall,
    FinishReason,
    FunctionCall,
    Item,
    Usage,
)
from backends.prompt import measure
from gateway.dispatch import Outcome, Run
from gateway.errors import ProtocolError
from gateway.intake import make_task
from gateway.items import ItemReference
from gateway.job import Ended, Job
from gateway.metrics import Metrics
from gateway.metrics import Outcome as OutcomeLabel
from gateway.ratelimit import rate_limit_headers
from gateway.records import MAX_ANCESTORS, Lineage, StoredResponse
from gateway.response import Ending
from gateway.routing import routing_view
from gateway.store import ResponseStore
from router.admission import decide, demands
from router.classify import classify, features
from router.decision import RouteDecision
from router.policy import Policy
from router.pools import Grant, Reservation
from router.ranking import rank
from router.redis_pools import PoolsUnavailable, RedisPools
from router.task import Task

logger = logging.getLogger("lanewise")


@dataclass(slots=True)
class Gateway:
    """What every task needs; made once by the composition root."""

    backends: Mapping[str, Backend]
    pools: RedisPools
    store: ResponseStore
    policy: Policy
    metrics: Metrics
    clock_us: Callable[[], int]  # monotonic: the engines' clock
    wall_s: Callable[[], int]  # Unix time, for the protocol's objects
    live: dict[str, "Live"] = field(default_factory=dict)  # reservation id -> its holder
    draining: bool = False
    _loose: set["asyncio.Task[Any]"] = field(default_factory=set)

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run something that must end even if who asked for it is cancelled."""
        loose = asyncio.create_task(coroutine)
        self._loose.add(loose)
        loose.add_done_callback(self._loose.discard)
        return loose

    async def settled(self) -> None:
        """Wait until everything spawned has ended."""
        while self._loose:
            await asyncio.wait(self._loose)


@dataclass(slots=True)
class Live:
    """A reservation in use: renewed while it lives, and its client kept awake."""

    reservation: Reservation
    job: Job
    num_events: int = 0  # the writer's, at the last heartbeat


async def handle_task(gw: Gateway, job: Job) -> Ended | None:
    """Run one response from its request to its terminal event.

    Returns what can be continued, or None where it was refused. Cancelling stops generation at
    once and settles what was used.
    """
    gw.metrics.task_started()
    account = _Account()
    try:
        task = await load_task(gw, job)
        if not task.generate:
            return await _warm_up(gw, job, task, account)
        decision = await admit(gw, task, account)
        run = _dispatch(gw, job, task, decision)
        account.run = run
        try:
            outcome = await run.ended
        finally:
            run.close()
            settlement = _settle(gw, task, decision, run)
        return await _finish(gw, job, task, decision, outcome, account, settlement)
    except ProtocolError as error:
        account.outcome = _REFUSED.get(
            error.code, "invalid" if error.kind.status < 500 else "error"
        )
        job.refuse(error)
        return None
    except Exception:
        account.outcome = "error"
        logger.exception("task %s failed inside the gateway", job.parsed.id)
        return _break(gw, job)
    finally:
        account.close(gw, job)


_REFUSED: dict[str, OutcomeLabel] = {
    "rate_limit_exceeded": "rate_limited",
    "server_is_overloaded": "shed",
    "server_draining": "shed",
}


@dataclass(slots=True)
class _Account:
    """What a task's metrics are made from, on every path."""

    outcome: OutcomeLabel = "cancelled"  # until something else is known
    decision: RouteDecision | None = None
    run: Run | None = None

    def close(self, gw: Gateway, job: Job) -> None:
        chosen = self.decision.chosen if self.decision else None
        names = chosen.backends if chosen else ()
        usages = self.run.usages if self.run else []
        models = [gw.backends[name].info.model for name in names]
        first = self.run.first if self.run else None
        gw.metrics.task_finished(
            tenant_id=job.tenant.id,
            route=chosen.route if chosen else None,
            outcome=self.outcome,
            duration_us=gw.clock_us() - job.arrived_us,
            usage_by_model=dict(zip(models, usages, strict=False)),
            first_model=models[first.backend] if first else None,
            ttft_us=first.seen_us - job.arrived_us if first else None,
            tpot_us=first.tpot_us(usages[first.backend]) if first else None,
        )


# -- steps 3 to 6: the context, the class, the routes, the pools -------------------------------


async def load_task(gw: Gateway, job: Job) -> Task:
    """Join a request with the context it continues.

    Raises:
        ProtocolError: The parent, or an item it refers to, is not to be found.
    """
    if gw.draining:
        message = "The server is restarting. Connect again and resend. Try again in 1s."
        raise ProtocolError("server_draining", message, retry_after_us=1_000_000)
    parent_id = job.parsed.body.previous_response_id
    if job.parent is None and parent_id is not None:
        context = await gw.store.context(job.tenant.id, parent_id)
        if context is None:
            raise ProtocolError(
                "previous_response_not_found",
                f"Previous response '{parent_id[:80]}' not found. Send the full context as 'input' "
                "without 'previous_response_id'.",
                param="previous_response_id",
            )
        job.parent, job.last_backend = context.items, context.backend
        job.lineage = context.lineage
    parent = job.parent or ()
    own = [await _resolve(gw, job, parent, entry) for entry in job.parsed.input.items]
    return make_task(
        job.parsed,
        (*parent, *own),
        job.tenant,
        last_backend=job.last_backend,
        arrived_us=job.arrived_us,
    )


async def _resolve(
    gw: Gateway, job: Job, parent: tuple[ContextItem, ...], entry: ContextItem | ItemReference
) -> ContextItem:
    """An item itself, or the one that a reference names."""
    if isinstance(entry, ContextItem):
        return entry
    for known in parent:
        if known.item.id == entry.id:
            return known
    # Our item ids carry their response's id: prefix, 48 hex digits, 4 of the item's place.
    _, _, tail = entry.id.partition("_")
    stored = await gw.store.load(job.tenant.id, f"resp_{tail[:-4]}") if len(tail) > 4 else None
    for known in (*stored.input, *stored.output) if stored else ():
        if known.item.id == entry.id:
            return known
    message = f"Item '{entry.id[:80]}' not found. Send the item itself."
    raise ProtocolError("item_not_found", message, param="input")


async def admit(gw: Gateway, task: Task, account: _Account) -> RouteDecision:
    """Classify, rank, reserve: the decision with its reservation.

    Raises:
        ProtocolError: No route is allowed, none fits its pools, or the pools do not answer.
    """
    started_us = gw.clock_us()
    task_class = classify(features(task))
    classified_us = gw.clock_us()
    ranked = rank(gw.policy, task, task_class, [b.stats() for b in gw.backends.values()])
    ranked_us = gw.clock_us()
    gw.metrics.stage("classify", classified_us - started_us)
    gw.metrics.stage("policy", ranked_us - classified_us)
    gw.metrics.confidence(task_class.label, max(task_class.p_deep, 1 - task_class.p_deep))
    if not isinstance(ranked, tuple):
        raise ProtocolError(
            ranked.code, ranked.message, param=ranked.param, retry_after_us=ranked.retry_after_us
        )
    grant = await _reserve(gw, task, demands(task, task_class, ranked))
    decision = decide(task, task_class, ranked, grant, gw.policy)
    gw.metrics.stage("admit", gw.clock_us() - ranked_us)
    _count_admission(gw, task, decision, grant)
    if decision.refusal is not None:
        refusal = decision.refusal
        raise ProtocolError(
            refusal.code,
            refusal.message,
            param=refusal.param,
            retry_after_us=refusal.retry_after_us,
            headers=rate_limit_headers(decision.balances, decision.ranked[0].route.groups),
        )
    account.decision = decision
    return decision


async def _reserve(gw: Gateway, task: Task, ranked_demands: Any) -> Grant:
    """One call to the pools. A client that leaves during it leaves nothing reserved."""
    started_us = gw.clock_us()
    call = asyncio.ensure_future(gw.pools.reserve_first(task.tenant, task.id, ranked_demands))
    try:
        grant = await asyncio.shield(call)
    except asyncio.CancelledError:
        gw.spawn(_give_back(gw, call))
        raise
    except PoolsUnavailable as error:
        gw.metrics.pools_call("admit", "error", gw.clock_us() - started_us)
        gw.metrics.degraded(True)
        message = "The rate-limit pools do not answer. Try again in 1s."
        raise ProtocolError("server_is_overloaded", message, retry_after_us=1_000_000) from error
    gw.metrics.pools_call("admit", "ok", gw.clock_us() - started_us)
    gw.metrics.degraded(False)
    return grant


async def _give_back(gw: Gateway, call: "asyncio.Future[Grant]") -> None:
    try:
        grant = await call
        if grant.reservation is not None:
            await gw.pools.settle(grant.reservation, {})
    except PoolsUnavailable:
        logger.warning("a reservation nobody waits for is left to its lease's expiry")


def _count_admission(gw: Gateway, task: Task, decision: RouteDecision, grant: Grant) -> None:
    group = (decision.chosen or decision.ranked[0]).route.groups[0]
    tier = task.tenant.tier
    if grant.num_reaped:
        gw.metrics.reaped(grant.num_reaped)
    if decision.chosen is None:
        limited_by = grant.limited_by[1] if grant.limited_by else None
        gw.metrics.ratelimit(group=group, tier=tier, result="reject", limited_by=limited_by)
        return
    assert decision.reservation is not None
    chosen, first = decision.chosen, decision.ranked[0]
    gw.metrics.ratelimit(group=group, tier=tier, result="admit")
    gw.metrics.reserved(decision.reservation.demands)
    gw.metrics.decision(policy=decision.policy_version, rule=chosen.reason, route=chosen.route)
    if chosen is not first and chosen.route is not first.route:
        gw.metrics.escalation(ranked_first=first.route, taken=chosen.route, reason=chosen.reason)


# -- steps 7 to 12: generate, settle, end ------------------------------------------------------


def _dispatch(gw: Gateway, job: Job, task: Task, decision: RouteDecision) -> Run:
    """Start the backends and open the response.

    Raises:
        ProtocolError: No backend would start; the reservation is being settled.
    """
    chosen = decision.chosen
    assert chosen is not None
    assert decision.reservation is not None
    job.decision = decision
    run = Run(chosen, job.writer, gw.clock_us)
    started_us = gw.clock_us()
    try:
        run.start(gw.backends, chosen, task.request)
    except BackendError as error:
        gw.metrics.backend_error(error.backend, error.code)
        run.close()
        _settle(gw, task, decision, run)
        raise ProtocolError(
            "server_is_overloaded", f"{error}. Try again in 1s.", retry_after_us=1_000_000
        ) from error
    gw.live[decision.reservation.id] = Live(decision.reservation, job)
    gw.metrics.stage("dispatch", gw.clock_us() - started_us)
    infos = {name: backend.info for name, backend in gw.backends.items()}
    model = infos[chosen.backends[-1]].model
    job.writer.open(gw.wall_s(), model, routing_view(task, decision, infos))
    if job.on_open is not None:
        job.on_open()
    job.on_stop = run.stop
    if job.stopped is not None:
        run.stop()
    return run


def _settle(gw: Gateway, task: Task, decision: RouteDecision, run: Run) -> "asyncio.Task[None]":
    """Start the settlement; it ends whatever becomes of the task that asked for it."""
    assert decision.chosen is not None
    reservation = decision.reservation
    assert reservation is not None
    gw.live.pop(reservation.id, None)
    used_tokens = {
        gw.backends[name].info.group: usage.num_input_tokens + usage.num_output_tokens
        for name, usage in zip(decision.chosen.backends, run.usages, strict=True)
    }

    async def settle() -> None:
        started_us = gw.clock_us()
        try:
            await gw.pools.settle(reservation, used_tokens)
            gw.metrics.pools_call("settle", "ok", gw.clock_us() - started_us)
        except PoolsUnavailable:
            gw.metrics.pools_call("settle", "error", gw.clock_us() - started_us)
            logger.warning("settlement of %s is left to its lease's expiry", task.id)
        finally:
            gw.metrics.settled(reservation.demands, used_tokens)

    return gw.spawn(settle())


async def _finish(
    gw: Gateway,
    job: Job,
    task: Task,
    decision: RouteDecision,
    outcome: Outcome,
    account: _Account,
    settlement: "asyncio.Task[None]",
) -> Ended:
    """Settle, store, then say that it is over: what a client does next finds both done."""
    assert account.run is not None
    assert decision.chosen is not None
    usages = dict(zip(decision.chosen.backends, account.run.usages, strict=True))
    ending = _ending(outcome, job, sum(usages.values(), Usage()))
    account.outcome = (
        "cancelled" if ending.reason == "cancelled" else _OUTCOMES.get(ending.status, "ok")
    )
    for error in outcome.errors:
        gw.metrics.backend_error(error.backend, error.code)
    infos = {name: backend.info for name, backend in gw.backends.items()}
    errors = tuple(str(error) for error in outcome.errors)
    job.writer.close_items(ending)
    routing = routing_view(task, decision, infos, usages, errors)
    body = job.writer.finish(ending, gw.wall_s(), routing)
    output = tuple(measure(item) for item in job.writer.output)
    backend = decision.chosen.backends[-1]
    lineage = await _store(gw, job, task, output, body, backend, ending)
    await settlement
    job.writer.send_terminal()
    return Ended(
        ending=ending,
        items=task.request.items + output,
        backend=backend,
        lineage=lineage,
        open_calls=_open_calls(job.writer.output),
    )


_OUTCOMES: dict[str, OutcomeLabel] = {"failed": "error", "cancelled": "cancelled"}


def _ending(outcome: Outcome, job: Job, usage: Usage) -> Ending:
    """How the response ends, from how its generation did."""
    finish = outcome.finish
    if finish is None:
        assert job.stopped is not None
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


async def _warm_up(gw: Gateway, job: Job, task: Task, account: _Account) -> Ended:
    """Take a context in without generating: checked, routed, remembered, and answered at once."""
    task_class = classify(features(task))
    ranked = rank(gw.policy, task, task_class, [b.stats() for b in gw.backends.values()])
    if not isinstance(ranked, tuple):
        raise ProtocolError(ranked.code, ranked.message, param=ranked.param)
    decision = RouteDecision(
        task_id=task.id,
        task_class=task_class,
        ranked=ranked,
        policy_version=gw.policy.version,
        chosen=ranked[0],
    )
    infos = {name: backend.info for name, backend in gw.backends.items()}
    routing = routing_view(task, decision, infos)
    job.writer.open(gw.wall_s(), infos[ranked[0].backends[-1]].model, routing)
    usage = Usage(num_input_tokens=task.request.num_prompt_tokens)
    ending = Ending(status="completed", usage=usage)
    body = job.writer.finish(ending, gw.wall_s(), routing)
    lineage = await _store(gw, job, task, (), body, None, ending)
    account.outcome = "ok"
    job.writer.send_terminal()
    return Ended(ending=ending, items=task.request.items, backend=None, lineage=lineage)


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
