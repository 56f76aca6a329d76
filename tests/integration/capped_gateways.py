"""Offers gateways that share ceilings, and tasks of many tenants at them."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from backends.contract import BackendGroup
from router.classify.task import GroupLimits, Tenant
from router.pools.capped_pools import CappedPools
from router.pools.ceiling_leases import CeilingLeases
from router.pools.failover_pools import FailoverPools
from router.pools.pools import Demand, Reservation
from router.pools.redis_pools import RedisPools

MANY = GroupLimits(requests_per_min=10**6, tokens_per_min=10**9, max_concurrent=10**4)

FAST, DEEP = (Demand("fast", 10),), (Demand("deep", 10),)

BUDGET_US = 20_000_000


def tenant(name: str) -> Tenant:
    return Tenant(id=name, tier="any", limits={"fast": MANY, "deep": MANY})


class CappedGateway(CappedPools):
    """Holds one gateway's pools, and what stands behind them."""

    def __init__(self, failover: FailoverPools, leases: CeilingLeases) -> None:
        super().__init__(failover, leases)
        self.failover = failover
        self.leases = leases

    async def close(self) -> None:
        await self.leases.close()
        await self.failover.close()


@asynccontextmanager
async def gateways(
    url: str, number: int, ceilings: Mapping[BackendGroup, int]
) -> AsyncIterator[list[CappedGateway]]:
    """Gives so many, each with connections of its own."""
    loop = asyncio.get_running_loop()
    made = []
    for index in range(number):
        failover = FailoverPools(
            RedisPools(url, budget_us=BUDGET_US), clock_us=lambda: int(loop.time() * 1e6)
        )
        leases = CeilingLeases(url, f"gateway-{index}", ceilings, budget_us=BUDGET_US)
        made.append(CappedGateway(failover, leases))
    for pools in made:
        await pools.failover.greet()
    try:
        yield made
    finally:
        for pools in made:
            await pools.close()


class Running:
    """Counts what runs, over all gateways, and the most that ever did."""

    def __init__(self) -> None:
        self.now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()

    def begin(self, reservation: Reservation) -> None:
        for demand in reservation.demands:
            self.now[demand.group] += 1
            self.most[demand.group] = max(self.most[demand.group], self.now[demand.group])

    def end(self, reservation: Reservation) -> None:
        for demand in reservation.demands:
            self.now[demand.group] -= 1


async def many_tasks(made: list[CappedGateway], num_tasks: int, seed: int) -> tuple[Running, int]:
    """Runs tasks of many tenants, at gateways by chance; returns how many were refused."""
    chance, seen, num_refused = random.Random(seed), Running(), 0

    async def one(number: int) -> None:
        nonlocal num_refused
        pools = made[int(chance.random() ** 2 * len(made))]  # the first has most
        ranked = chance.choice([[FAST], [DEEP, FAST], [FAST + DEEP, FAST], [FAST + DEEP]])
        grant = await pools.reserve_first(tenant(f"t{number % 30}"), f"task-{number}", ranked)
        if grant.reservation is None:
            num_refused += 1
            assert grant.limited_by is not None
            return
        assert grant.index is not None
        assert grant.reservation.demands == ranked[grant.index]
        seen.begin(grant.reservation)
        for _ in range(chance.randrange(20)):
            await asyncio.sleep(0)
        seen.end(grant.reservation)
        await pools.settle(grant.reservation, {})

    async def ticks() -> None:
        while True:
            await asyncio.sleep(0.01)
            await asyncio.gather(*(pools.leases.tick() for pools in made))

    ticking = asyncio.create_task(ticks())
    for start in range(0, num_tasks, 40):
        await asyncio.gather(*(one(number) for number in range(start, start + 40)))
    ticking.cancel()
    await asyncio.gather(ticking, return_exceptions=True)
    return seen, num_refused
