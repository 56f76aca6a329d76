"""`/admin/budgets` shows what was spent of a tenant's budgets, and raises a run's.

This is an edge.
"""

from typing import Annotated, Any

import msgspec
from litestar import get, put
from litestar.params import FromQuery, JSONBody
from msgspec import Meta

from gateway.admin.guard import budget_warnings, no_tenant, write_records
from gateway.config.budgets import Usd
from gateway.config.tenants import for_key
from gateway.http.services import services_of
from gateway.http.streams import AnyRequest
from gateway.wire.errors import ProtocolError
from router.classify.task import Tenant, for_run, run_name
from router.money.prices import NUSD
from router.pools.budget_use import BudgetUse, budget_uses


class BudgetView(msgspec.Struct, frozen=True, kw_only=True):
    """Shows what was spent of the budgets that a task of this tenant, key and run meets.

    Only tasks that began while there was a budget are counted, not what the day cost before.
    """

    tenant: str
    key: str | None
    run: str | None
    budgets: tuple[BudgetUse, ...]
    warnings: tuple[str, ...]  # of models that they do not count


class RunBudget(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Sets a run's own hard limit."""

    tenant: str
    run: Annotated[str, Meta(min_length=1, max_length=512)]  # as `metadata.run` names it
    hard_usd: Usd | None = None  # null: as configured again


@get("/budgets")
async def get_budgets(
    request: AnyRequest,
    tenant: FromQuery[str],
    key: FromQuery[str | None] = None,
    run: FromQuery[str | None] = None,
) -> BudgetView:
    """Shows what was spent of a tenant's budgets, of one of its keys' and of one of its runs'."""
    if key is not None:
        _check_key(request, tenant, key)
    return await _view(request, _find(request, tenant), key, run)


@put("/budgets/run")
async def set_run_budget(request: AnyRequest, data: JSONBody[RunBudget]) -> BudgetView:
    """Raise what one run may spend, so that it goes on; from its next task on."""
    found = _find(request, data.tenant)
    if found.run_account is None:
        message = (
            f"Runs of tenant '{data.tenant}' have no budget to raise. Set one first: `budgets.run` "
            "of the tenant, or of its tier."
        )
        raise ProtocolError("conflict", message)
    limit = -1 if data.hard_usd is None else round(data.hard_usd * NUSD)
    before = await _view(request, found, None, data.run)
    pools = services_of(request).gw.pools
    await pools.raise_run(found.id, f"r.{run_name(data.run)}", limit)
    after = await _view(request, found, None, data.run)
    subject = f"{found.id}/{run_name(data.run)}"
    change = {"before": _hard_of_run(before), "after": _hard_of_run(after)}
    await write_records(request, "budgets.run", subject, {}, **change)
    return after


HANDLERS: list[Any] = [get_budgets, set_run_budget]


def _find(request: AnyRequest, tenant_id: str) -> Tenant:
    tenant = services_of(request).access.keys.tenant_view.tenant(tenant_id)
    if tenant is None:
        raise no_tenant(request, tenant_id)
    return tenant


def _check_key(request: AnyRequest, tenant_id: str, key_id: str) -> None:
    """Raises `ProtocolError` for a key that neither was made for a tenant nor is configured."""
    services = services_of(request)
    made = {key.id for key in services.access.keys.tenant_view.keys_of(tenant_id)}
    if key_id in made or services.access.keys.is_configured_key(tenant_id, key_id):
        return
    message = (
        f"Tenant '{tenant_id[:80]}' has no key '{key_id[:80]}'. `lanewise keys list` has the ids "
        "of its keys; configured ones are config-1, config-2 in their order."
    )
    raise ProtocolError("not_found", message, param="key")


async def _view(
    request: AnyRequest, tenant: Tenant, key: str | None, run: str | None
) -> BudgetView:
    named = for_run(tenant if key is None else for_key(tenant, key), run)
    balances = await services_of(request).gw.pools.accounts(tenant.id, named.accounts)
    return BudgetView(
        tenant=tenant.id,
        key=key,
        run=run,
        budgets=budget_uses(balances),
        warnings=budget_warnings(request, tenant),
    )


def _hard_of_run(view: BudgetView) -> dict[str, float | None]:
    """Returns a run's hard limit, as the audit shows it."""
    limits = [use.hard_usd for use in view.budgets if use.window == "run"]
    return {"hard_usd": limits[0] if limits else None}
