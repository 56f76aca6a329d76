"""Tests one gateway's part of the limits, for while Redis is away."""

import random
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from backends.contract import BackendGroup
from router.classify.task import GroupLimits, Tenant
from router.pools.local_pools import MAX_TENANTS, LocalPools, WhenAway, local_limits
from router.pools.pools import Balance, Demand, Grant

LIMITS = GroupLimits(requests_per_min=600, tokens_per_min=60_000, max_concurrent=8)
TENANT = Tenant(id="acme", tier="pro", limits={"fast": LIMITS, "deep": LIMITS})
FAST, DEEP = Demand(group="fast", tokens=10), Demand(group="deep", tokens=10)
START_US = 5_000_000


def reserve(
    pools: LocalPools,
    ranked: Sequence[tuple[Demand, ...]] = ((FAST,),),
    *,
    tenant: Tenant = TENANT,
    name: str = "a",
    when_away: dict[BackendGroup, WhenAway] | None = None,
    num_gateways: int = 1,
    now_us: int = START_US,
) -> Grant | None:
    grant = pools.reserve_first(
        tenant,
        name,
        ranked,
        when_away=when_away or {},
        num_gateways=num_gateways,
        now_us=now_us,
    )
    if grant is not None and grant.reservation is not None:
        pools.hold(grant.reservation)
    return grant


@pytest.mark.parametrize(
    ("num_gateways", "requests", "tokens", "places"),
    [(1, 300, 30_000, 4), (2, 150, 15_000, 2), (4, 75, 7_500, 1), (1_000, 1, 30, 1)],
)
def test_each_gateway_has_its_part_of_half(
    num_gateways: int, requests: int, tokens: int, places: int
) -> None:
    here = local_limits(LIMITS, num_gateways)
    assert (here.requests_per_min, here.tokens_per_min, here.max_concurrent) == (
        requests,
        tokens,
        places,
    )


def test_a_limit_of_nothing_stays_nothing() -> None:
    nothing = GroupLimits(requests_per_min=0, tokens_per_min=0, max_concurrent=0)
    assert local_limits(nothing, 3) == nothing


def remaining(grant: Grant | None, unit: str) -> int:
    assert grant is not None
    return next(balance.remaining for balance in grant.balances if balance.unit == unit)


def test_they_begin_where_redis_left_them() -> None:
    pools = LocalPools()
    known = [("requests", 600, 20), ("tokens", 60_000, 2_000), ("concurrent", 8, 8)]
    balances = tuple(
        Balance(group="fast", unit=unit, limit=limit, remaining=left, reset_us=0)  # type: ignore[arg-type]
        for unit, limit, left in known
    )
    pools.note("acme", balances, START_US - 1_000_000)
    grant = reserve(pools)
    # A second's refill of the whole (10 requests, 1,000 tokens) has come on top; half is ours.
    assert remaining(grant, "requests") == (20 + 10) // 2 - 1
    assert remaining(grant, "tokens") == (2_000 + 1_000) // 2 - 10


def test_places_count_what_redis_granted_too() -> None:
    pools = LocalPools()
    before = Grant(index=None, reservation=None, balances=())
    for name in "abcd":
        granted = reserve(LocalPools(), name=name)  # by someone else: Redis
        assert granted is not None
        assert granted.reservation is not None
        pools.hold(granted.reservation)
        before = granted
    refused = reserve(pools)
    assert refused is not None
    assert (refused.index, refused.limited_by) == (None, ("fast", "concurrent"))
    assert before.reservation is not None
    pools.release(before.reservation)
    granted = reserve(pools)
    assert granted is not None
    assert granted.index == 0


