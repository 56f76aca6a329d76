"""Tests what a gateway remembers of budgets for an outage: little of runs, all of a tenant."""

from router.classify.task import Account, Tenant
from router.pools.budgets import AccountBalance
from router.pools.local_budgets import MAX_KNOWN, LocalBudgets
from router.pools.pools import Demand

HARD = (100, -1, -1)
OF_TENANT = Account("t", HARD)
NOW_MS = 1_000_000
RENEWS_MS = (86_400_000, 86_400_000)
ASKED = [(0, (Demand("fast", 1, most_nusd=10),))]


def tenant_of(run: int) -> Tenant:
    return Tenant(id="acme", tier="any", limits={}, accounts=(OF_TENANT, Account(f"r.{run}", HARD)))


def spent_up(run: int) -> list[AccountBalance]:
    spent = (AccountBalance(OF_TENANT, 0, (100, 100, 100), -1, RENEWS_MS),)
    fresh = (AccountBalance(Account(f"r.{run}", HARD), 0, (0, 0, 0), -1, RENEWS_MS),)
    return [*spent, *fresh]


def test_what_a_tenant_has_spent_is_known_whatever_runs_it_has() -> None:
    budgets = LocalBudgets()
    for run in range(MAX_KNOWN + 2):
        budgets.note("acme", spent_up(run), NOW_MS)
        _, refusal = budgets.affordable(tenant_of(run), ASKED, 1, NOW_MS)
        assert refusal is not None, f"after run {run}"


def test_an_outage_remembers_a_bounded_number_of_runs() -> None:
    budgets = LocalBudgets()
    for run in range(MAX_KNOWN + 10):
        demands, _ = budgets.affordable(tenant_of(run), ASKED, 1, NOW_MS)
        assert demands == ASKED
    assert len(budgets._tenants["acme"].here.states) <= MAX_KNOWN
