"""Budgets in money, as people write them: of a tenant, of each of its keys, and of each run."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from router.classify.task import Account, Tenant
from router.money.prices import NUSD, in_digits

MAX_USD = 1_000_000

BudgetName = Literal["day", "month", "key_day", "key_month", "run"]
Usd = Annotated[float, Meta(ge=0, le=MAX_USD)]


class Budget(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Says what may be spent, in US dollars."""

    soft_usd: Usd | None = None  # is told when it is spent, and limits nothing
    hard_usd: Usd | None = None  # no task begins that could exceed it


Budgets = dict[BudgetName, Budget]


def with_budgets(tenant: Tenant, budgets: Mapping[BudgetName, Budget]) -> Tenant:
    """Returns a tenant with the accounts that its budgets need."""
    own = _account("t", budgets.get("day"), budgets.get("month"), None)
    return msgspec.structs.replace(
        tenant,
        accounts=() if own is None else (own,),
        key_account=_account("k", budgets.get("key_day"), budgets.get("key_month"), None),
        run_account=_account("r", None, None, budgets.get("run")),
    )


def idle_softs(budgets: Mapping[Any, Budget]) -> Iterator[str]:
    """Says which soft limits are never told, since the hard one refuses tasks before."""
    for name, budget in budgets.items():
        soft, hard = budget.soft_usd, budget.hard_usd
        if soft is not None and hard is not None and soft > hard:
            yield (
                f"budget '{name}' has soft = {in_digits(soft)} above hard = {in_digits(hard)}: "
                "tasks are refused before it is told. Set it below."
            )


def _account(name: str, *windows: Budget | None) -> Account | None:
    if not any(windows):
        return None
    found = [Budget() if budget is None else budget for budget in windows]
    hard = [_nusd(budget.hard_usd) for budget in found]
    soft = [_nusd(budget.soft_usd) for budget in found]
    return Account(name, (hard[0], hard[1], hard[2]), (soft[0], soft[1], soft[2]))


def _nusd(usd: float | None) -> int:
    return -1 if usd is None else round(usd * NUSD)
