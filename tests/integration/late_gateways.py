"""Runs four gateways at five times a tenant's limits, over wires that are late now and then."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

from router.classify.task import GroupLimits, Tenant
from router.pools.failover_pools import FailoverPools
from router.pools.local_pools import MIN_UNANSWERED, local_limits
from router.pools.pools import Demand
from router.pools.redis_pools import PoolsUnavailable
from tests.integration.redis_fleet import Server, Wire
from tests.integration.watched_gateway import Gateway

NUM_GATEWAYS = 4
LIMITS = GroupLimits(requests_per_min=600, tokens_per_min=36_000, max_concurrent=20)
TENANT = Tenant(id="acme", tier="any", limits={"fast": LIMITS})
OFFERED_PER_S = 5 * LIMITS.requests_per_min / 60
TOKENS = (20, 100)  # of a task, from and to: the mean uses both pools up together
HOLD_S = 2.0  # a task's mean time: with what is offered, five times the places
LATE_SHARE = 1 / 40  # of the pieces each way, so that one round in twenty is late
LATE_S = 0.3  # six budgets

# A gateway's tasks of one tenant that no reply of Redis has granted: see docs/pools.md.
BOUND = max(MIN_UNANSWERED, local_limits(LIMITS, NUM_GATEWAYS).max_concurrent)


class Figures(NamedTuple):
    """Says what four gateways admitted in so many minutes, and what Redis still held afterwards."""

    minutes: float
    num_requests: int
    num_tokens: int
    most_at_once: int
    num_refused: int
    num_late: int  # pieces on the wires
    degraded_share: float  # of the gateways' time
    places_left: int  # taken 2 s after the last task

    @property
    def held(self) -> bool:
        """Returns whether nothing was beyond the limits and the documented bound."""
        beyond = NUM_GATEWAYS * BOUND
        return (
            self.num_requests <= LIMITS.requests_per_min * (1 + self.minutes) + beyond
            and self.num_tokens <= LIMITS.tokens_per_min * (1 + self.minutes) + beyond * TOKENS[1]
            and self.most_at_once <= LIMITS.max_concurrent + beyond
            and self.places_left == 0
        )

    def __str__(self) -> str:
        requests = LIMITS.requests_per_min * (1 + self.minutes)
        tokens = LIMITS.tokens_per_min * (1 + self.minutes)
        return (
            f"{self.num_requests} requests of {requests:.0f}, {self.num_tokens} tokens of "
            f"{tokens:.0f}, at most {self.most_at_once} of {LIMITS.max_concurrent} tasks at once "
            f"(bound: {BOUND} more a gateway), {self.num_refused} refused, {self.num_late} late "
            f"pieces, {self.degraded_share:.1%} of the time degraded, {self.places_left} places "
            "taken 2 s after the last task"
        )


class _Load:
    """Runs the tasks of all gateways, and keeps what they used."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.num_requests = self.num_tokens = self.num_refused = 0
        self.num_running = self.most_at_once = 0

    async def one(self, pools: FailoverPools, name: str) -> None:
        tokens = self.chance.randint(*TOKENS)
        try:
            grant = await pools.reserve_first(TENANT, name, [(Demand("fast", tokens),)])
        except PoolsUnavailable:
            grant = None
        if grant is None or grant.reservation is None:
            self.num_refused += 1
            return
        self.num_requests += 1
        self.num_tokens += tokens
        self.num_running += 1
        self.most_at_once = max(self.most_at_once, self.num_running)
        await asyncio.sleep(self.chance.expovariate(1 / HOLD_S))
        self.num_running -= 1
        await pools.settle(grant.reservation, {"fast": tokens})

    async def of(self, number: int, pools: FailoverPools, seconds: float) -> None:
        """Offers tasks to one gateway, some of whose clients leave while it asks."""
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + seconds
        tasks: list[asyncio.Task[None]] = []
        while loop.time() < ends_s:
            task = asyncio.create_task(self.one(pools, f"{number}-{len(tasks)}"))
            tasks.append(task)
            await asyncio.sleep(self.chance.expovariate(OFFERED_PER_S / NUM_GATEWAYS))
        await asyncio.gather(*tasks)


@asynccontextmanager
async def _watched(gateway: Gateway) -> AsyncIterator[list[bool]]:
    """Does what a gateway does periodically; returns its modes at each look."""
    pools, degraded = gateway.pools, []

    async def every(interval_s: Callable[[], float], act: Callable[[], Awaitable[object]]) -> None:
        while True:
            await asyncio.sleep(interval_s())
            await act()

    async def look() -> None:
        degraded.append(pools.mode == "degraded")

    duties = [
        asyncio.create_task(every(lambda: pools.pause_us / 1e6, pools.check)),
        asyncio.create_task(every(lambda: 0.4, pools.reap)),
        asyncio.create_task(every(lambda: 10.0, pools.renew)),
        asyncio.create_task(every(lambda: 0.05, look)),
    ]
    try:
        yield degraded
    finally:
        for duty in duties:
            duty.cancel()
        await asyncio.gather(*duties, return_exceptions=True)


async def overload(server: Server, seconds: float, seed: int) -> Figures:
    """Offers five times the limits through four gateways; returns what they admitted."""
    loop = asyncio.get_running_loop()
    load = _Load(random.Random(seed))
    async with AsyncExitStack() as stack:
        wires = [Wire(server, seed + number) for number in range(NUM_GATEWAYS)]
        gateways, modes = [], []
        for number, wire in enumerate(wires):
            await stack.enter_async_context(wire.open())
            gateway = Gateway(wire.url, f"gateway-{number}", 50_000)
            stack.push_async_callback(gateway.close)
            await gateway.pools.greet()
            modes.append(await stack.enter_async_context(_watched(gateway)))
            gateways.append(gateway)
        for gateway in gateways:
            await gateway.pools.check()  # now each knows of all
        for wire in wires:
            wire.late_share, wire.late_s = LATE_SHARE, LATE_S
        started_s = loop.time()
        offers = (load.of(number, each.pools, seconds) for number, each in enumerate(gateways))
        await asyncio.gather(*offers)
        minutes = (loop.time() - started_s) / 60
        left = 1
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2.0):
                while left:
                    await asyncio.sleep(0.05)
                    key = f"lw1:{{{TENANT.id}}}:p:fast"
                    left = int(await asyncio.to_thread(server.ask, "HGET", key, "n") or 0)
        looks = [look for each in modes for look in each]
        return Figures(
            minutes=minutes,
            num_requests=load.num_requests,
            num_tokens=load.num_tokens,
            most_at_once=load.most_at_once,
            num_refused=load.num_refused,
            num_late=sum(wire.num_late for wire in wires),
            degraded_share=sum(looks) / max(1, len(looks)),
            places_left=left,
        )
