"""Ceilings across gateways: slices that only ever add up to them, also on a Cluster."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from redis import Redis

from backends.contract import BackendGroup
from router.classify.task import GroupLimits, Tenant
from router.pools.capped_pools import CappedPools
from router.pools.ceiling_leases import ALIVE_MS, CeilingLeases
from router.pools.pools import Demand, Reservation, shrunk
from router.pools.redis_pools import RedisPools

MANY = GroupLimits(requests_per_min=10**6, tokens_per_min=10**9, max_concurrent=10**4)
FAST, DEEP = (Demand("fast", 10),), (Demand("deep", 10),)
BUDGET_US = 20_000_000
HASH = "lw1:{ceiling:fast}:slices"


def tenant(name: str) -> Tenant:
    return Tenant(id=name, tier="any", limits={"fast": MANY, "deep": MANY})


@asynccontextmanager
async def gateways(
    url: str, number: int, ceilings: Mapping[BackendGroup, int]
) -> AsyncIterator[list[CappedPools]]:
    """So many, each with connections of its own."""
    loop = asyncio.get_running_loop()
    made = []
    for place in range(number):
        pools = CappedPools(
            RedisPools(url, budget_us=BUDGET_US), clock_us=lambda: int(loop.time() * 1e6)
        )
        pools.ceiling_leases = CeilingLeases(url, f"gateway-{place}", ceilings, budget_us=BUDGET_US)
        made.append(pools)
    for pools in made:
        await pools.greet()
    try:
        yield made
    finally:
        for pools in made:
            await pools.close()


class Running:
    """What runs, over all gateways, and the most that ever did."""

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


async def many_tasks(made: list[CappedPools], num_tasks: int, seed: int) -> tuple[Running, int]:
    """Tasks of many tenants, at gateways by chance; how many were refused."""
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
            await asyncio.gather(*(pools.share() for pools in made))

    ticking = asyncio.create_task(ticks())
    for start in range(0, num_tasks, 40):
        await asyncio.gather(*(one(number) for number in range(start, start + 40)))
    ticking.cancel()
    await asyncio.gather(ticking, return_exceptions=True)
    return seen, num_refused


async def test_no_ceiling_is_exceeded_by_four_gateways(redis_url: str) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print("seed", seed)
    async with gateways(redis_url, 4, {"fast": 9, "deep": 4}) as made:
        seen, num_refused = await many_tasks(made, 800, seed)
        assert seen.most["fast"] <= 9
        assert seen.most["deep"] <= 4
        assert seen.most["fast"] >= 6
        assert num_refused > 0
        assert not any(pools._placed for pools in made)
    with Redis.from_url(redis_url) as client:
        assert client.exists(HASH) == 0  # they left


async def test_a_gateway_gets_all_of_it_when_nobody_else_wants_it(redis_url: str) -> None:
    async with gateways(redis_url, 3, {"fast": 8}) as made:
        for pools in made:
            await pools.share()
        held: list[Reservation] = []
        for number in range(20):
            grant = await made[0].reserve_first(tenant("a"), str(number), [FAST])
            if grant.reservation is not None:
                held.append(grant.reservation)
            else:
                assert grant.limited_by == ("fast", "concurrent")
                assert grant.balances[0].limit == 8
            await asyncio.gather(*(pools.share() for pools in made))
        assert len(held) >= 6  # all but a spare place of each other
        for reservation in held:
            await made[0].settle(reservation, {})
            await made[0].settle(reservation, {})  # twice is harmless here, too
        await asyncio.gather(*(pools.share() for pools in made))
        assert (await made[1].reserve_first(tenant("a"), "b", [FAST])).index == 0


async def test_a_dead_gateways_slice_is_free_after_a_while(redis_url: str) -> None:
    async with gateways(redis_url, 2, {"fast": 4}) as made:
        for number in range(4):
            await made[0].reserve_first(tenant("a"), str(number), [FAST])
        assert (await made[1].reserve_first(tenant("a"), "x", [FAST])).index is None
        with Redis.from_url(redis_url, decode_responses=True) as client:
            slice_of = client.hget(HASH, "gateway-0")
            assert slice_of is not None
            places, wanted, expires_ms, number = slice_of.split()
            assert places == "4"
            past_ms = int(expires_ms) - ALIVE_MS - 1_000
            client.hset(HASH, "gateway-0", f"{places} {wanted} {past_ms} {number}")
        assert (await made[1].reserve_first(tenant("a"), "x", [FAST])).index == 0


async def test_what_the_pools_refuse_gives_its_place_back(redis_url: str) -> None:
    tight = GroupLimits(requests_per_min=1, tokens_per_min=100, max_concurrent=9)
    small = Tenant(id="small", tier="any", limits={"fast": tight})
    async with gateways(redis_url, 1, {"fast": 2}) as made:
        assert (await made[0].reserve_first(small, "a", [FAST])).index == 0
        for number in range(5):
            refused = await made[0].reserve_first(small, f"b{number}", [FAST])
            assert refused.limited_by == ("fast", "requests")
        assert (await made[0].reserve_first(tenant("other"), "c", [FAST])).index == 0
        full = await made[0].reserve_first(tenant("other"), "d", [FAST])
        assert full.limited_by == ("fast", "concurrent")
        assert (await made[0].reserve_first(tenant("other"), "d", [FAST, DEEP])).index == 1


async def test_a_group_given_back_early_frees_its_place(redis_url: str) -> None:
    async with gateways(redis_url, 1, {"fast": 1}) as made:
        (pools,) = made
        both = (*FAST, *DEEP)
        held = (await pools.reserve_first(tenant("a"), "first", [both])).reservation
        assert held is not None
        assert (await pools.reserve_first(tenant("a"), "second", [FAST])).index is None
        rest = await pools.extend(shrunk(held, {"fast": 5}))
        assert [demand.group for demand in rest.demands] == ["deep"]
        second = (await pools.reserve_first(tenant("a"), "second", [FAST])).reservation
        assert second is not None
        await pools.settle(rest, {"fast": 5, "deep": 1})
        assert (await pools.reserve_first(tenant("a"), "third", [FAST])).index is None
        await pools.settle(second, {})


async def test_a_repeated_call_takes_one_place(redis_url: str) -> None:
    async with gateways(redis_url, 1, {"fast": 1}) as made:
        for _ in range(2):
            assert (await made[0].reserve_first(tenant("a"), "same", [FAST])).index == 0
        assert (await made[0].reserve_first(tenant("a"), "other", [FAST])).index is None
