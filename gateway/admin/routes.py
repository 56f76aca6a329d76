"""The admin API: everything below `/admin`, with keys of its own, in `/schema`. This is an edge."""

from typing import Any

import msgspec
from litestar import Router, get

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
from gateway.admin.guard import admin_of, require_admin, services_of
from gateway.admin.store_errors import STORE_ERRORS
from gateway.config.version import VERSION
from gateway.http.services import Services
from gateway.http.streams import AnyRequest
from gateway.wire.errors import ProtocolError


class HealthView(msgspec.Struct, frozen=True, kw_only=True):
    """The gateway, now."""

    version: str
    workers: int = 1  # that answer
    draining: bool
    pools_reachable: bool
    tasks_running: int
    policy: str  # the version in force


class PoolView(msgspec.Struct, frozen=True, kw_only=True):
    """One of a tenant's pools, now, in its own unit."""

    group: str
    unit: str
    limit: int
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
    """How this gateway is: all of its workers together."""
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
    """Whose key this is, and whether it may only read."""
    return admin_of(request)


@get("/pools/{tenant_id:str}")
async def get_pools(request: AnyRequest, tenant_id: str) -> list[PoolView]:
    """A tenant's pools."""
    services = services_of(request)
    tenant_view = services.access.keys.tenant_view
    tenant = tenant_view.tenant(tenant_id)
    if tenant is None:
        known = ", ".join(list(tenant_view.tenants)[:20])
        raise ProtocolError("not_found", f"No tenant '{tenant_id[:80]}'. Known tenants: {known}.")
    balances = await services.gw.pools.balances(tenant)
    return [
        PoolView(
            group=one.group,
            unit=one.unit,
            limit=one.limit,
            remaining=one.remaining,
            reset_s=one.reset_us / 1e6,
        )
        for one in balances
    ]


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
