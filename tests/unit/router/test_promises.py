"""What a refused client is told is true: it waits that long, comes again, and gets in."""

import heapq
import random

import pytest

from router.pools import Demand, MemoryPools
from router.promises import MAX_KEPT, MAX_SPREAD_US, Promises
from router.task import GroupLimits, Tenant


@pytest.mark.parametrize("seed", range(12))
def test_everybody_of_a_burst_gets_in_when_told(seed: int) -> None:
    chance = random.Random(seed)
    limits = GroupLimits(
        requests_per_min=chance.choice([60, 600, 7_001]),
        tokens_per_min=chance.choice([6_000, 60_000, 1_234_567]),
        max_concurrent=10_000,
    )
    tenant = Tenant(id="acme", tier="free", limits={"fast": limits})
    pools, promises = MemoryPools(lease_us=3_600_000_000), Promises()
    now_us = 1_000_000_000
    sizes = [chance.randrange(1, limits.tokens_per_min // 50) for _ in range(400)]
    # Everything is used up before they come, and more, so that none of them fits by chance.
    drained = pools.reserve_first(tenant, "drained", [(Demand("fast", 1),)], now_us)
    assert drained.reservation is not None
    pools.settle(drained.reservation, {"fast": limits.tokens_per_min * 11 // 10}, now_us)
    arrivals = [(now_us + chance.randrange(20_000), n, 0) for n in range(len(sizes))]
    heapq.heapify(arrivals)
    told_us: list[int] = []
    while arrivals:
        now_us, number, tries = heapq.heappop(arrivals)
        demands = [(Demand("fast", sizes[number]),)]
        grant = pools.reserve_first(tenant, str(number), demands, now_us)
        if grant.index is not None:
            continue
        wait_us = promises.wait_us(tenant.id, grant, sizes[number], grant.wait_us, now_us)
        assert wait_us >= grant.wait_us, "never less than what the pools say"
        if wait_us < MAX_SPREAD_US:
            assert tries == 0, f"client {number} was told {wait_us} us, and came in vain"
            told_us.append(wait_us)
            heapq.heappush(arrivals, (now_us + wait_us, number, tries + 1))
    assert len(told_us) > 10


def test_turns_are_bounded_and_each_tenants_own() -> None:
    limits = GroupLimits(requests_per_min=1, tokens_per_min=60, max_concurrent=1)
    pools, promises = MemoryPools(), Promises()
    now_us = 1_000_000_000
    for name in ("a", "b"):
        tenant = Tenant(id=name, tier="free", limits={"fast": limits})
        demands = [(Demand("fast", 1),)]
        pools.reserve_first(tenant, "first", demands, now_us)
        grant = pools.reserve_first(tenant, "second", demands, now_us)
        told = [promises.wait_us(name, grant, 1, grant.wait_us, now_us) for _ in range(5)]
        assert told[0] == grant.wait_us
        assert told[-1] == grant.wait_us + MAX_SPREAD_US
    for number in range(MAX_KEPT + 5):
        promises.wait_us(f"t{number}", grant, 1, 0, now_us)
    assert len(promises._last_us) <= MAX_KEPT


def test_places_are_spread_too() -> None:
    limits = GroupLimits(requests_per_min=600, tokens_per_min=600, max_concurrent=4)
    tenant = Tenant(id="acme", tier="free", limits={"fast": limits})
    pools, promises = MemoryPools(), Promises()
    for name in "abcd":
        pools.reserve_first(tenant, name, [(Demand("fast", 1),)], 1_000_000)
    grant = pools.reserve_first(tenant, "e", [(Demand("fast", 1),)], 1_000_000)
    assert grant.limited_by == ("fast", "concurrent")
    told = [promises.wait_us("acme", grant, 1, grant.wait_us, 1_000_000) for _ in range(5)]
    assert told == [1_000_000, 1_250_000, 1_500_000, 1_750_000, 2_000_000]
