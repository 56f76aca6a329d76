"""Computes what ranked routes demand of the pools, and turns the grant into a decision."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import msgspec

from backends.contract import NO_USAGE, BackendGroup, Usage
from router.classify.durations import in_words
from router.classify.task import Task, TaskClass
from router.decide.decision import RankedRoute, Reason, Refusal, RouteDecision
from router.money.cost import EVEN, Weights, cost_tokens
from router.policy.policy import Policy
from router.pools.pools import Demand, Grant, Reservation, Unit, extended
from router.strategies.table import RECORDS

MostNusd = Callable[[BackendGroup, Usage], int]  # what a usage can cost on a group


def demands(
    task: Task,
    task_class: TaskClass,
    ranked: tuple[RankedRoute, ...],
    weights: Weights = MappingProxyType({}),
    most_nusd: MostNusd | None = None,
) -> tuple[tuple[Demand, ...], ...]:
    """Returns each ranked route's demands, in the same order.

    A task demands its prompt and its expected output (not `max_output_tokens`) of each group, as
    its strategy uses them; `extend` and `settle` charge the actual usage. All input counts as
    uncached, since the cached part is not known yet. A warm-up demands no tokens.

    With `most_nusd` they hold the money that the task can cost at most, for tenants with budgets.
    """
    if not task.generate:
        return tuple(tuple(Demand(group, 0) for group in route.route.groups) for route in ranked)
    expected = min(task.request.max_output_tokens, task_class.expected_output_tokens)
    once = Usage(num_input_tokens=task.request.num_prompt_tokens, num_output_tokens=expected)
    found = tuple([_demands(task, route, once, weights) for route in ranked])
    if most_nusd is None:
        return found
    whole = msgspec.structs.replace(once, num_output_tokens=task.request.max_output_tokens)
    return tuple(
        _with_money(task, route, demanded, whole, most_nusd)
        for route, demanded in zip(ranked, found, strict=True)
    )


def _with_money(
    task: Task,
    route: RankedRoute,
    demanded: tuple[Demand, ...],
    whole: Usage,
    most_nusd: MostNusd,
) -> tuple[Demand, ...]:
    usage = route.record.usage(route.options, whole)
    usage[route.route.groups[route.record.prepared_by]] += task.beforehand
    return tuple(
        msgspec.structs.replace(each, most_nusd=most_nusd(each.group, usage[each.group]))
        for each in demanded
    )


def _demands(task: Task, route: RankedRoute, once: Usage, weights: Weights) -> tuple[Demand, ...]:
    record, groups = RECORDS[route.strategy], route.route.groups
    usage = record.usage(route.options, once)
    if task.beforehand is not NO_USAGE:
        usage[groups[record.prepared_by]] += task.beforehand
    asked: list[Demand] = []
    for group in groups:
        expected = usage.get(group)
        if expected is not None:
            asked.append(Demand(group, cost_tokens(expected, weights.get(group, EVEN))))
    return tuple(asked)


def outgrown(
    reservation: Reservation, used_tokens: Mapping[BackendGroup, int]
) -> Reservation | None:
    """Returns what to extend a reservation to if a task has used more than it holds, or None.

    It grows by half of what was used, so that a stream of any length needs few extensions. An
    extension without a reply must be repeated as it is.
    """
    if reservation.former is not None:
        return reservation
    more = {
        demand.group: used + used // 2
        for demand in reservation.demands
        if (used := used_tokens.get(demand.group, 0)) > demand.tokens
    }
    return extended(reservation, more) if more else None


def decide(
    task: Task,
    task_class: TaskClass,
    ranked: tuple[RankedRoute, ...],
    grant: Grant,
    policy: Policy,
    weights: Weights = MappingProxyType({}),
) -> RouteDecision:
    """Returns the granted route, or a refusal with the pool and the wait."""
    chosen = None if grant.index is None else ranked[grant.index]
    if chosen is not None and grant.index and chosen.reason is Reason.FALLBACK:
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
        balances=() if grant.shed else grant.balances,
        accounts=grant.accounts,
        mode=grant.mode,
        refusal=refusal_of(grant, demands(task, task_class, ranked, weights))
        if chosen is None
        else None,
    )


def explain(decision: RouteDecision) -> list[str]:
    """Explains a decision in sentences: the class, the routes in order, the outcome."""
    task_class = decision.task_class
    lines = [
        f"Class: {task_class.by_words}; p_deep {task_class.p_deep:.2f}, "
        f"p_security {task_class.p_security:.2f}, "
        f"about {task_class.expected_output_tokens} output tokens expected.",
        f"Signals: {'; '.join(task_class.signals) or 'none'}.",
    ]
    for rank, route in enumerate(decision.ranked, start=1):
        how = f", {route.strategy}" if route.strategy else ""
        lines.append(f"{rank}. {route.route.value}{how} [{route.reason.value}] {route.why}")
    if decision.chosen is not None:
        backends = " and ".join(decision.chosen.backends)
        lines.append(
            f"Chosen by policy {decision.policy_version}: {decision.chosen.route.value} "
            f"on {backends}. {decision.chosen.why}"
        )
    if decision.refusal is not None:
        lines.append(f"Refused ({decision.refusal.code}): {decision.refusal.message}")
    return lines


_NOUNS: dict[Unit, str] = {
    "requests": "requests per min",
    "tokens": "tokens per min",
    "concurrent": "concurrent tasks",
    "tokens_day": "tokens per day (UTC)",
    "key_requests": "this key's requests per min",
    "key_tokens": "this key's tokens per min",
    "key_concurrent": "this key's concurrent tasks",
    "key_tokens_day": "this key's tokens per day (UTC)",
}


def reached(limited_by: tuple[BackendGroup, Unit], wait_us: int) -> str:
    """Describes the limit that refused a part of a task."""
    group, unit = limited_by
    return (
        f"rate limit reached for the {group} engines on {_NOUNS[unit]}, for {in_words(wait_us)} yet"
    )


def refusal_of(grant: Grant, ranked_demands: tuple[tuple[Demand, ...], ...]) -> Refusal:
    """Makes the client's error: the empty pool, its limit, the demand and the wait."""
    assert grant.limited_by is not None, "a refused grant names its pool"
    group, unit = grant.limited_by
    if grant.shed is not None:
        message = (
            f"The {group} engines take no more tasks at the moment. "
            f"Please try again in {in_words(grant.wait_us)}."
        )
        return Refusal(code="server_is_overloaded", message=message, retry_after_us=grant.wait_us)
    limit, remaining = next(
        (balance.limit, balance.remaining)
        for balance in grant.balances
        if (balance.group, balance.unit) == grant.limited_by
    )
    is_slot = unit in ("concurrent", "key_concurrent")
    # The wait for a slot is a guess, and less than what another route may have to wait.
    if limit == 0 and (not is_slot or len(ranked_demands) == 1):
        message = (
            f"Rate limit reached for the {group} engines on {_NOUNS[unit]}: the limit is 0, which "
            "admits nothing. An admin can raise it."
        )
        return Refusal(code="rate_limit_exceeded", message=message, limited_by=grant.limited_by)
    if is_slot:
        state = f"Limit {limit} at once, all in use."
    else:
        demand = next(d for ds in ranked_demands for d in ds if d.group == group)
        asked = 1 if unit in ("requests", "key_requests") else demand.tokens
        state = f"Limit {limit}, Remaining {remaining}, Requested {asked}."
    message = (
        f"Rate limit reached for the {group} engines on {_NOUNS[unit]}: {state} "
        f"Please try again in {in_words(grant.wait_us)}."
    )
    return Refusal(
        code="rate_limit_exceeded",
        message=message,
        retry_after_us=grant.wait_us,
        limited_by=grant.limited_by,
    )
