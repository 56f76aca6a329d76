"""What a refused client is told is true: it waits that long, comes again, and gets in."""

import heapq
import random

import msgspec
import pytest

from router.classify.task import GroupLimits, Tenant
from router.pools.memory_pools import MemoryPools
from router.pools.pools import Demand, Grant
from router.waiting.retry_after import BURST_US, MAX_KEPT, MAX_TURN_US, RetryAfter


@pytest.mark.parametrize("seed", range(12))
def test_everybody_of_a_burst_gets_in_when_told(seed: int) -> None:
    chance = random.Random(seed)
    limits = GroupLimits(
        requests_per_min=chance.choice([60, 600, 7_001]),
        tokens_per_min=chance.choice([6_000, 60_000, 1_234_567]),
        max_concurrent=10_000,
    )
    tenant = Tenant(id="acme", tier="free", limits={"fast": limits})
    pools, retry_after = MemoryPools(lease_us=3_600_000_000), RetryAfter()
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
        wait_us = retry_after.wait_us(tenant.id, grant, sizes[number], grant.wait_us, now_us)
        assert wait_us >= grant.wait_us, "never less than what the pools say"
        if wait_us < MAX_TURN_US:
            assert tries == 0, f"client {number} was told {wait_us} us, and came in vain"
            told_us.append(wait_us)
            heapq.heappush(arrivals, (now_us + wait_us, number, tries + 1))
    assert len(told_us) > 10


def test_turns_are_bounded_and_each_tenants_own() -> None:
    limits = GroupLimits(requests_per_min=1, tokens_per_min=60, max_concurrent=1)
    pools, retry_after = MemoryPools(), RetryAfter()
    now_us = 1_000_000_000
    for name in ("a", "b"):
        tenant = Tenant(id=name, tier="free", limits={"fast": limits})
        demands = [(Demand("fast", 1),)]
        pools.reserve_first(tenant, "first", demands, now_us)
        grant = pools.reserve_first(tenant, "second", demands, now_us)
        told = [retry_after.wait_us(name, grant, 1, grant.wait_us, now_us) for _ in range(5)]
        assert told[0] == grant.wait_us
        assert told[-1] == max(grant.wait_us, MAX_TURN_US)
    for number in range(MAX_KEPT + 5):
        retry_after.wait_us(f"t{number}", grant, 1, 0, now_us)
    assert len(retry_after._bursts) <= MAX_KEPT


NOW_US = 1_000_000_000
SIX = GroupLimits(requests_per_min=6, tokens_per_min=60_000, max_concurrent=2)


def emptied(limits: GroupLimits, num_tasks: int) -> tuple[MemoryPools, Tenant]:
    """Returns pools of "acme" on "fast" with so many requests just made, and none of them over."""
    tenant, pools = Tenant(id="acme", tier="free", limits={"fast": limits}), MemoryPools()
    for number in range(num_tasks):
        ask(pools, tenant, f"before-{number}", NOW_US)
    return pools, tenant


def ask(pools: MemoryPools, tenant: Tenant, name: str, now_us: int) -> Grant:
    return pools.reserve_first(tenant, name, [(Demand("fast", 1),)], now_us)


def six_a_minute() -> tuple[MemoryPools, Tenant]:
    """Makes and settles six requests, so that only the next one of them is missing."""
    tenant, pools = Tenant(id="acme", tier="free", limits={"fast": SIX}), MemoryPools()
    for number in range(6):
        grant = ask(pools, tenant, f"before-{number}", NOW_US)
        assert grant.reservation is not None
        pools.settle(grant.reservation, {"fast": 1}, NOW_US)
    return pools, tenant


@pytest.mark.parametrize("interval_us", [200_000, 1_000_000, 3_000_000])
def test_who_asks_again_and_again_is_told_what_is_true(interval_us: int) -> None:
    """Of one that asks every second each answer is exact; of one that asks faster, soon again."""
    (pools, tenant), retry_after, now_us = six_a_minute(), RetryAfter(), NOW_US
    num_refused, num_exact, in_us = 0, 0, NOW_US + 10_000_000
    while (grant := ask(pools, tenant, f"try-{now_us}", now_us)).index is None:
        wait_us = retry_after.wait_us("acme", grant, 1, grant.wait_us, now_us)
        assert grant.wait_us <= wait_us <= MAX_TURN_US
        num_refused += 1
        num_exact += now_us + wait_us == in_us
        now_us += interval_us
    assert in_us <= now_us < in_us + interval_us
    assert num_exact == -(-num_refused * interval_us // max(interval_us, BURST_US))


def test_turns_end_when_somebody_gets_in_before_them() -> None:
    (pools, tenant), retry_after = six_a_minute(), RetryAfter()
    grant = ask(pools, tenant, "x", NOW_US)
    told = [retry_after.wait_us("acme", grant, 1, grant.wait_us, NOW_US) for _ in range(3)]
    assert told == [10_000_000, 20_000_000, 30_000_000]
    retry_after.admitted("acme", (Demand("deep", 1),), "redis", NOW_US)  # another pool
    retry_after.admitted("b", (Demand("fast", 1),), "redis", NOW_US)  # another tenant
    assert retry_after.wait_us("acme", grant, 1, grant.wait_us, NOW_US) == 40_000_000
    retry_after.admitted("acme", (Demand("fast", 1),), "redis", NOW_US)
    assert retry_after.wait_us("acme", grant, 1, grant.wait_us, NOW_US) == 10_000_000


def test_turns_end_when_other_pools_are_met() -> None:
    (pools, tenant), retry_after = six_a_minute(), RetryAfter()
    grant = ask(pools, tenant, "x", NOW_US)
    away = msgspec.structs.replace(grant, mode="degraded")
    for refused in (grant, away, grant):
        told = [retry_after.wait_us("acme", refused, 1, refused.wait_us, NOW_US) for _ in range(2)]
        assert told == [10_000_000, 20_000_000]


def test_nobody_knows_when_places_fall_free_so_they_have_no_turns() -> None:
    limits = GroupLimits(requests_per_min=600, tokens_per_min=600, max_concurrent=4)
    pools, tenant = emptied(limits, 4)
    retry_after, grant = RetryAfter(), ask(pools, tenant, "e", NOW_US)
    assert grant.limited_by == ("fast", "concurrent")
    told = [retry_after.wait_us("acme", grant, 1, grant.wait_us, NOW_US) for _ in range(5)]
    assert told == [grant.wait_us] * 5


def test_an_unblocked_tenant_is_told_when_it_gets_in() -> None:
    """Its last refusal was of a limit of 0, which says to come back in an hour."""
    pools, retry_after, now_us = MemoryPools(), RetryAfter(), 1_000_000_000
    demands = [(Demand("fast", 1),)]
    for per_min in (0, 120):
        limits = GroupLimits(requests_per_min=per_min, tokens_per_min=60_000, max_concurrent=1)
        tenant = Tenant(id="acme", tier="free", limits={"fast": limits})
        now_us += 100_000
        grant = pools.reserve_first(tenant, str(per_min), demands, now_us)
        told_us = retry_after.wait_us("acme", grant, 1, grant.wait_us, now_us)
        assert told_us == grant.wait_us
    assert told_us < 1_000_000
