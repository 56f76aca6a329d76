"""Says what is left of a task's budgets, as clients and admins see it."""

from collections.abc import Iterable

import msgspec

from router.money.prices import NUSD
from router.pools.budgets import WINDOWS, AccountBalance, Scope, Window


class BudgetUse(msgspec.Struct, frozen=True, omit_defaults=True):
    """Says what was spent of one budget before this task."""

    scope: Scope  # whose budget it is: the tenant's, its key's or its run's
    window: Window  # what it is of: the UTC day, the month, or the whole run
    used_usd: float  # spent by tasks that have ended
    held_usd: float  # reserved by tasks that run, this one included
    soft_usd: float | None = None  # a warning is given from here on
    hard_usd: float | None = None  # no task begins that could exceed it
    over_soft: bool = False  # whether the soft limit is spent
    renews_s: float | None = None  # seconds until it begins anew; a run's never does


def budget_uses(accounts: Iterable[AccountBalance]) -> tuple[BudgetUse, ...]:
    """Lists the budgets of a task."""
    return tuple(
        use_of(balance, window)
        for balance in accounts
        for window in range(len(WINDOWS))
        if balance.account.soft[window] >= 0 or balance.hard[window] >= 0
    )


def use_of(balance: AccountBalance, window: int) -> BudgetUse:
    """Returns what is left of one window of an account."""
    soft, hard, spent = balance.account.soft[window], balance.hard[window], balance.spent[window]
    return BudgetUse(
        scope=balance.scope,
        window=WINDOWS[window],
        used_usd=spent / NUSD,
        held_usd=balance.held / NUSD,
        soft_usd=None if soft < 0 else soft / NUSD,
        hard_usd=None if hard < 0 else hard / NUSD,
        over_soft=0 <= soft <= spent,
        renews_s=balance.renews_ms[window] / 1e3 if window < len(balance.renews_ms) else None,
    )
