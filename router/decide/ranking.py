"""Ranks the routes that a task may take: finds the preferred route, drops the backends that cannot
serve the task, and picks the best of each group. In order of precedence:

1. Hard rules. A tenant without limits for a group never reaches it. Images and contexts that an
   engine cannot take never go to it. Security-sensitive work goes deep, unless the policy says
   `security_goes_deep = false` or the tenant has no deep access.
2. What the client pinned: a backend's own model, or `metadata.route`. A pin is kept or refused,
   never quietly replaced, and what contradicts it is refused, never quietly dropped. Only the
   security rule comes between the two: a named model is the client's own decision, but route and
   strategy are hints, and such work ignores all but `deep`.
3. The policy: an alias named as the model, else the first rule that matches, else the task's class.
   A strategy requested without a route precedes the policy, and uses both engines.

Only the third kind has fallbacks. Within a group the backend that holds the conversation's KV
prefix comes first unless it is full, then the least loaded; unhealthy ones are skipped.
"""

from collections.abc import Sequence
from operator import itemgetter

import msgspec

from backends.contract import BackendGroup, BackendStats
from backends.prompt import is_tool_output
from router.classify.classify import classify, features
from router.classify.task import Route, Task, TaskClass
from router.decide.decision import RankedRoute, Reason, Refusal
from router.decide.failover import MAX_SPARES
from router.decide.refusals import (
    no_access,
    no_strategy,
    no_such_model,
    obstacle_to,
    unserved,
)
from router.decide.weighing import CHANCES, LOOKS, weigh, why_security
from router.policy.conditions import Situation, load_of
from router.policy.policy import AUTO, Choice, Policy, Rule
from router.policy.rules import first_rule
from router.policy.tradeoff import deep_price
from router.strategies.acceptance import USUAL_DEEP_PRICE
from router.strategies.record import StrategyOptions
from router.strategies.table import STRATEGIES

HELD_TOKENS = 8_192  # a KV prefix that outweighs any difference in load
HOLDING_LOAD = 0.2  # the load that any conversation's prefix outweighs, so that it does not flap

_PARALLEL = Route.PARALLEL  # read once: looking it up takes as long as a call
_GROUPS: tuple[BackendGroup, ...] = _PARALLEL.groups
_LOAD_AND_NAME, _STATS = itemgetter(0, 1), itemgetter(2)
_REASONS = {reason.value: reason for reason in Reason}
_ALONE = {group: Route(group) for group in _GROUPS}  # the routes of one engine


