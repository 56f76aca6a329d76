"""Answers `GET /v1/usage`: a tenant's own pools, and what it has spent today. This is an edge."""

import asyncio
import contextlib
from datetime import UTC, datetime
from typing import Any

from redis.exceptions import RedisError

from gateway.core.gateway import Gateway
from gateway.store.ledger import Ledger
from gateway.store.ledger_entry import DAY_S
from gateway.wire.routing import pool_balances
from router.classify.task import Tenant
from router.money.prices import NUSD
from router.pools.redis_pools import PoolsUnavailable

FLUSH_TIMEOUT_S = 0.5  # for what this process has not sent yet
KINDS = ("tasks", "input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens")


async def usage_view(gw: Gateway, ledger: Ledger, tenant: Tenant) -> dict[str, Any]:
    """Makes the answer; while Redis is away it is `degraded` and shows no pools."""
    now_s = gw.wall_s()
    midnight_s = now_s - now_s % DAY_S
    view: dict[str, Any] = {
        "object": "usage",
        "tenant": tenant.id,
        "tier": tenant.tier,
        "degraded": gw.pools.mode != "redis",
        "pools": None,
        "today": None,
    }
    try:
        view["pools"] = pool_balances(await gw.pools.balances(tenant))
        spent = await _spent(ledger, tenant.id, now_s)
    except (PoolsUnavailable, RedisError, OSError):
        return view | {"degraded": True}
    view["today"] = {
        "date": datetime.fromtimestamp(midnight_s, UTC).strftime("%Y-%m-%d"),
        "ends_at": midnight_s + DAY_S,
        **{kind: spent.get(kind, 0) for kind in KINDS},
        "cost_units": spent.get("cost_units", 0),
        "cost_usd": spent.get("cost_nusd", 0) / NUSD,
        "energy_joules": spent.get("energy_uj", 0) / 1e6,
        "groups": {
            group: {kind: spent.get(f"{group}.{kind}", 0) for kind in ("tokens", "cost_units")}
            for group in tenant.limits
        },
    }
    return view


async def _spent(ledger: Ledger, tenant_id: str, now_s: int) -> dict[str, int]:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(FLUSH_TIMEOUT_S):
            await ledger.flush()
    return await ledger.spent(tenant_id, now_s)
