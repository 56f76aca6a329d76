"""Answers a scrape: brings up to date what metrics say of keys, pools and Redis.

This is an edge.
"""

import asyncio

from gateway.access.auth import Keys
from gateway.access.reports import AccessReport
from gateway.core.gateway import Gateway
from gateway.http.services import Services
from gateway.metrics.labels import LIMIT_NAMES
from router.pools.redis_pools import PoolsUnavailable

POOLS_TIMEOUT_S = 0.5  # for all tenants together; then their last levels stand


async def scraped(services: Services) -> bytes:
    """Returns all metrics of this process, as text."""
    await _bring_up_to_date(services)
    return await services.gw.metrics.render()


async def snapshot(services: Services) -> bytes:
    """Returns the same, to be added up with other workers'."""
    await _bring_up_to_date(services)
    return await services.gw.metrics.snapshot()


async def _bring_up_to_date(services: Services) -> None:
    """Fills in the reports; while Redis is away, pools keep the levels last read."""
    keys, reports = services.access.keys, services.gw.metrics.reports
    reports.ledger = services.ledger.report
    reports.access = AccessReport(keys.num_refused, services.admin_keys.num_refused)
    reports.num_redis_restarts = services.num_redis_restarts()
    try:
        async with asyncio.timeout(POOLS_TIMEOUT_S):
            reports.levels = await _levels(services.gw, keys)
    except (PoolsUnavailable, OSError, TimeoutError):
        pass


async def _levels(gw: Gateway, keys: Keys) -> dict[tuple[str, str, str], tuple[float, float]]:
    """Reads the pools of the tenants that are shown, in calls that go out together."""
    view = keys.tenant_view
    tenants = [tenant for each in gw.metrics.tenants.shown if (tenant := view.tenant(each))]
    read = await asyncio.gather(*(gw.pools.balances(tenant) for tenant in tenants))
    return {
        (tenant.id, each.group, LIMIT_NAMES[each.unit]): (each.limit - each.remaining, each.limit)
        for tenant, balances in zip(tenants, read, strict=True)
        for each in balances
    }
