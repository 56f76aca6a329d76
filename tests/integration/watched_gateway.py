"""Offers the pools of one gateway, watched as a gateway watches them."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from backends.drive.driver import monotonic_us
from router.classify.task import GroupLimits, Tenant
from router.pools.failover_pools import FailoverPools
from router.pools.pools import BUDGET_US, Demand, Reservation
from router.pools.redis_pools import PoolsUnavailable, RedisPools
from router.redis.heartbeat import Heartbeat
from router.redis.servers import RedisServers
from router.redis.url import parse_redis_url

LIMITS = GroupLimits(requests_per_min=6_000, tokens_per_min=1_000_000, max_concurrent=40)
TENANT = Tenant(id="acme", tier="pro", limits={"fast": LIMITS, "deep": LIMITS})
FAST = [(Demand(group="fast", tokens=1_000),)]
PATIENCE_S = 60.0  # bounds a hang; never decides whether something was fast enough


class Gateway:
    """Holds the pools of one gateway, watched as a gateway watches them."""

    def __init__(self, url: str, name: str, budget_us: int) -> None:
        target = parse_redis_url(url)
        servers = RedisServers(target, budget_us=budget_us, away=PoolsUnavailable)
        self.heartbeat = Heartbeat(servers, name)
        self.pools = FailoverPools(
            RedisPools(url, budget_us=budget_us),
            clock_us=monotonic_us,
            beat=self.heartbeat.beat,
        )

    async def until(self, condition: Callable[[], bool]) -> None:
        """Watch Redis until something is so."""
        give_up_s = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < give_up_s
            await asyncio.sleep(0.01)
            await self.pools.check()

    async def until_away(self) -> None:
        await self.until(lambda: self.pools.mode == "degraded")

    async def until_back(self) -> None:
        await self.until(lambda: self.pools.mode == "redis")

    async def until_settled(self) -> None:
        """Waits until a later look has charged what a busy machine was too slow for."""
        await self.until(lambda: self.pools.mode == "redis" and not self.pools.report.num_unsettled)

    async def reserve(self, name: str, tenant: Tenant = TENANT) -> Reservation:
        grant = await self.pools.reserve_first(tenant, name, FAST)
        assert grant.reservation is not None
        return grant.reservation

    async def close(self) -> None:
        await self.pools.close()
        await self.heartbeat.stop()


@asynccontextmanager
async def gateway(
    url: str, name: str = "one", budget_us: int = BUDGET_US
) -> AsyncIterator[Gateway]:
    made = Gateway(url, name, budget_us)
    await made.pools.greet()
    try:
        yield made
    finally:
        await made.close()
