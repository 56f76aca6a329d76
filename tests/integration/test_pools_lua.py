"""pools.lua and bucket.py are one arithmetic: the same operations give the same answers."""

import random
from collections.abc import Sequence
from typing import Any

import pytest
from redis import Redis

from backends.contract import BackendGroup
from router.pools import GROUPS, Demand, Grant, MemoryPools, Reservation, lease_of
from router.redis_pools import (
    Arguments,
    adopt_arguments,
    balances_of,
    grant_of,
    renew_arguments,
    reserve_arguments,
    script,
    settle_arguments,
)
from router.task import GroupLimits, Tenant

NUM_OPERATIONS = 24_000
BATCH = 200
LEASE_US = 5_000_000


class BothPools:
    """Applies each operation to memory, queues it for Redis, and compares in batches."""

    def __init__(self, client: "Redis") -> None:
        self._client = client
        self._sha = client.script_load(script())
        self._memory = MemoryPools(LEASE_US)
        self._pipeline = client.pipeline(transaction=False)
        self._expected: list[tuple[str, Any, Any]] = []

    def reserve(
        self, tenant: Tenant, name: str, ranked: Sequence[tuple[Demand, ...]], now_us: int
    ) -> Grant:
        grant = self._memory.reserve_first(tenant, name, ranked, now_us)
        arguments = reserve_arguments(tenant, name, ranked, LEASE_US // 1_000, now_us // 1_000)
        self._queue(arguments, ("reserve", grant, (tenant, name, ranked)))
        return grant

    def adopt(self, tenant: Tenant, reservation: Reservation, now_us: int) -> None:
        """What another process granted: whether it fits or not."""
        grant = self._memory.adopt(tenant, reservation, now_us)
        arguments = adopt_arguments(tenant, reservation, LEASE_US // 1_000, now_us // 1_000)
        self._queue(arguments, ("reserve", grant, (tenant, reservation.id, [reservation.demands])))

    def settle(self, reservation: Reservation, fast: int, deep: int, now_us: int) -> None:
        balances = self._memory.settle(reservation, {"fast": fast, "deep": deep}, now_us)
        arguments = settle_arguments(reservation, {"fast": fast, "deep": deep}, now_us // 1_000)
        self._queue(arguments, ("settle", balances, None))

    def renew(self, reservation: Reservation, now_us: int) -> None:
        self._memory.renew([reservation], now_us)
        arguments = renew_arguments(
            reservation.tenant_id, [reservation.lease], LEASE_US // 1_000, now_us // 1_000
        )
        self._queue(arguments, ("renew", None, None))

    def compare(self) -> None:
        replies = self._pipeline.execute()
        assert len(replies) == len(self._expected)
        for reply, (operation, expected, call) in zip(replies, self._expected, strict=True):
            if operation == "reserve":
                assert grant_of(reply, *call) == expected
            elif operation == "settle":
                assert balances_of(reply[1:]) == expected
        self._expected.clear()

    def _queue(self, arguments: Arguments, expected: tuple[str, Any, Any]) -> None:
        self._pipeline.evalsha(self._sha, 3, *arguments)
        self._expected.append(expected)


def random_tenant(chance: random.Random, tenant_id: str) -> Tenant:
    def limits() -> GroupLimits:
        return GroupLimits(
            requests_per_min=chance.choice([0, 1, 7, 60, 600, 10**6, 10**12]),
            tokens_per_min=chance.choice([0, 13, 1_000, 123_457, 10**9]),
            max_concurrent=chance.randrange(6),
        )

    choices: list[tuple[BackendGroup, ...]] = [("fast",), ("deep",), GROUPS, GROUPS]
    groups = chance.choice(choices)
    return Tenant(id=tenant_id, tier="any", limits={group: limits() for group in groups})


def random_ranked(chance: random.Random, tenant: Tenant) -> list[tuple[Demand, ...]]:
    def demand(group: Any) -> Demand:
        ceiling = tenant.limits[group].tokens_per_min
        return Demand(group=group, tokens=chance.choice([0, 1, chance.randrange(2 * ceiling + 2)]))

    groups = list(tenant.limits)
    sets = [tuple(demand(group) for group in groups)]
    sets += [(demand(group),) for group in groups]
    return chance.sample(sets, chance.randrange(1, len(sets) + 1))


def test_lua_and_python_agree(redis_url: str) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    now_us = 1_800_000_000_000_000
    tenants = [random_tenant(chance, f"tenant-{n}") for n in range(12)]
    live: list[Reservation] = []
    granted = 0
    with Redis.from_url(redis_url) as client:
        pools = BothPools(client)
        for number in range(NUM_OPERATIONS):
            now_us += chance.choice([0, 0, 400, 1_000, 30_000, 700_000, 20_000_000, -90_000_000])
            action = chance.random()
            if action < 0.02:
                place = chance.randrange(len(tenants))
                tenants[place] = random_tenant(chance, f"tenant-{place}")
            if action < 0.6 or not live:
                tenant = chance.choice(tenants)
                name = f"r{number}" if chance.random() < 0.95 else f"r{number - 1}"
                grant = pools.reserve(tenant, name, random_ranked(chance, tenant), now_us)
                if grant.reservation is not None:
                    granted += 1
                    live.append(grant.reservation)
            elif action < 0.9:
                # Some are settled twice, some never: their leases run out.
                reservation = chance.choice(live)
                if chance.random() < 0.9:
                    live.remove(reservation)
                largest = 2 * max(demand.tokens for demand in reservation.demands) + 2
                used = [chance.randrange(largest) for _ in range(2)]
                pools.settle(reservation, used[0], used[1], now_us)
            elif action < 0.95:
                pools.renew(chance.choice(live), now_us)
            else:
                # One that this server never saw, or has forgotten, or holds.
                tenant = chance.choice(tenants)
                ours = [held for held in live if held.tenant_id == tenant.id]
                ranked = random_ranked(chance, tenant)
                name = f"a{number}"
                lease = lease_of(name, ranked[0])
                strange = Reservation(
                    id=name, tenant_id=tenant.id, demands=ranked[0], lease=lease, expires_us=0
                )
                reservation = chance.choice([strange, *ours])
                if all(demand.group in tenant.limits for demand in reservation.demands):
                    pools.adopt(tenant, reservation, now_us)
                    live.append(reservation)
            if number % BATCH == BATCH - 1:
                pools.compare()
                del live[:-100]
        pools.compare()
    assert granted > NUM_OPERATIONS // 10  # the run exercised both outcomes


@pytest.mark.parametrize("step_us", [-3_600_000_000, 3_600_000_000])
def test_a_stepped_server_clock_neither_locks_out_nor_overfills(
    redis_url: str, step_us: int
) -> None:
    """The stamp is edited instead of the clock: a stamp in the future is a clock stepped back."""
    limits = GroupLimits(requests_per_min=60, tokens_per_min=600, max_concurrent=9)
    tenant = Tenant(id="acme", tier="any", limits={"fast": limits})
    one = [(Demand(group="fast", tokens=1),)]

    def arguments(name: str, ranked: Sequence[tuple[Demand, ...]]) -> Arguments:
        return reserve_arguments(tenant, name, ranked, 30_000, 0)

    with Redis.from_url(redis_url) as client:
        sha = client.script_load(script())
        large = [(Demand(group="fast", tokens=500),)]
        assert client.evalsha(sha, 3, *arguments("a", large))[0] == 1
        stamp_ms = int(client.hget("lw1:{acme}:p:fast", "at") or 0)
        client.hset("lw1:{acme}:p:fast", "at", stamp_ms - step_us // 1_000)
        grant = grant_of(client.evalsha(sha, 3, *arguments("b", one)), tenant, "b", one)
        assert grant.index == 0
        tokens = next(b for b in grant.balances if b.unit == "tokens")
        if step_us < 0:
            assert 99 <= tokens.remaining <= 105  # what was left, and perhaps a moment's refill
        else:
            assert tokens.remaining == 599  # full, and no fuller
        stamp_ms = int(client.hget("lw1:{acme}:p:fast", "at") or 0)
        seconds, _ = client.time()
        assert abs(stamp_ms // 1_000 - int(seconds)) < 60