class _Wish(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Holds the preferred route, whether or not backends can serve it."""

    route: Route
    fallback: tuple[Route, ...] = ()
    strategy: str
    reason: Reason
    cause: str  # the beginning of a sentence
    rule: str | None = None
    canary: bool = False
    control: bool = False  # of a canary
    backends: tuple[str, ...] = ()  # of a group that has one of these, no others
    bound: bool = False  # this route and no other: a hint, or the security rule


def classify_and_rank(
    policy: Policy, task: Task, stats: Sequence[BackendStats]
) -> tuple[TaskClass, tuple[RankedRoute, ...] | Refusal]:
    """Decides a task by its text and a policy, without the tenant's learned outcomes."""
    task_class = classify(features(task), policy.band)
    task_class = weigh(policy.tradeoff, policy.band, task, task_class, stats)
    return task_class, rank(policy, task, task_class, stats)


def rank(
    policy: Policy, task: Task, task_class: TaskClass, stats: Sequence[BackendStats]
) -> tuple[RankedRoute, ...] | Refusal:
    """Returns the possible routes, best first, or a refusal: a pure function of one snapshot."""
    if policy.tenants:
        policy = policy.for_tenant(task.tenant.id)
    if task.hints.model != AUTO and task.hints.model not in policy.aliases:
        return _by_model(policy, task, task_class, stats)
    wish = _wish(policy, task, task_class, stats)
    if isinstance(wish, Refusal):
        return wish
    options = _options(policy, task, task_class, wish.strategy)
    is_parallel = wish.route is _PARALLEL or _PARALLEL in wish.fallback
    named = stats
    if wish.backends:
        groups = {s.info.group for s in stats if s.info.name in wish.backends}
        named = [s for s in stats if s.info.group not in groups or s.info.name in wish.backends]
    # Best is a window with room for the expected answer; room for one token is what must be.
    expected = min(task.request.max_output_tokens, task_class.expected_output_tokens)
    for room_tokens in (1,) if wish.bound else (expected, 1):
        least_tokens = task.max_prompt_tokens + room_tokens
        orders = _orders(named, task, least_tokens)
        able = _able(wish, options, task, orders) if is_parallel else wish
        sensitive = task_class.security_sensitive and policy.security_goes_deep
        stand_ins = _stand_ins(orders, stays_deep=sensitive)
        ranked = _routes(able, options, task, stats, orders, stand_ins, least_tokens)
        if ranked:
            return ranked
    return _refusal(wish, task, stats)


def _options(policy: Policy, task: Task, task_class: TaskClass, strategy: str) -> StrategyOptions:
    """Returns the options of the strategy, by the client's hints, the policy and the task."""
    record, asked = STRATEGIES[strategy], task.hints.strategy_options
    if asked:
        options = record.options_from(policy.strategies, asked)
    else:
        options = policy.strategy_options[strategy]
    if record.weighed is None:
        return options
    price = _deep_price(policy)
    # A client that asks for fast answers has said that they are worth it.
    is_asked_for = task.hints.strategy is not None
    fast_price = 0.0 if is_asked_for else price * policy.tradeoff.price_ratio
    weighed: StrategyOptions = record.weighed(options, task_class.p_gain, price, fast_price)
    return weighed


def _deep_price(policy: Policy) -> float:
    band, tradeoff = policy.band, policy.tradeoff
    price = deep_price(*tradeoff.edges(band.low, band.high), tradeoff.price_ratio)
    return USUAL_DEEP_PRICE if price is None else price


def _wish(
    policy: Policy, task: Task, task_class: TaskClass, stats: Sequence[BackendStats]
) -> _Wish | Refusal:
    hints = task.hints
    strategy = hints.strategy or policy.strategy
    sensitive = task_class.security_sensitive and policy.security_goes_deep
    if sensitive and "deep" in task.tenant.limits and hints.route is not Route.DEEP:
        return _Wish(
            route=Route.DEEP,
            strategy=strategy,
            reason=Reason.SECURITY,
            cause=why_security(task_class, hints),
            bound=True,
        )
    if hints.route is not None:
        if any(group not in task.tenant.limits for group in hints.route.groups):
            return no_access(task, f"route {hints.route.value!r}", "metadata.route")
        if hints.strategy is not None and hints.route is not Route.PARALLEL:
            asked = f"`metadata.route` asks for {hints.route.value!r}"
            return no_strategy(hints.strategy, asked)
        return _Wish(
            route=hints.route,
            strategy=strategy,
            reason=Reason.HINT,
            cause=f"The client asked for route {hints.route.value}",
            bound=True,
        )
    choice, reason, cause, control = _unpinned_choice(policy, task, task_class, stats)
    rule = choice if isinstance(choice, Rule) else None
    items = task.request.items
    strategy = hints.strategy or choice.strategy or policy.strategy
    stays = items and is_tool_output(items[-1]) and not STRATEGIES[strategy].in_tool_loops
    if choice.route is Route.PARALLEL and stays:
        # A second engine's commentary on every step of a tool loop would only be noise.
        group = next((s.info.group for s in stats if s.info.name == task.last_backend), "deep")
        choice = Choice(route=Route(group), fallback=choice.fallback, backends=choice.backends)
        reason, cause = Reason.STICKY, "In the middle of its tool calls a task stays where it is"
    return _Wish(
        route=choice.route,
        fallback=_others(choice, stays=bool(stays)),
        strategy=strategy,
        reason=reason,
        cause=cause,
        rule=None if rule is None else rule.name,
        canary=rule is not None and rule.percent is not None,
        control=control,
        backends=choice.backends,
    )


def _others(choice: Choice, *, stays: bool) -> tuple[Route, ...]:
    """Returns a choice's fallbacks, without its route; one that stays has no second engine."""
    left_out = (choice.route, Route.PARALLEL) if stays else (choice.route,)
    return tuple([route for route in choice.fallback if route not in left_out])


def _by_model(
    policy: Policy, task: Task, task_class: TaskClass, stats: Sequence[BackendStats]
) -> tuple[RankedRoute, ...] | Refusal:
    """Ranks the backends of the model that a task names: no other may take it, nor stand in."""
    model, wanted = task.hints.model, task.hints.route
    least_tokens = task.max_prompt_tokens + 1
    group: BackendGroup | None = None  # of its first backend
    order: list[BackendStats] = []
    for each in stats:
        info = each.info
        if info.model != model:
            continue
        if group is None:
            group = info.group
        if info.group == group and obstacle_to(each, task, least_tokens) is None:
            order.append(each)
    if group is None:
        return no_such_model(model, {AUTO, *policy.aliases, *(s.info.model for s in stats)})
    if group not in task.tenant.limits:
        return no_access(task, f"model {model!r}", "model")
    route = _ALONE[group]
    if wanted is not None and wanted is not route:
        message = (
            f"The model {model!r} runs on route {group!r}, but `metadata.route` asks for "
            f"{wanted.value!r}. Ask for one of the two, or for model {AUTO!r}."
        )
        return Refusal(code="invalid_value", message=message, param="metadata.route")
    if task.hints.strategy is not None:
        return no_strategy(task.hints.strategy, f"model {model!r} runs on route {group!r}")
    cause = f"The client asked for model {model}"
    if not order:
        named = [s for s in stats if s.info.model == model and s.info.group == group]
        return unserved(task, named, f"model {model!r}", cause)
    spares: tuple[str, ...] = ()
    if len(order) > 1:
        _sort_by_load(order, task)
        spares = tuple([spare.info.name for spare in order[1 : 1 + MAX_SPARES]])
    names = (order[0].info.name,)
    ranked = RankedRoute(
        route=route,
        backends=names,
        strategy=None,
        options=_options(policy, task, task_class, policy.strategy),
        reason=Reason.MODEL,
        why=_why(cause, route, names, task),
        spares=(spares,),
    )
    return (ranked,)


def _unpinned_choice(
    policy: Policy, task: Task, task_class: TaskClass, stats: Sequence[BackendStats]
) -> tuple[Choice, Reason, str, bool]:
    """Chooses by the client's strategy, else the policy's alias, rule or class; with the reason.

    And says whether the task is the control of a canary.
    """
    model, strategy = task.hints.model, task.hints.strategy
    if strategy is not None and model == AUTO:
        choice = Choice(route=Route.PARALLEL, fallback=(Route.DEEP, Route.FAST))
        return choice, Reason.HINT, f"The client asked for strategy {strategy}", False
    if model in policy.aliases:
        return policy.aliases[model], Reason.MODEL, f"The policy's alias {model!r} says so", False
    rule, is_control = first_rule(policy, Situation(task, task_class, stats))
    if rule is not None:
        return rule, Reason.RULE, f"The policy's rule {rule.name!r} says so", is_control
    choice = policy.choice_of(task_class.label)
    if task_class.cautious:
        deep_first = sorted(choice.fallback, key=lambda route: route is Route.FAST)
        choice = msgspec.structs.replace(choice, fallback=tuple(deep_first))
    cause = task_class.because
    if not cause:
        chance = CHANCES[int(100 * task_class.p_deep + 0.5)]
        cause = f"{LOOKS[task_class.label]} ({chance} likely to need the deep engine)"
    return choice, _REASONS[task_class.decided_by], cause, is_control


def _orders(
    stats: Sequence[BackendStats], task: Task, least_tokens: int
) -> dict[BackendGroup, list[BackendStats]]:
    """Returns the backends that can serve the task, by group and best first."""
    orders: dict[BackendGroup, list[BackendStats]] = {"fast": [], "deep": []}
    for each in stats:
        if obstacle_to(each, task, least_tokens) is None:
            orders[each.info.group].append(each)
    for order in orders.values():
        if len(order) > 1:
            _sort_by_load(order, task)
    return orders


def _sort_by_load(order: list[BackendStats], task: Task) -> None:
    """Sorts a group's backends by load, less what the conversation's KV prefix is worth.

    With `HELD_TOKENS` in its cache a conversation stays unless its backend is full; with fewer, the
    other's load must be lower by more than that share.
    """
    holder = task.last_backend
    loads: list[tuple[float, str, BackendStats]] = []
    for stats in order:
        load, name = load_of(stats), stats.info.name
        if name == holder and load < 1:
            held_tokens = task.request.num_prompt_tokens - task.num_last_message_tokens
            load -= min(1.0, HOLDING_LOAD + max(0, held_tokens) / HELD_TOKENS)
        loads.append((load, name, stats))
    loads.sort(key=_LOAD_AND_NAME)
    order[:] = map(_STATS, loads)


def _able(
    wish: _Wish,
    options: StrategyOptions,
    task: Task,
    orders: dict[BackendGroup, list[BackendStats]],
) -> _Wish:
    """Returns the wish, or one engine alone where its strategy cannot do what the task needs.

    Where it predicts, deep engines that take predictions are put first. Tools exclude it: servers
    refuse a prediction beside them, and nobody predicts their calls.
    """
    record, request = STRATEGIES[wish.strategy], task.request
    if not record.needs_prediction:
        if request.tool_choice.mode != "required" or record.calls_tools(options):
            return wish
        return _without_strategy(wish, Route.FAST, "it calls no tools and a call is required")
    if wish.route is _PARALLEL:
        orders["deep"].sort(key=lambda stats: not stats.info.takes_predictions)
    if request.tools and request.tool_choice.mode != "none":
        obstacle = "an answer that may call tools cannot be predicted"
    elif orders["deep"] and not orders["deep"][0].info.takes_predictions:
        obstacle = "no deep engine that takes predictions is up"
    else:
        return wish
    return _without_strategy(wish, Route.DEEP, obstacle)


def _without_strategy(wish: _Wish, alone: Route, obstacle: str) -> _Wish:
    """Returns the wish for one engine alone, in place of both with a strategy."""
    if wish.route is not Route.PARALLEL:
        fallback = tuple(route for route in wish.fallback if route is not Route.PARALLEL)
        return msgspec.structs.replace(wish, fallback=fallback)
    return msgspec.structs.replace(
        wish,
        route=alone,
        fallback=tuple(route for route in wish.fallback if route is not alone),
        reason=Reason.FALLBACK,
        cause=f"Without strategy {wish.strategy}, as {obstacle}",
    )


def _routes(
    wish: _Wish,
    options: StrategyOptions,
    task: Task,
    stats: Sequence[BackendStats],
    orders: dict[BackendGroup, list[BackendStats]],
    stand_ins: tuple[str, ...],
    least_tokens: int,
) -> tuple[RankedRoute, ...]:
    """Returns the preferred route and its fallbacks, as far as there are backends for them."""
    routes = [wish.route, *wish.fallback]
    if not wish.bound:
        # Rather anywhere than nowhere, once nothing that the policy named is possible.
        spare: list[Route] = []
        if wish.route is _PARALLEL:
            spare = [route for route in _ALONE.values() if route not in routes]
        if not all(orders.values()) and not any(
            all(orders[group] for group in route.groups) for route in [*routes, *spare]
        ):
            spare = [route for route in _ALONE.values() if route not in routes]
        routes += spare
    ranked: list[RankedRoute] = []
    blocked: Reason | None = None
    for route in routes:
        best = _best(route, orders)
        if best is None:
            if route is wish.route:
                blocked = _blocked(wish, task, stats, orders, least_tokens)
            continue
        names, spares = best
        if route is wish.route:
            reason, why = wish.reason, wish.cause
        elif blocked is not None:
            reason = blocked
            why = _BLOCKED_WORDS[blocked].format(engine=_MISSING_ENGINE[wish.route])
        else:
            reason, why = Reason.FALLBACK, f"For when {wish.route} is full"
        ranked.append(
            RankedRoute(
                route=route,
                backends=names,
                strategy=wish.strategy if route is _PARALLEL else None,
                options=options,
                reason=reason,
                why=_why(why, route, names, task),
                rule=wish.rule,
                canary=wish.canary,
                control=wish.control,
                spares=spares,
                stand_ins=stand_ins,
            )
        )
    return tuple(ranked)


def _why(cause: str, route: Route, names: tuple[str, ...], task: Task) -> str:
    held = " (holds the conversation)" if task.last_backend in names else ""
    return f"{cause}: {route} on {' and '.join(names)}{held}."


def _best(
    route: Route, orders: dict[BackendGroup, list[BackendStats]]
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]] | None:
    """Names the best backend of each of a route's groups, and others; None: a group has none."""
    names: tuple[str, ...] = ()
    spares: tuple[tuple[str, ...], ...] = ()
    for group in route.groups:
        order = orders[group]
        if not order:
            return None
        names += (order[0].info.name,)
        others = order[1 : 1 + MAX_SPARES]
        spares += (tuple([each.info.name for each in others]) if others else (),)
    return names, spares


