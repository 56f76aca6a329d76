"""Serves everything below `/admin`, with keys of its own, in `/schema`. This is an edge."""

import asyncio
from typing import Any

import msgspec
from litestar import Router, get
from litestar.params import FromPath, FromQuery

from gateway.access.admin_keys import Admin
from gateway.admin import audit as audit_admin
from gateway.admin import backends as backend_admin
from gateway.admin import backtest as backtest_admin
from gateway.admin import budgets as budget_admin
from gateway.admin import decisions as decision_admin
from gateway.admin import events as event_admin
from gateway.admin import keys as key_admin
from gateway.admin import learning as learning_admin
from gateway.admin import policies as policy_admin
from gateway.admin import tenants as tenant_admin
from gateway.admin import usage as usage_admin
from gateway.admin.guard import admin_of, no_tenant, require_admin
from gateway.admin.store_errors import STORE_ERRORS
from gateway.config.version import VERSION
from gateway.http.services import Services, services_of
from gateway.http.streams import AnyRequest
from gateway.wire.errors import ProtocolError
from router.pools.pools import KEY_UNITS, Balance

MAX_KEYS_SHOWN = 100


class HealthView(msgspec.Struct, frozen=True, kw_only=True):
    """Shows how the gateway is now."""

    version: str
    workers: int = 1  # that answer
    draining: bool
    pools_reachable: bool
    tasks_running: int
    policy: str  # the version in force


class PoolView(msgspec.Struct, frozen=True, kw_only=True):
    """Shows one of a tenant's pools, or of a key's, as it is now, in its own unit."""

    group: str
    unit: str  # of a key's: `key_requests` and so on
    key: str | None = None  # the key's id; null: the tenant's
    limit: int
    used: int  # of the limit
    remaining: int
    reset_s: float  # until it is full, if nothing more is taken


def health_of(services: Services) -> HealthView:
    """Returns the health of this process."""
    gw = services.gw
    return HealthView(
        version=VERSION,
        draining=gw.state.draining,
        pools_reachable=gw.pools.mode == "redis",
        tasks_running=gw.state.num_tasks,
        policy=gw.state.policy.version,
    )


@get("/health")
async def get_admin_health(request: AnyRequest) -> HealthView:
    """Says how this gateway is: all of its workers together."""
    services = services_of(request)
    if services.fleet is None:
        return health_of(services)
    answers = await services.fleet.gather("health")
    views = [msgspec.json.decode(view, type=HealthView) for view in answers]
    return HealthView(
        version=VERSION,
        workers=len(views),
        draining=all(view.draining for view in views),
        pools_reachable=all(view.pools_reachable for view in views),
        tasks_running=sum(view.tasks_running for view in views),
        policy=services.gw.state.policy.version,
    )


@get("/me")
async def get_me(request: AnyRequest) -> Admin:
    """Says whose key this is, and whether it may only read."""
    return admin_of(request)


@get("/pools/{tenant_id:str}")
async def get_pools(
    request: AnyRequest, tenant_id: FromPath[str], key: FromQuery[str | None] = None
) -> list[PoolView]:
    """Shows a tenant's pools, then those of its keys that have own limits: of one, or of 100."""
    services = services_of(request)
    keys, pools = services.access.keys, services.gw.pools
    tenant_view = keys.tenant_view
    tenant = tenant_view.tenant(tenant_id)
    if tenant is None:
        raise no_tenant(request, tenant_id)
    limited = keys.limited_keys(tenant_id, services.gw.wall_s())
    shown = [one for one in limited if key in (None, one.key_id)][:MAX_KEYS_SHOWN]
    if key is not None and not shown:
        message = f"Tenant '{tenant_id}' has no valid key '{key[:80]}' with limits of its own."
        raise ProtocolError("not_found", message, param="key")
    own, *of_keys = await asyncio.gather(*map(pools.balances, (tenant, *shown)))
    return [_pool_view(one) for one in own] + [
        _pool_view(one, holder.key_id)
        for holder, balances in zip(shown, of_keys, strict=True)
        for one in balances
        if one.unit in KEY_UNITS
    ]


def _pool_view(balance: Balance, key_id: str | None = None) -> PoolView:
    return PoolView(
        group=balance.group,
        unit=balance.unit,
        key=key_id,
        limit=balance.limit,
        used=max(0, balance.limit - balance.remaining),
        remaining=balance.remaining,
        reset_s=balance.reset_us / 1e6,
    )


HANDLERS: list[Any] = [
    *(get_admin_health, get_me, get_pools),
    *backend_admin.HANDLERS,
    *key_admin.HANDLERS,
    *tenant_admin.HANDLERS,
    *usage_admin.HANDLERS,
    *budget_admin.HANDLERS,
    *learning_admin.HANDLERS,
    *policy_admin.HANDLERS,
    *backtest_admin.HANDLERS,
    *decision_admin.HANDLERS,
    *audit_admin.HANDLERS,
    *event_admin.HANDLERS,
]

ADMIN = Router(
    path="/admin",
    guards=[require_admin],
    route_handlers=HANDLERS,
    exception_handlers=STORE_ERRORS,
    tags=["admin"],
    security=[{"AdminKey": []}],
)
