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
from gateway.wire.compaction import Plan, Skipped, expected_task, skipped_words
from gateway.wire.errors import ProtocolError
from router.classify.classify import classify, features
from router.classify.task import Task, TaskClass
from router.decide.admission import MostNusd, decide, demands
from router.decide.decision import RankedRoute, Refusal, RouteDecision, ShadowChoice
from router.decide.ranking import classify_and_rank, rank
from router.decide.weighing import weigh
from router.policy.policy import Policy
from router.pools.pools import Demand, Grant
from router.pools.redis_pools import PoolsUnavailable
from router.record.seen import seen_of

logger = logging.getLogger("lanewise")


async def admit(gw: Gateway, job: Job, loaded: LoadedTask) -> AdmittedTask:
    """Decides where a task runs, and reserves for it and its planned compaction.

    It may wait for its pools; `job` then takes its position, and can stop the wait. The caller
    settles.

    Raises:
        ProtocolError: No route is allowed, none fits its pools, or the pools do not answer.
    """
    task, plan = loaded.task, loaded.plan
    if isinstance(plan, Plan):
        task = expected_task(task, plan)
    try:
        return await _admit(gw, job, loaded, task)
    except ProtocolError as error:
        if isinstance(plan, Skipped) and error.code == "context_length_exceeded":
            error.message += f" {skipped_words(plan)}"
        raise


async def _admit(gw: Gateway, job: Job, loaded: LoadedTask, task: Task) -> AdmittedTask:
    policy = gw.state.policy.for_tenant(task.tenant.id)  # read once per task
    job.policy = policy
    task_class, ranked = rank_task(gw, task, policy, job)
    most = partial(most_nusd, gw, terms_of(task.hints)) if task.tenant.accounts else None
    asked = demands(task, task_class, ranked, gw.weights, most)

    async def attempt(has_waited: bool) -> Attempt:
        routes = ranked
        if has_waited:
            routes = rank_routes(policy, task, task_class, gw.backend_stats())
        started_us = gw.clock_us()
        if gw.limiter.is_on:
            made = await _reserve_within_capacity(gw, task, task_class, routes, most)
        else:
            is_same = routes is ranked
            wanted = asked if is_same else demands(task, task_class, routes, gw.weights, most)
            made = Attempt(routes, await _reserve(gw, task, wanted))
        gw.metrics.stage("admit", gw.clock_us() - started_us)
        return made

    groups = dict.fromkeys(group for each in ranked for group in each.route.groups)
    made = await gw.waiting.admit(
        Admission(task, asked[0][0].tokens, groups, attempt, gw.pools.settle, job)
    )
    try:
        decision = decide(task, task_class, made.ranked, made.grant, policy, gw.weights)
        decision = msgspec.structs.replace(decision, shadow=ask_shadow(gw, task))
        job.decided = decision
        job.admitted_us = gw.clock_us()
        job.records_text = policy.record_text and job.tenant.store != "never"
        if decision.balances:
            gw.experience.note_balances(task.tenant.id, decision.balances, gw.clock_us())
        if made.grant.num_reaped:
            gw.metrics.counts["lanewise_ratelimit_reaped_total"][()].inc(made.grant.num_reaped)
        if decision.chosen is None or decision.reservation is None:
            raise _refusal(gw, task, decision, made)
        admitted = AdmittedTask(loaded, decision, decision.chosen, decision.reservation)
        _count_admission(gw, task, admitted)
        return admitted
    except Exception as error:
        if made.grant.reservation is not None and not isinstance(error, ProtocolError):
            # An internal error must not leave it.
            gw.spawn(gw.pools.settle(made.grant.reservation, {}))
        raise


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
    gw: Gateway, task: Task, policy: Policy, job: Job
) -> tuple[TaskClass, tuple[RankedRoute, ...]]:
    """Classifies a task and ranks its routes, best first; `job` gets what the decision saw.

    Raises `ProtocolError` if no route is allowed.
    """
    started_us = gw.clock_us()
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
    gw.metrics.stage("classify", classified_us - started_us)
    gw.metrics.stage("policy", gw.clock_us() - classified_us)
    confidence = gw.metrics.histograms["lanewise_classifier_confidence"]
    confidence[(task_class.label,)].observe(max(task_class.p_deep, 1 - task_class.p_deep))
    return task_class, ranked


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


async def _reserve(gw: Gateway, task: Task, ranked_demands: Sequence[tuple[Demand, ...]]) -> Grant:
    """Calls the pools once; if it is cancelled, they release what was granted."""
    try:
        grant = await gw.pools.reserve_first(task.tenant, task.id, ranked_demands)
    except PoolsUnavailable as error:
        message = f"The rate-limit pools are away. {error}. Try again in 1s."
        raise ProtocolError(
            "server_is_overloaded",
            message,
            retry_after_us=1_000_000,
            headers={MODE_HEADER: "degraded"},
        ) from error
    if grant.accounts:
        note_budgets(gw, task.tenant, grant)
    return grant


async def _reserve_within_capacity(
    gw: Gateway,
    task: Task,
    task_class: TaskClass,
    ranked: tuple[RankedRoute, ...],
    most: MostNusd | None,
) -> Attempt:
    """Reserves on routes with capacity; counts on all of them until the grant."""
    routes = gw.limiter.open_routes(ranked, task.tenant.id)
    if not routes:
        return Attempt(ranked, gw.limiter.refusal(ranked[0].route.groups, task.tenant.id))
    groups = tuple({group for route in routes for group in route.route.groups})
    gw.limiter.acquire(task.id, task.tenant, groups)
    try:
        grant = await _reserve(gw, task, demands(task, task_class, routes, gw.weights, most))
    except BaseException:
        gw.limiter.release(task.id)
        raise
    if grant.index is None:
        gw.limiter.release(task.id)
    else:
        gw.limiter.acquire(task.id, task.tenant, routes[grant.index].route.groups)
    return Attempt(routes, grant)


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
    chosen, first = admitted.chosen, admitted.decision.ranked[0]
    for group in chosen.route.groups:
        gw.metrics.ratelimit(
            group=group, tier=task.tenant.tier, result="admit", mode=admitted.decision.mode
        )
    gw.metrics.reserved(admitted.reservation.demands)
    gw.metrics.decision(
        policy=admitted.decision.policy_version,
        rule=chosen.rule or chosen.reason,
        route=chosen.route,
        mode="canary" if chosen.canary else "live",
    )
    if chosen.route is not first.route:
        routes = (first.route.value, chosen.route.value)
        gw.metrics.counts["lanewise_escalations_total"][*routes, chosen.reason.value].inc()
