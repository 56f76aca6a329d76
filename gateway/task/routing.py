"""Builds the `routing` field of a response: where it ran and why, for people and consoles.

This is an edge.
"""

from collections.abc import Collection, Mapping

import msgspec

from backends.contract import BackendInfo, Usage
from gateway.core.gateway import Gateway
from gateway.core.job import Job
from gateway.core.spending import bill
from gateway.run.branch_starter import Failover
from gateway.run.continuation import Continued
from gateway.run.dispatch import RunOutcome
from gateway.task.context_usage import context_use
from gateway.task.stages import RunningTask, WarmingTask
from gateway.wire.output_items import usage_by_name
from gateway.wire.routing import (
    RoutedBackend,
    RoutedClass,
    RoutedContinuation,
    RoutedCost,
    RoutedFailover,
    Routing,
    pool_balances,
)
from router.classify.task import Task
from router.decide.decision import RouteDecision
from router.money.prices import NUSD, Bill, total_nusd
from router.pools.budget_use import budget_uses
from router.strategies.table import RECORDS


def decided_routing(
    task: Task, decision: RouteDecision, infos: Mapping[str, BackendInfo]
) -> Routing:
    """Builds `routing` from a decision."""
    chosen, task_class, holder = decision.chosen, decision.task_class, task.last_backend
    assert chosen is not None
    names = chosen.backends
    shown: list[RoutedBackend] = []
    windows: list[int] = []
    for info in map(infos.__getitem__, names):
        routed = RoutedBackend(info.name, info.group, info.model, info.simulated, info.speed_basis)
        shown.append(routed)
        windows.append(info.window_tokens)
    return Routing(
        route=chosen.route,
        strategy=chosen.strategy,
        backends=tuple(shown),
        task_class=RoutedClass(
            task_class.by_words,
            round(task_class.p_deep * 1e4) / 1e4,  # a third of the time of `round(..., 4)`
            round(task_class.p_security * 1e4) / 1e4,
            task_class.signals,
        ),
        reason=chosen.reason,
        why=chosen.why,
        policy_version=decision.policy_version,
        pools=pool_balances(decision.balances, chosen.route.groups),
        ratelimit_mode=decision.mode,
        context=context_use(task, 0, min(windows)),
        budgets=budget_uses(decision.accounts) if decision.accounts else (),
        moved_from=None if holder is None or holder in names else holder,
    )


def running_routing(gw: Gateway, running: RunningTask) -> Routing:
    """Builds `routing` of a run under way, with what has happened since the decision."""
    if not _has_changed(running):
        return decided_routing(running.task, running.admitted.decision, gw.infos)
    run, summary = running.run, running.summary
    shows = running.admitted.chosen.record.shows
    return msgspec.structs.replace(
        decided_routing(running.task, running.decision, gw.infos),
        failovers=tuple([_failover(each) for each in run.failovers]),
        continued=tuple([_continuation(each) for each in run.continued]),
        delegations=run.delegations() if "delegations" in shows else None,
        compaction=None if summary is None else summary.view(),
    )


def _has_changed(running: RunningTask) -> bool:
    """Says whether `routing` may have more by now than what the decision says."""
    run, strategy = running.run, running.admitted.chosen.strategy
    if run.failovers or run.continued or running.summary is not None:
        return True
    return strategy is not None and "delegations" in RECORDS[strategy].shows


def ended_routing(
    gw: Gateway,
    job: Job,
    running: RunningTask,
    begun: Routing | None = None,
    outcome: RunOutcome | None = None,
    answer: Usage | None = None,
) -> Routing:
    """Builds the final `routing`, with each backend's usage; makes the task's bill.

    Args:
        begun: The first `routing`, which is reused if nothing has changed.
        outcome: The answer's; None if there was to be no answer.
        answer: The conversation's usage, if it was asked for already.
    """
    run, chosen = running.run, running.admitted.chosen
    if begun is None or _has_changed(running):
        begun = running_routing(gw, running)
    context_tokens = running.task.request.num_prompt_tokens
    answer = answer or run.branches.answer_usage(context_tokens)
    used = running.usage_by_backend()
    job.bill = bill(gw, job.parsed.hints, running.used())
    errors = () if outcome is None else outcome.errors
    ended = msgspec.structs.replace(
        begun,
        context=context_use(running.task, answer.num_output_tokens, begun.context.window_tokens),
        usage=usage_by_name(used),
        cost=cost_of(gw, job.bill),
        energy_joules=energy_joules(used.values()),
        answered_by=None if outcome is None else run.shown.answered_by,
        # Variations fail for one reason.
        errors=tuple(dict.fromkeys(map(str, errors))) if errors else (),
    )
    if outcome is None or chosen.strategy is None:
        return ended
    return msgspec.structs.replace(
        ended,
        why=f"{begun.why} {run.explanation}" if run.explanation else begun.why,
        generations=run.branches.generations(),
        variations=run.branches.variations() if "variations" in chosen.record.shows else None,
    )


def warmed_routing(gw: Gateway, job: Job, begun: Routing, warming: WarmingTask) -> Routing:
    """Builds the final `routing` of a warm-up: what it computed is charged like other input."""
    job.bill = bill(gw, job.parsed.hints, warming.used())
    return msgspec.structs.replace(
        begun,
        warm=warming.warming.view(),
        usage=usage_by_name(warming.usage_by_backend()),
        cost=cost_of(gw, job.bill),
    )


def cost_of(gw: Gateway, billed: Bill) -> RoutedCost | None:
    """Returns a bill's sum; None unless each backend's model has a price."""
    if gw.prices.is_empty or None in [each.nusd for each in billed]:
        return None
    return RoutedCost(total_nusd(billed) / NUSD, "USD")


def energy_joules(usages: Collection[Usage]) -> float | None:
    """Returns what engines took for these usages; None where it is not known of one that worked."""
    total_uj = 0
    for usage in usages:
        if usage.num_output_tokens and not usage.energy_uj:
            return None
        total_uj += usage.energy_uj
    return round(total_uj / 1e6, 3) if total_uj else None


def _failover(each: Failover) -> RoutedFailover:
    return RoutedFailover(each.error.backend, each.to, str(each.error))


def _continuation(each: Continued) -> RoutedContinuation:
    begun_on, why = each.error.backend, str(each.error)
    return RoutedContinuation(begun_on, each.to, each.num_chars, each.num_tokens, each.reason, why)