@pytest.mark.parametrize(
    ("ranked", "when_away", "index"),
    [
        ([(FAST, DEEP), (FAST,), (DEEP,)], {}, 1),
        ([(FAST, DEEP)], {}, 0),  # pinned: kept or refused, never replaced
        ([(FAST, DEEP), (FAST,), (DEEP,)], {"fast": "closed"}, 2),
        ([(DEEP,), (FAST,)], {"deep": "closed"}, 1),
        ([(DEEP,)], {"deep": "closed"}, None),
        ([(FAST, DEEP)], {"deep": "closed"}, None),
    ],
)
def test_what_is_open_and_what_is_not(
    ranked: list[tuple[Demand, ...]], when_away: Any, index: int | None
) -> None:
    grant = reserve(LocalPools(), ranked, when_away=when_away)
    assert (None if grant is None else grant.index) == index
    assert grant is None or grant.mode == "degraded"


def test_an_open_group_is_bounded_by_its_places_alone() -> None:
    pools = LocalPools()
    large = ((Demand(group="fast", tokens=10**8),),)
    outcomes = [
        reserve(pools, large, name=str(n), when_away={"fast": "open"})
        for n in range(LIMITS.max_concurrent)
    ]
    granted = [grant for grant in outcomes if grant is not None and grant.index == 0]
    assert len(granted) == LIMITS.max_concurrent // 2


def test_usage_replaces_the_reservation() -> None:
    pools = LocalPools()
    grant = reserve(pools)
    assert grant is not None
    assert grant.reservation is not None
    pools.release(grant.reservation)
    pools.settle(grant.reservation, {"fast": 30_010})
    refused = reserve(pools)
    assert refused is not None
    assert (refused.index, refused.limited_by) == (None, ("fast", "tokens"))
    assert refused.wait_us == 40_000  # 10 in debt and 10 asked, at 500 tokens a second
    again = reserve(pools, now_us=START_US + refused.wait_us)
    assert again is not None
    assert again.index == 0


def test_gateways_together_stay_within_the_limits() -> None:
    """Four of them know nothing of each other, and get all the load that they can."""
    seed = random.SystemRandom().randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    gateways = [LocalPools() for _ in range(4)]
    now_us, taken, requests = START_US, 0, 0
    while now_us < START_US + 120_000_000:
        now_us += chance.randrange(40_000)
        pools = chance.choice(gateways)
        tokens = chance.randrange(1, 400)
        grant = reserve(
            pools, ((Demand(group="fast", tokens=tokens),),), num_gateways=4, now_us=now_us
        )
        assert grant is not None
        if grant.reservation is not None:
            taken += tokens
            requests += 1
            pools.release(grant.reservation)
            pools.settle(grant.reservation, {"fast": tokens})
    # Two minutes at half the rate, and half a burst.
    assert taken <= 1.5 * LIMITS.tokens_per_min
    assert requests <= 1.5 * LIMITS.requests_per_min
    assert taken > 0.8 * LIMITS.tokens_per_min, "and they use what they have"


def test_a_task_of_an_earlier_outage_frees_no_place_of_its_key() -> None:
    of_key = GroupLimits(requests_per_min=600, tokens_per_min=60_000, max_concurrent=2)
    mine = msgspec.structs.replace(TENANT, key_id="mine", key_limits={"fast": of_key})
    pools = LocalPools()
    before = reserve(pools, tenant=mine, name="before")
    pools.cut_off()
    running = reserve(pools, tenant=mine, name="running")
    assert running is not None
    assert running.reservation is not None
    assert before is not None
    assert before.reservation is not None
    pools.release(before.reservation)
    pools.settle(before.reservation, {"fast": 10})
    refused = reserve(pools, tenant=mine, name="third")
    assert refused is not None
    assert refused.limited_by == ("fast", "key_concurrent")


def test_tenants_remembered_are_bounded() -> None:
    pools = LocalPools()
    for number in range(MAX_TENANTS + 10):
        pools.note(f"t{number}", (), START_US)
        reserve(pools, tenant=Tenant(id=f"t{number}", tier="x", limits={"fast": LIMITS}))
    assert len(pools._buckets) == len(pools._known) == MAX_TENANTS
