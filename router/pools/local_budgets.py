"""Judges budgets while Redis is away: by what it last said was left, an equal part of half of it.

Half, and divided by the gateways, as `local_pools` divides limits. An account that Redis has not
spoken of counts as unspent. What ends meanwhile is charged to Redis when it is back.
"""

from collections.abc import Sequence
from typing import Any

from router.classify.task import NO_LIMITS, Account, Tenant
from router.pools.bucket import DAY_MS
from router.pools.budgets import AccountBalance, Purse, month_left_ms, month_of
from router.pools.pools import Grant, Ranked, most_nusd

PARTS = 2  # of limits and of what is left of budgets, half is used
MAX_TENANTS = 10_000  # remembered; the first to come is forgotten first
MAX_KNOWN = 1_000  # accounts of a tenant; the first of its runs is forgotten first


class _TenantBudgets:
    def __init__(self) -> None:
        self.known: dict[str, tuple[AccountBalance, int]] = {}  # as Redis said on a day
        self.here = Purse()  # held and spent here since


class LocalBudgets:
    """Counts what this gateway takes from each account since Redis last spoke of it."""

    def __init__(self) -> None:
        self._tenants: dict[str, _TenantBudgets] = {}

    def note(self, tenant_id: str, accounts: Sequence[AccountBalance], now_ms: int) -> None:
        """Remembers what Redis said of a task's accounts."""
        budgets = self._of(tenant_id)
        for balance in accounts:
            name = balance.account.name
            budgets.known[name] = (balance, now_ms // DAY_MS)
            budgets.here.states.pop(name, None)
        _forget_runs(budgets.known)

    def hold(self, tenant_id: str, lease: str, now_ms: int) -> None:
        """Takes the money of a lease that was granted here."""
        self._of(tenant_id).here.hold(lease, now_ms)

    def settle(self, tenant_id: str, lease: str, nusd: int, now_ms: int) -> None:
        """Charges what a task that was granted here has spent."""
        self._of(tenant_id).here.settle(lease, nusd, now_ms)

    def affordable(
        self, tenant: Tenant, ranked: Ranked, num_gateways: int, now_ms: int
    ) -> tuple[Ranked, Grant | None]:
        """Returns the demands that this gateway's part affords; if none, the refusal."""
        budgets = self._of(tenant.id)
        parts = [_part(budgets, each, num_gateways, now_ms) for each in tenant.accounts]
        waits = [budgets.here.wait(parts, most_nusd(demands), now_ms) for _, demands in ranked]
        _forget_runs(budgets.here.states)
        broke = [wait for wait in waits if wait is not None]
        if len(broke) < len(waits):
            return [each for each, wait in zip(ranked, waits, strict=True) if wait is None], None
        wait_ms, account, window = min(broke)
        balances = tuple(_balance(budgets, each, now_ms) for each in tenant.accounts)
        over = (account, window)
        refusal = Grant(
            *(None, None, (), wait_ms * 1_000), mode="degraded", accounts=balances, over_budget=over
        )
        return ranked, refusal

    def _of(self, tenant_id: str) -> _TenantBudgets:
        budgets = self._tenants.get(tenant_id)
        if budgets is None:
            if len(self._tenants) >= MAX_TENANTS:
                del self._tenants[next(iter(self._tenants))]
            budgets = self._tenants[tenant_id] = _TenantBudgets()
        return budgets


def _forget_runs(accounts: dict[str, Any]) -> None:
    """Drops a tenant's first runs beyond `MAX_KNOWN` accounts; its own and its keys' stay."""
    while len(accounts) > MAX_KNOWN:
        run = next((name for name in accounts if name.startswith("r.")), None)
        if run is None:
            return
        del accounts[run]


def _at_last(budgets: _TenantBudgets, name: str, today: int) -> tuple[int, tuple[int, int, int]]:
    """Returns what was held and spent as Redis last said, without windows that are over."""
    found = budgets.known.get(name)
    if found is None:
        return 0, (0, 0, 0)
    balance, day = found
    spent_day, spent_month, spent = balance.spent
    if today > day:
        spent_day = 0
        if month_of(today) != month_of(day):
            spent_month = 0
    return balance.held, (spent_day, spent_month, spent)


def _part(budgets: _TenantBudgets, account: Account, num_gateways: int, now_ms: int) -> Account:
    held, spent = _at_last(budgets, account.name, now_ms // DAY_MS)
    found = budgets.known.get(account.name)
    hard = account.hard if found is None else found[0].hard
    most = [
        limit if limit < 0 else max(0, limit - used - held) // (PARTS * max(1, num_gateways))
        for limit, used in zip(hard, spent, strict=True)
    ]
    return Account(account.name, (most[0], most[1], most[2]), NO_LIMITS)


def _balance(budgets: _TenantBudgets, account: Account, now_ms: int) -> AccountBalance:
    day = now_ms // DAY_MS
    held, spent = _at_last(budgets, account.name, day)
    here = budgets.here.at(account.name, now_ms)
    found = budgets.known.get(account.name)
    sums = [before + here.of_window(window) for window, before in enumerate(spent)]
    return AccountBalance(
        account,
        held + here.held,
        (sums[0], sums[1], sums[2]),
        -1 if found is None else found[0].raised,
        ((day + 1) * DAY_MS - now_ms, month_left_ms(day, now_ms)),
    )
