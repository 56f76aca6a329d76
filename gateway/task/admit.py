"""Steps 4 to 6 of a task: classifies it, ranks its routes, reserves for the first that fits.

This is an edge.
"""

import logging
from collections.abc import Sequence
from functools import partial

import msgspec

from backends.contract import BackendStats
from gateway.core.gateway import Gateway
from gateway.core.job import Job
from gateway.core.ratelimit import MODE_HEADER, policy_name, rate_limit_headers
from gateway.core.spending import most_nusd, note_budgets, terms_of
from gateway.core.waiting_room import Admission, Attempt
from gateway.task.stages import AdmittedTask, LoadedTask
from gateway.wire.compaction import Plan, expected_task
from gateway.wire.errors import ProtocolError
from router.classify.classify import classify, features
from router.classify.task import Task, TaskClass
from router.decide.admission import decide, demands
from router.decide.decision import RankedRoute, Refusal, RouteDecision, ShadowChoice
from router.decide.ranking import classify_and_rank, rank
from router.decide.weighing import weigh
from router.policy.policy import Policy
from router.pools.pools import Demand, Grant
from router.pools.redis_pools import PoolsUnavailable
from router.record.seen import seen_of

logger = logging.getLogger("lanewise")


async def admit(gw: Gateway, job: Job, loaded: LoadedTask, loaded_us: int) -> AdmittedTask:
    """Decides where a task runs, and reserves for it and its planned compaction.

    It may wait for its pools; `job` then takes its position, and can stop the wait. The caller
    settles.

    Raises:
        ProtocolError: No route is allowed, none fits its pools, or the pools do not answer.
    """
    task = loaded.task
    if isinstance(loaded.plan, Plan):
        task = expected_task(task, loaded.plan)
    policy = gw.state.policy.for_tenant(task.tenant.id)  # read once per task
    job.policy = policy
    task_class, ranked, ranked_us = rank_task(gw, task, policy, job, loaded_us)
    most = partial(most_nusd, gw, terms_of(task.hints)) if task.tenant.accounts else None
    asked = demands(task, task_class, ranked, gw.weights, most)

    async def attempt(has_waited: bool) -> Attempt:
        routes, wanted, began_us = ranked, asked, ranked_us
        if has_waited:
            routes = rank_routes(policy, task, task_class, gw.backend_stats())
            began_us = gw.clock_us()
            wanted = demands(task, task_class, routes, gw.weights, most)
        if gw.waiting.limiter.is_on:
            routes, grant = await _reserve_within_capacity(gw, task, routes, wanted)
        else:
            grant = await gw.pools.reserve_first(task.tenant, task.id, wanted)
        if grant.accounts:
            note_budgets(gw, task.tenant, grant)
        now_us = gw.clock_us()
        gw.metrics.stage("admit", now_us - began_us)
        return Attempt(routes, grant, now_us)

    wish = Admission(
        task=task,
        tokens=asked[0][0].tokens,
        groups=lambda: [group for each in ranked for group in each.route.groups],
        attempt=attempt,
        settle=gw.pools.settle,
        visitor=job,
    )
    try:
        made = await gw.waiting.admit(wish)
    except PoolsUnavailable as error:
        raise _pools_away(error) from error
    if made.grant.index is None:
        made = gw.waiting.truthful(wish, made)
    try:
        decision = decide(task, task_class, made.ranked, made.grant, policy, gw.weights)
        if gw.state.shadow is not None:
            decision = msgspec.structs.replace(decision, shadow=ask_shadow(gw, task))
        job.decided, job.admitted_us = decision, made.at_us
        job.records_text = policy.record_text and job.tenant.store != "never"
        return _taken(gw, loaded, decision, made)
    except Exception as error:
        if made.grant.reservation is not None and not isinstance(error, ProtocolError):
            # An internal error must not leave it.
            gw.spawn(gw.pools.settle(made.grant.reservation, {}))
        raise


def _taken(gw: Gateway, loaded: LoadedTask, decision: RouteDecision, made: Attempt) -> AdmittedTask:
    """Counts and notes what was decided. Raises `ProtocolError` if it is a refusal."""
    task, grant = loaded.task, made.grant
    if decision.balances:
        gw.experience.note_balances(task.tenant.id, decision.balances, made.at_us)
    if grant.num_reaped:
        gw.metrics.counts["lanewise_ratelimit_reaped_total"][()].inc(grant.num_reaped)
    if decision.chosen is None or decision.reservation is None:
        raise _refusal(gw, task, decision, made)
    admitted = AdmittedTask(loaded, decision, decision.chosen, decision.reservation)
    _count_admission(gw, task, admitted)
    return admitted


def ask_shadow(gw: Gateway, task: Task) -> ShadowChoice | None:
    """Counts what the shadow policy would decide; has no effect on the task."""
    if gw.state.shadow is None:
        return None
    policy = gw.state.shadow.for_tenant(task.tenant.id)
    try:
        _, ranked = classify_and_rank(policy, task, gw.backend_stats())
    except Exception:
        logger.exception("the shadow policy failed; tasks are not affected")
        return None
    if isinstance(ranked, Refusal):
        return None
    first = ranked[0]
    rule = first.rule or first.reason.value
    gw.metrics.decision(policy=policy.version, rule=rule, route=first.route, mode="shadow")
    return ShadowChoice(
        policy_version=policy.version, route=first.route, strategy=first.strategy, rule=rule
    )


