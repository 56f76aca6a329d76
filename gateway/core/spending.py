"""Computes what tasks cost in money: at most, before they run, and what they have cost.

This is an edge.
"""

from collections.abc import Iterable
from typing import Literal

from backends.contract import BackendGroup, Usage
from gateway.core.budget_answers import over_budget
from gateway.core.budget_posts import notice_of
from gateway.core.gateway import Gateway
from router.classify.task import Hints, Tenant
from router.money.prices import Bill, Terms, bill_of, total_nusd, unpriced
from router.pools.budgets import WINDOWS, AccountBalance
from router.pools.pools import Grant


def terms_of(hints: Hints) -> Terms:
    """Returns what a request asked for that its price depends on."""
    return Terms(hints.service_tier or "", hints.completion_window or "")


def most_nusd(gw: Gateway, terms: Terms, group: BackendGroup, usage: Usage) -> int:
    """Returns what a usage can cost on a group, whichever of its backends serves it."""
    infos = [info for info in gw.infos.values() if info.group == group]
    return gw.prices.most_nusd(infos, usage, gw.wall_s(), terms)


def bill(gw: Gateway, hints: Hints, used: Iterable[tuple[str, Usage]]) -> Bill:
    """Prices what generations of a request used, each with its backend."""
    if gw.prices.is_empty:
        return unpriced(used)
    return bill_of(gw.prices, gw.infos, used, gw.wall_s(), terms_of(hints))


def spent_nusd(gw: Gateway, hints: Hints, used: Iterable[tuple[str, Usage]]) -> int:
    """Returns what generations of a request cost; a model without a price costs nothing."""
    return total_nusd(bill(gw, hints, used))


def tell_budgets(gw: Gateway, tenant_id: str, balances: Iterable[AccountBalance]) -> None:
    """Counts and tells the budgets that were met first."""
    met = gw.metrics.counts["lanewise_budget_met_total"]
    for balance in balances:
        for window in range(len(WINDOWS)):
            kinds: tuple[tuple[Literal["soft", "hard"], bool], ...] = (
                ("soft", balance.soft_told[window]),
                ("hard", balance.hard_told[window]),
            )
            for kind, is_told in kinds:
                if is_told:
                    met[balance.scope, WINDOWS[window], kind].inc()
                    gw.tell_budget(notice_of(tenant_id, balance, window, kind))


def note_budgets(gw: Gateway, tenant: Tenant, grant: Grant) -> None:
    """Counts and tells the budgets that were met first, and those that refuse a task.

    Raises `ProtocolError` if a hard budget refused.
    """
    tell_budgets(gw, tenant.id, grant.accounts)
    if grant.over_budget is not None:
        index, window = grant.over_budget
        refused = gw.metrics.counts["lanewise_budget_refusals_total"]
        refused[grant.accounts[index].scope, WINDOWS[window]].inc()
        raise over_budget(grant)