def _stand_ins(
    orders: dict[BackendGroup, list[BackendStats]], *, stays_deep: bool
) -> tuple[str, ...]:
    """Names the backends that may go on with an answer, whichever group it began in.

    A route that the client hints at says where an answer begins: that it ends is worth more. The
    security rule binds all of it.
    """
    groups = ("deep",) if stays_deep else _GROUPS
    return tuple([stats.info.name for group in groups for stats in orders[group][:MAX_SPARES]])


_BLOCKED_WORDS: dict[Reason, str] = {
    Reason.ACCESS: "The tenant has no access to {engine}",
    Reason.IMAGES: "Images or files cannot go to {engine}",
    Reason.WINDOW: "The context does not fit {engine}",
    Reason.FALLBACK: "At the moment no task can go to {engine}",
}
_MISSING_ENGINE = {
    Route.FAST: "the fast engine",
    Route.DEEP: "the deep engine",
    Route.PARALLEL: "one of the two engines",
}


def _blocked(
    wish: _Wish,
    task: Task,
    stats: Sequence[BackendStats],
    orders: dict[BackendGroup, list[BackendStats]],
    least_tokens: int,
) -> Reason:
    """Returns why the wished route cannot be: its missing groups' least fundamental obstacle."""
    found = [
        obstacle_to(s, task, least_tokens)
        for s in stats
        if s.info.group in wish.route.groups and not orders[s.info.group]
    ]
    has_access = all(group in task.tenant.limits for group in wish.route.groups)
    other = Reason.FALLBACK if has_access else Reason.ACCESS
    obstacles = (Reason.FALLBACK, Reason.WINDOW, Reason.IMAGES)
    return next((reason for reason in obstacles if reason in found), other)


def _refusal(wish: _Wish, task: Task, stats: Sequence[BackendStats]) -> Refusal:
    """Makes the error for a task that no backend can serve."""
    if not wish.bound:
        return unserved(task, stats, "any engine this key may use", wish.cause)
    served = [each for each in stats if each.info.group in wish.route.groups]
    return unserved(task, served, f"route {wish.route.value!r}", wish.cause)