def rank_task(
    gw: Gateway, task: Task, policy: Policy, job: Job, began_us: int
) -> tuple[TaskClass, tuple[RankedRoute, ...], int]:
    """Classifies a task, ranks its routes, best first, and returns the time as well.

    `job` gets what the decision saw. Raises `ProtocolError` if no route is allowed.
    """
    seen = features(task)
    task_class = classify(seen, policy.band)
    classified_us = gw.clock_us()
    stats = gw.backend_stats()
    conversation = gw.experience.arrival(task, stats)
    facts = gw.experience.facts(task, task_class, seen.reading, conversation, classified_us)
    if gw.recorder is not None and gw.recorder.is_writing:
        job.seen = seen_of(stats, facts)
    task_class = weigh(policy.tradeoff, policy.band, task, task_class, stats, facts)
    ranked = rank_routes(policy, task, task_class, stats)
    ranked_us = gw.clock_us()
    gw.metrics.ranked(task_class, classified_us - began_us, ranked_us - classified_us)
    return task_class, ranked, ranked_us


def rank_routes(
    policy: Policy, task: Task, task_class: TaskClass, stats: Sequence[BackendStats]
) -> tuple[RankedRoute, ...]:
    """Ranks the routes of a classified task, best first.

    Raises `ProtocolError` if no route is allowed.
    """
    ranked = rank(policy, task, task_class, stats)
    if isinstance(ranked, Refusal):
        raise refused(ranked, {})
    return ranked


def refused(refusal: Refusal, headers: dict[str, str]) -> ProtocolError:
    """Makes a refusal's protocol error."""
    return ProtocolError(
        refusal.code,
        refusal.message,
        param=refusal.param,
        retry_after_us=refusal.retry_after_us,
        headers=headers,
        violated=(policy_name(*refusal.limited_by),) if refusal.limited_by else (),
    )


def _pools_away(error: PoolsUnavailable) -> ProtocolError:
    """Makes the refusal of a task that no pool answered for."""
    return ProtocolError(
        "server_is_overloaded",
        f"The rate-limit pools are away. {error}. Try again in 1s.",
        retry_after_us=1_000_000,
        headers={MODE_HEADER: "degraded"},
    )


async def _reserve_within_capacity(
    gw: Gateway,
    task: Task,
    ranked: tuple[RankedRoute, ...],
    asked: tuple[tuple[Demand, ...], ...],
) -> tuple[tuple[RankedRoute, ...], Grant]:
    """Reserves on routes with capacity; counts on all of them until the grant."""
    limiter, tenant = gw.waiting.limiter, task.tenant
    routes = limiter.open_routes(ranked, tenant.id)
    if not routes:
        return ranked, limiter.refusal(ranked[0].route.groups, tenant.id)
    wanted = [each for route, each in zip(ranked, asked, strict=True) if route in routes]
    groups = {group for each in routes for group in each.route.groups}
    limiter.acquire(task.id, tenant, tuple(groups))
    try:
        grant = await gw.pools.reserve_first(tenant, task.id, wanted)
    except BaseException:
        limiter.release(task.id)
        raise
    if grant.index is None:
        limiter.release(task.id)
    else:
        limiter.acquire(task.id, tenant, routes[grant.index].route.groups)
    return routes, grant


def _refusal(gw: Gateway, task: Task, decision: RouteDecision, made: Attempt) -> ProtocolError:
    """Counts a refusal, and makes its protocol error."""
    groups, grant = made.ranked[0].route.groups, made.grant
    if grant.shed is not None and grant.limited_by is not None:
        shed = gw.metrics.counts["lanewise_capacity_shed_total"]
        shed[grant.limited_by[0], grant.shed].inc()
    else:
        gw.metrics.ratelimit(
            group=groups[0],
            tier=task.tenant.tier,
            result="reject",
            mode=decision.mode,
            limited_by=grant.limited_by[1] if grant.limited_by else None,
        )
    refusal = decision.refusal
    assert refusal is not None  # RouteDecision has a refusal or a choice
    return refused(refusal, rate_limit_headers(decision.balances, groups, decision.mode, refusal))


def _count_admission(gw: Gateway, task: Task, admitted: AdmittedTask) -> None:
    metrics, decision, chosen = gw.metrics, admitted.decision, admitted.chosen
    first, tier, mode = decision.ranked[0], task.tenant.tier, decision.mode
    for group in chosen.route.groups:
        metrics.ratelimit(group=group, tier=tier, result="admit", mode=mode)
    metrics.reserved(admitted.reservation.demands)
    metrics.decision(
        policy=decision.policy_version,
        rule=chosen.rule or chosen.reason,
        route=chosen.route,
        mode="canary" if chosen.canary else "live",
    )
    if chosen.route is not first.route:
        escalations = metrics.counts["lanewise_escalations_total"]
        escalations[first.route.value, chosen.route.value, chosen.reason.value].inc()
