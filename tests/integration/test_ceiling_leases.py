"""Tests ceilings across gateways: slices that only ever add up to them, also on a Cluster."""

import asyncio
import random

from redis import Redis

from router.classify.task import GroupLimits, Tenant
from router.pools.ceiling_leases import ALIVE_MS
from router.pools.pools import Reservation, shrunk
from tests.integration.capped_gateways import (
    DEEP,
    FAST,
    gateways,
    many_tasks,
    tenant,
)

HASH = "lw1:{ceiling:fast}:slices"


async def test_no_ceiling_is_exceeded_by_four_gateways(redis_url: str) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print("seed", seed)
    async with gateways(redis_url, 4, {"fast": 9, "deep": 4}) as made:
        seen, num_refused = await many_tasks(made, 800, seed)
        assert seen.most["fast"] <= 9
        assert seen.most["deep"] <= 4
        assert seen.most["fast"] >= 6
        assert num_refused > 0
        assert not any(pools._slots for pools in made)
    with Redis.from_url(redis_url) as client:
        assert client.exists(HASH) == 0  # they left


async def test_a_gateway_gets_all_of_it_when_nobody_else_wants_it(redis_url: str) -> None:
    async with gateways(redis_url, 3, {"fast": 8}) as made:
        for pools in made:
            await pools.leases.tick()
        held: list[Reservation] = []
        for number in range(20):
            grant = await made[0].reserve_first(tenant("a"), str(number), [FAST])
            if grant.reservation is not None:
                held.append(grant.reservation)
            else:
                assert grant.limited_by == ("fast", "concurrent")
                assert grant.balances[0].limit == 8
            await asyncio.gather(*(pools.leases.tick() for pools in made))
        assert len(held) >= 6  # all but a spare place of each other
        for reservation in held:
            await made[0].settle(reservation, {})
            await made[0].settle(reservation, {})  # twice is harmless here, too
        await asyncio.gather(*(pools.leases.tick() for pools in made))
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
