"""From ranked routes to a decision: what each route asks of the pools, and what the grant means."""

import msgspec

from router.decision import RankedRoute, Reason, Refusal, RouteDecision
from router.policy import Policy
from router.pools import Demand, Grant
from router.strategies.asks import strategy_tokens
from router.task import Task, TaskClass


def demands(
    task: Task, task_class: TaskClass, ranked: tuple[RankedRoute, ...]
) -> tuple[tuple[Demand, ...], ...]:
    """What each ranked route asks of the pools, in the same order.

    A task asks each group for its prompt and the output that is expected of it, not for the whole
    `max_output_tokens`, times what its strategy makes of it; `settle` charges what it really used.
    A warm-up asks for no tokens.
    """
    if not task.generate:
        return tuple(
            tuple(Demand(group=group, tokens=0) for group in route.route.groups) for route in ranked
        )
    expected = min(task.request.max_output_tokens, task_class.expected_output_tokens)
    return tuple(_demands(route, task.request.num_prompt_tokens, expected) for route in ranked)


def _demands(route: RankedRoute, num_prompt_tokens: int, expected: int) -> tuple[Demand, ...]:
    tokens = strategy_tokens(route.strategy, route.options, num_prompt_tokens, expected)
    return tuple(Demand(group=group, tokens=tokens[group]) for group in route.route.groups)


def decide(
    task: Task,
    task_class: TaskClass,
    ranked: tuple[RankedRoute, ...],
    grant: Grant,
    policy: Policy,
) -> RouteDecision:
    """The route that the pools granted, or a refusal that says which pool and how long to wait."""
    chosen = None if grant.index is None else ranked[grant.index]
    if chosen is not None and grant.index and chosen.reason is Reason.FALLBACK:
        # It was ranked for this case; now the case is there.
        taken = ", ".join(route.route.value for route in ranked[: grant.index])
        why = f"The tenant's pools for {taken} are full: {chosen.route.value} instead."
        if grant.mode == "degraded" and len(ranked[0].route.groups) > 1:
            why = (
                f"One engine instead of two while the shared pools are away: {chosen.route.value}."
            )
        chosen = msgspec.structs.replace(chosen, why=why)
    return RouteDecision(
        task_id=task.id,
        task_class=task_class,
        ranked=ranked,
        policy_version=policy.version,
        chosen=chosen,
        reservation=grant.reservation,
        balances=grant.balances,
        mode=grant.mode,
        refusal=_refusal(grant, demands(task, task_class, ranked)) if chosen is None else None,
    )


def explain(decision: RouteDecision) -> list[str]:
    """A decision in sentences, for people: the class, the routes in order, the outcome."""
    task_class = decision.task_class
    lines = [
        f"Class: {task_class.label}; p_deep {task_class.p_deep:.2f}, "
        f"p_security {task_class.p_security:.2f}, "
        f"about {task_class.expected_output_tokens} output tokens expected.",
        f"Signals: {'; '.join(task_class.signals) or 'none'}.",
    ]
    for place, route in enumerate(decision.ranked, start=1):
        how = f", {route.strategy}" if route.strategy else ""
        lines.append(f"{place}. {route.route.value}{how} [{route.reason.value}] {route.why}")
    if decision.chosen is not None:
        backends = " and ".join(decision.chosen.backends)
        lines.append(
            f"Chosen by policy {decision.policy_version}: {decision.chosen.route.value} "
            f"on {backends}. {decision.chosen.why}"
        )
    if decision.refusal is not None:
        lines.append(f"Refused ({decision.refusal.code}): {decision.refusal.message}")
    return lines


def _refusal(grant: Grant, ranked_demands: tuple[tuple[Demand, ...], ...]) -> Refusal:
    """The client's error: the pool that is empty, its limit, what was asked, the true wait."""
    assert grant.limited_by is not None, "a refused grant names its pool"
    group, unit = grant.limited_by
    limit, remaining = next(
        (balance.limit, balance.remaining)
        for balance in grant.balances
        if (balance.group, balance.unit) == grant.limited_by
    )
    if unit == "concurrent":
        state = f"Limit {limit} at once, all in use."
    else:
        demand = next(d for ds in ranked_demands for d in ds if d.group == group)
        asked = 1 if unit == "requests" else demand.tokens
        state = f"Limit {limit}, Remaining {remaining}, Requested {asked}."
    noun = "concurrent tasks" if unit == "concurrent" else f"{unit} per min"
    message = (
        f"Rate limit reached for the {group} engines on {noun}: {state} "
        f"Please try again in {_seconds(grant.wait_us)}."
    )
    return Refusal(
        code="rate_limit_exceeded",
        message=message,
        retry_after_us=grant.wait_us,
    )


def _seconds(duration_us: int) -> str:
    """As clients of OpenAI read it: `120ms`, `1.5s`; rounded up, for it is a promise."""
    duration_ms = -(-duration_us // 1_000)
    if duration_ms < 1_000:
        return f"{duration_ms}ms"
    return f"{-(-duration_ms // 10) / 100:g}s"
