"""Tests RedisPools against real servers: shared limits, leases, replay, a Redis that is away."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from redis import Redis
from redis.crc import key_slot

from backends.contract import BackendGroup
from gateway.process.embedded_redis import EmbeddedRedis
from gateway.process.maintenance import REAP_INTERVAL_S
from router.classify.task import Account, GroupLimits, Tenant
from router.pools import reaper
from router.pools.failover_pools import FailoverPools
from router.pools.memory_pools import MemoryPools
from router.pools.pools import Balance, Demand, Grant, Renewal, Unit
from router.pools.reaper import Reaper
from router.pools.redis_pools import PoolsUnavailable, RedisPools
from router.redis.servers import RECONNECT_PAUSE_S

TENANT = Tenant(
    id="acme",
    tier="pro",
    limits={
        "fast": GroupLimits(requests_per_min=6_000, tokens_per_min=1_000_000, max_concurrent=7),
        "deep": GroupLimits(requests_per_min=600, tokens_per_min=1_000_000, max_concurrent=2),
    },
)
FAST = (Demand(group="fast", tokens=100),)
DEEP = (Demand(group="deep", tokens=500),)
PARALLEL = FAST + DEEP
CHOICES: list[list[tuple[Demand, ...]]] = [[PARALLEL, FAST], [FAST], [DEEP, FAST]]
PATIENCE_S = 60.0  # a bound for what takes milliseconds; never waited out
BUDGET_US = 20_000_000  # the same, where nothing is wrong with Redis


def monotonic_us() -> int:
    return time.monotonic_ns() // 1_000


@pytest.fixture
async def pools(redis_url: str) -> AsyncIterator[RedisPools]:
    pools = RedisPools(redis_url, budget_us=BUDGET_US)
    yield pools
    await pools.close()


def remaining(balances: tuple[Balance, ...], group: BackendGroup, unit: Unit) -> int:
    return next(b.remaining for b in balances if (b.group, b.unit) == (group, unit))


def places(balances: tuple[Balance, ...]) -> tuple[int, int]:
    return remaining(balances, "fast", "concurrent"), remaining(balances, "deep", "concurrent")


async def test_reserve_settle_and_what_is_left_in_redis(pools: RedisPools, redis_url: str) -> None:
    grant = await pools.reserve_first(TENANT, "a", [PARALLEL, FAST])
    assert grant.index == 0
    assert grant.reservation is not None
    assert places(grant.balances) == (6, 1)
    assert await pools.settle(grant.reservation, {"fast": 2_000_000, "deep": 500})
    balances = await pools.balances(TENANT)
    assert places(balances) == (7, 2)
    assert remaining(balances, "fast", "tokens") == 0  # in debt
    with Redis.from_url(redis_url, decode_responses=True) as client:
        assert client.zcard("lw1:{acme}:lease") == 0
        keys = sorted(set(client.scan_iter("*")) - {reaper.KEY})
        assert keys == ["lw1:{acme}:p:deep", "lw1:{acme}:p:fast"]
        assert len({key_slot(key.encode()) for key in keys}) == 1
        assert [client.ttl(key) for key in keys] == [-1, -1]  # never evicted by volatile-lru
        assert client.hget("lw1:{acme}:p:fast", "n") == "0"


async def test_replay_and_double_settlement(pools: RedisPools) -> None:
    first = await pools.reserve_first(TENANT, "a", [PARALLEL, FAST])
    again = await pools.reserve_first(TENANT, "a", [PARALLEL, FAST])
    assert again.reservation == first.reservation
    assert places(again.balances) == (6, 1)
    assert first.reservation is not None
    assert await pools.settle(first.reservation, {})
    assert not await pools.settle(first.reservation, {})
    assert places(await pools.balances(TENANT)) == (7, 2)


async def test_limits_hold_across_processes_and_nothing_is_lost(redis_url: str) -> None:
    """Four clients stand for four gateways: no more are in flight than allowed, and none stays."""
    clients = [RedisPools(redis_url, budget_us=BUDGET_US) for _ in range(4)]
    in_flight: dict[str, int] = {"fast": 0, "deep": 0}
    most: dict[str, int] = {"fast": 0, "deep": 0}
    outcomes: list[int | None] = []

    async def gateway_task(number: int) -> None:
        client = clients[number % 4]
        ranked = CHOICES[number % len(CHOICES)]
        grant = await client.reserve_first(TENANT, f"task-{number}", ranked)
        outcomes.append(grant.index)
        if grant.reservation is None:
            return
        groups = [demand.group for demand in grant.reservation.demands]
        for group in groups:
            in_flight[group] += 1
            most[group] = max(most[group], in_flight[group])
        await asyncio.sleep(0)
        for group in groups:
            in_flight[group] -= 1
        await client.settle(grant.reservation, dict.fromkeys(groups, 100))

    for start in range(0, 600, 60):
        await asyncio.gather(*(gateway_task(n) for n in range(start, start + 60)))
    assert most["fast"] <= 7
    assert most["deep"] <= 2
    assert outcomes.count(0) > 0
    assert outcomes.count(None) > 0
    assert places(await clients[0].balances(TENANT)) == (7, 2)
    for client in clients:
        await client.close()


async def test_a_crashed_gateways_reservation_comes_back(redis_url: str) -> None:
    limits = GroupLimits(requests_per_min=60, tokens_per_min=900, max_concurrent=2)
    tenant = Tenant(id="slow", tier="free", limits={"deep": limits})  # refills 15 tokens a second
    ask = [(Demand(group="deep", tokens=400),)]
    crashed = RedisPools(redis_url, lease_us=50_000, budget_us=BUDGET_US)
    alive = RedisPools(redis_url, budget_us=BUDGET_US)
    first = await crashed.reserve_first(tenant, "a", ask)
    second = await crashed.reserve_first(tenant, "b", ask)
    await crashed.close()
    num_reaped = first.num_reaped + second.num_reaped
    grant: Grant | None = None
    give_up_s = time.monotonic() + PATIENCE_S
    while grant is None or grant.index is None or num_reaped < 2:
        assert time.monotonic() < give_up_s
        grant = await alive.reserve_first(tenant, "c", ask)
        num_reaped += grant.num_reaped
        await asyncio.sleep(0.002)
    assert num_reaped == 2
    assert remaining(grant.balances, "deep", "concurrent") == 1
    assert remaining(grant.balances, "deep", "tokens") >= 500
    await alive.close()


def deep_tenant(tenant_id: str) -> Tenant:
    limits = GroupLimits(requests_per_min=6_000, tokens_per_min=60_000, max_concurrent=40)
    return Tenant(id=tenant_id, tier="pro", limits={"deep": limits})


async def test_who_goes_on_does_not_put_off_reaping_what_a_crash_left(
    redis_url: str,
) -> None:
    tenant = deep_tenant("goes-on")
    ask = [(Demand(group="deep", tokens=1),)]
    crashed, alive = (RedisPools(redis_url, budget_us=BUDGET_US) for _ in range(2))
    with Redis.from_url(redis_url) as client:
        await crashed.reserve_first(tenant, "crashed", ask)
        await crashed.close()
        due_ms = client.zscore(reaper.KEY, tenant.id)
        assert due_ms is not None
        await asyncio.sleep(0.01)
        grant = await alive.reserve_first(tenant, "goes-on", ask)
        assert grant.reservation is not None
        await alive.renew([grant.reservation])
        await alive.reap()
        assert client.zscore(reaper.KEY, tenant.id) == due_ms
    await alive.settle(grant.reservation, {"deep": 1})
    await alive.close()


async def test_who_crashes_at_once_is_reaped_though_nobody_asks_again(redis_url: str) -> None:
    tenant = deep_tenant("asks-once")
    crashed, alive = (RedisPools(redis_url, lease_us=60_000, budget_us=BUDGET_US) for _ in range(2))
    has_crashed = False
    await alive.reserve_first(tenant, "before", [(Demand(group="deep", tokens=1),)])
    give_up_s = time.monotonic() + PATIENCE_S
    with Redis.from_url(redis_url) as client:
        due: list[float | None] = [client.zscore(reaper.KEY, tenant.id)]
        while due[-1] is not None:  # busy, idle, and gone in the end
            assert time.monotonic() < give_up_s
            await alive.reap()
            due.append(client.zscore(reaper.KEY, tenant.id))
            if not has_crashed and (due[-1] or 0) % 1:
                has_crashed = True
                await crashed.reserve_first(tenant, "x", [(Demand(group="deep", tokens=1),)])
                await crashed.close()
                due.append(client.zscore(reaper.KEY, tenant.id))
            await asyncio.sleep(0.005)
        assert client.zcard("lw1:{asks-once}:lease") == 0
    idle = [score is not None and score % 1 > 0 for score in due]
    assert idle[idle.index(True) + 1] is False, "what is entered anew is busy again"
    await alive.close()


async def test_an_entry_that_is_no_tenant_keeps_none_from_being_reaped(
    redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    tenant = deep_tenant("sound")
    crashed, alive = (RedisPools(redis_url, lease_us=1_000, budget_us=BUDGET_US) for _ in range(2))
    await crashed.reserve_first(tenant, "x", [(Demand(group="deep", tokens=1),)])
    await crashed.close()
    odd: dict[str | bytes, float] = {"": 0, "No {tenant}": 0, b"\xff": 0, "Another": 0}
    give_up_s = time.monotonic() + PATIENCE_S
    with Redis.from_url(redis_url) as client:
        client.zadd(reaper.KEY, odd)
        while client.zcard(reaper.KEY) > 1:  # all are gone but for what is no text
            assert time.monotonic() < give_up_s
            await alive.reap()
        assert client.zcard("lw1:{sound}:lease") == 0
        client.delete(reaper.KEY)
    await alive.close()
    assert [line for line in caplog.messages if "no tenant" in line] == [
        f"no tenant can be called '', as {reaper.KEY} has one"
    ]


async def test_a_tenant_whose_leases_redis_cannot_reap_keeps_no_other_from_being_reaped(
    redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    names = ["broken-1", "broken-2", *(f"sound-{number}" for number in range(15))]
    crashed, alive = (RedisPools(redis_url, lease_us=1_000, budget_us=BUDGET_US) for _ in range(2))
    for name in names:
        await crashed.reserve_first(deep_tenant(name), "x", [(Demand(group="deep", tokens=1),)])
    await crashed.close()
    with Redis.from_url(redis_url) as client:
        for name in names[:2]:
            client.set(f"lw1:{{{name}}}:lease", "no sorted set")
        client.zadd(reaper.KEY, dict.fromkeys(names, 1.0))  # all are due
        assert await alive.reap() == 15
        assert [client.zcard(f"lw1:{{{name}}}:lease") for name in names[2:]] == [0] * 15
        assert None not in [client.zscore(reaper.KEY, name) for name in names[:2]], "due again"
        client.delete(reaper.KEY, *(f"lw1:{{{name}}}:lease" for name in names))
    await alive.close()
    (line,) = [line for line in caplog.messages if "cannot be reaped" in line]
    assert "WRONGTYPE" in line


async def test_a_tenant_whose_keys_redis_cannot_use_leaves_the_others_with_redis(
    redis_url: str,
) -> None:
    sound, broken = deep_tenant("sound"), deep_tenant("broken")
    ask = [(Demand(group="deep", tokens=100),)]
    pools = FailoverPools(RedisPools(redis_url, budget_us=BUDGET_US), clock_us=monotonic_us)
    await pools.greet()
    with Redis.from_url(redis_url) as client:
        before = await pools.reserve_first(broken, "before", ask)
        assert before.reservation is not None
        client.set("lw1:{broken}:lease", "no sorted set")
        for number in range(12):
            grant = await pools.reserve_first(broken, f"broken-{number}", ask)
            assert grant.mode == "degraded"
            assert grant.reservation is not None
            await pools.renew()
            if number % 2:
                await pools.settle(grant.reservation, {"deep": 50})
            grant = await pools.reserve_first(sound, f"sound-{number}", ask)
            assert grant.mode == "redis"
            assert grant.reservation is not None
            await pools.settle(grant.reservation, {"deep": 50})
            await pools.check()
            assert pools.mode == "redis"
        assert pools.report.num_unsettled == 0
        assert pools.report.num_uncharged == 6
        client.delete("lw1:{broken}:lease")
        assert await pools.settle(before.reservation, {"deep": 50}) is None
        assert remaining(await pools.balances(sound), "deep", "concurrent") == 40
        await pools.forget(broken.id)
    await pools.close()


async def test_what_one_that_dies_had_taken_is_soon_due_again(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant = deep_tenant("taken")
    crashed, alive = (RedisPools(redis_url, lease_us=1_000, budget_us=BUDGET_US) for _ in range(2))
    await crashed.reserve_first(tenant, "x", [(Demand(group="deep", tokens=1),)])

    async def die(_reaper: Reaper, _tenant_id: str) -> tuple[int, int]:
        raise asyncio.CancelledError

    with Redis.from_url(redis_url) as client:
        with monkeypatch.context() as patch:
            patch.setattr(Reaper, "reap_tenant", die)
            await asyncio.sleep(0.005)  # then the tenant is due
            with pytest.raises(asyncio.CancelledError):
                await crashed.reap()
        seconds, us = client.time()
        due_ms = client.zscore(reaper.KEY, tenant.id)
        assert due_ms is not None
        assert due_ms - (seconds * 1e3 + us / 1e3) <= 1_000 - REAP_INTERVAL_S * 1e3
        await crashed.close()
        give_up_s = time.monotonic() + PATIENCE_S
        while client.zcard("lw1:{taken}:lease"):
            assert time.monotonic() < give_up_s
            await alive.reap()
    await alive.close()


@contextmanager
def out_of_reach(url: str) -> Iterator[None]:
    """Cuts a server off: nobody can connect to it, and it forgets nothing."""
    socket = Path(url.removeprefix("unix://"))
    away = socket.with_suffix(".away")
    with Redis.from_url(url) as client:
        client.ping()
        socket.rename(away)
        try:
            client.client_kill_filter(_type="normal", skipme=True)
            yield
        finally:
            away.rename(socket)


async def test_what_is_out_of_reach_fails_and_is_settled_afterwards(
    pools: RedisPools, redis_url: str
) -> None:
    reservation = (await pools.reserve_first(TENANT, "a", [PARALLEL])).reservation
    assert reservation is not None
    used: dict[BackendGroup, int] = {"fast": 2_000_000, "deep": 500}
    with out_of_reach(redis_url):
        with pytest.raises(PoolsUnavailable):
            await pools.settle(reservation, used)
        with pytest.raises(PoolsUnavailable):
            await pools.ping()
    await asyncio.sleep(RECONNECT_PAUSE_S)
    assert await pools.settle(reservation, used)
    balances = await pools.balances(TENANT)
    assert places(balances) == (7, 2)
    assert remaining(balances, "fast", "tokens") == 0  # charged, and charged once


async def test_renewing_moves_the_expiry_and_takes_anew_what_came_back_too_early(
    pools: RedisPools, redis_url: str
) -> None:
    short = RedisPools(redis_url, lease_us=60_000, budget_us=BUDGET_US)
    held = [(await short.reserve_first(TENANT, name, [FAST])).reservation for name in "ab"]
    live, lost = held
    assert live is not None
    assert lost is not None
    with Redis.from_url(redis_url, decode_responses=True) as client:
        client.zadd("lw1:{acme}:lease", {lost.lease: 1}, xx=True)
        assert (await pools._reaper.reap_tenant("acme"))[0] == 1
        assert places(await pools.balances(TENANT)) == (6, 2)
        assert await pools.renew([live, lost]) == Renewal(1, 1)
        leases = dict(client.zrange("lw1:{acme}:lease", 0, -1, withscores=True))
    assert set(leases) == {live.lease, lost.lease}
    assert min(leases.values()) * 1_000 > live.expires_us + 20_000_000
    assert places(await pools.balances(TENANT)) == (5, 2)
    await short.close()


async def test_a_deleted_tenant_leaves_no_pools(pools: RedisPools, redis_url: str) -> None:
    other = Tenant(id="acme-2", tier="pro", limits=TENANT.limits)
    grants = [await pools.reserve_first(tenant, "a", [PARALLEL]) for tenant in (TENANT, other)]
    for _ in range(2):  # a second time is harmless
        await pools.forget(TENANT.id)
    assert grants[0].reservation is not None
    assert await pools.renew([grants[0].reservation]) == Renewal(0, 0)
    assert not await pools.settle(grants[0].reservation, {"fast": 1})  # it ran on meanwhile
    with Redis.from_url(redis_url, decode_responses=True) as client:
        keys = {f"lw1:{{acme-2}}:{part}" for part in ("lease", "p:deep", "p:fast")} | {reaper.KEY}
        assert set(client.scan_iter("*")) == keys


async def test_keys_that_ended_for_good_leave_no_pools_and_no_accounts(
    pools: RedisPools, redis_url: str
) -> None:
    limits = {"fast": GroupLimits(requests_per_min=60, tokens_per_min=6_000, max_concurrent=2)}
    for key_id in ("ended", "also-ended", "lives"):
        accounts = (Account(f"k.{key_id}", hard=(10_000, -1, -1)),)
        tenant = Tenant(
            id="acme",
            tier="pro",
            limits=TENANT.limits,
            key_id=key_id,
            key_limits=limits,
            accounts=accounts,
        )
        held = await pools.reserve_first(tenant, key_id, [(Demand("fast", 10, 1_000),)])
        assert held.reservation is not None
        await pools.settle(held.reservation, {"fast": 4}, 500)

    def kept(key_id: str) -> list[str]:
        with Redis.from_url(redis_url, decode_responses=True) as client:
            parts = [client.hkeys(f"lw1:{{acme}}:{part}") for part in ("p:fast", "p:deep", "spend")]
        return [name for names in parts for name in names if f"k.{key_id}:" in name]

    before = kept("lives")
    assert kept("ended")
    assert kept("also-ended")
    for _ in range(2):  # a second time is harmless
        await pools.forget("acme", ["ended", "also-ended"])
    assert (kept("ended"), kept("also-ended"), kept("lives")) == ([], [], before)
    assert places(await pools.balances(TENANT)) == (7, 2)  # the tenant's own are as they were


async def test_a_flushed_redis_heals_itself(pools: RedisPools, redis_url: str) -> None:
    before = await pools.reserve_first(TENANT, "a", [PARALLEL])
    assert before.reservation is not None
    with Redis.from_url(redis_url) as client:
        client.flushall()
        client.script_flush()
    assert not await pools.settle(before.reservation, {"fast": 1})  # it knows of no pools
    after = await pools.reserve_first(TENANT, "b", [PARALLEL])
    assert places(after.balances) == (6, 1)


async def test_waiting_as_told_gets_in(pools: RedisPools) -> None:
    limits = GroupLimits(requests_per_min=6_000, tokens_per_min=6_000, max_concurrent=9)
    tenant = Tenant(id="waiter", tier="free", limits={"fast": limits})
    request = [(Demand(group="fast", tokens=4),)]
    await pools.reserve_first(tenant, "a", [(Demand(group="fast", tokens=5_999),)])
    for number in range(1_000):  # a slow machine may leave the time for what is asked to come back
        refused = await pools.reserve_first(tenant, f"b{number}", request)
        if refused.index is None:
            break
    assert refused.limited_by == ("fast", "tokens")
    assert 0 < refused.wait_us <= 30_000
    await asyncio.sleep(refused.wait_us / 1e6)
    assert (await pools.reserve_first(tenant, "c", request)).index == 0


async def test_what_is_asked_behind_a_settlement_finds_it_done(pools: RedisPools) -> None:
    """Nobody waits for its answer, and calls may gather for one write meanwhile."""
    limits = GroupLimits(requests_per_min=6_000, tokens_per_min=6_000, max_concurrent=1)
    tenant = Tenant(id="hasty", tier="free", limits={"fast": limits})
    held = await pools.reserve_first(tenant, "0", [FAST])
    assert held.index == 0
    for number in range(1, 50):
        others = [asyncio.ensure_future(pools.balances(TENANT)) for _ in range(number % 3)]
        await asyncio.sleep(0)
        assert held.reservation is not None
        sent = pools.settle(held.reservation, {"fast": 1})
        held = await pools.reserve_first(tenant, str(number), [FAST])
        assert held.index == 0
        assert await sent
        await asyncio.gather(*others)


@pytest.mark.parametrize("tenant_id", ["a}b", "", "UPPER", "x" * 65, "a:b", "é"])
async def test_a_tenant_id_cannot_name_other_keys(pools: RedisPools, tenant_id: str) -> None:
    tenant = Tenant(id=tenant_id, tier="free", limits=TENANT.limits)
    with pytest.raises(ValueError, match="tenant id"):
        await pools.reserve_first(tenant, "a", [FAST])


async def test_a_cancelled_call_breaks_no_other(pools: RedisPools) -> None:
    calls = [
        asyncio.ensure_future(pools.reserve_first(TENANT, str(number), [FAST]))
        for number in range(5)
    ]
    await asyncio.sleep(0)
    calls[2].cancel()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(results[2], asyncio.CancelledError)
    assert all(not isinstance(result, BaseException) for result in results[:2] + results[3:])


async def until_reserved(pools: RedisPools, name: str) -> None:
    """Ask until it is granted; a busy machine may take longer than a budget, too."""
    give_up_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            if (await pools.reserve_first(TENANT, name, [FAST])).index == 0:
                return
        except PoolsUnavailable:
            pass
        assert time.monotonic() < give_up_s
        await asyncio.sleep(0.005)


async def test_a_frozen_redis_costs_a_bounded_wait_and_recovers() -> None:
    server = EmbeddedRedis()
    pools = RedisPools(await server.start(), lease_us=50_000)
    try:
        await until_reserved(pools, "before")
        assert server.pid is not None
        os.kill(server.pid, signal.SIGSTOP)
        try:
            async with asyncio.timeout(PATIENCE_S):  # redis-py's own default would take 59 s
                results = await asyncio.gather(
                    *(pools.reserve_first(TENANT, str(n), [FAST]) for n in range(200)),
                    return_exceptions=True,
                )
        finally:
            os.kill(server.pid, signal.SIGCONT)
        assert all(isinstance(result, PoolsUnavailable) for result in results)
        # What the thawed server still carried out for callers long gone runs out with its leases.
        await until_reserved(pools, "after")
    finally:
        await pools.close()
        await server.stop()


async def test_a_dead_redis_is_said_to_be_away() -> None:
    server = EmbeddedRedis()
    pools = RedisPools(await server.start(), budget_us=BUDGET_US)
    grant = await pools.reserve_first(TENANT, "a", [FAST])
    assert grant.reservation is not None
    await server.stop()
    with pytest.raises(PoolsUnavailable):
        await pools.reserve_first(TENANT, "b", [FAST])
    with pytest.raises(PoolsUnavailable):
        await pools.settle(grant.reservation, {"fast": 1})
    with pytest.raises(PoolsUnavailable):
        await pools.renew([grant.reservation])
    with pytest.raises(PoolsUnavailable):
        await pools.ping()
    await pools.close()


async def test_an_error_reply_fails_its_own_call_only(pools: RedisPools, redis_url: str) -> None:
    with Redis.from_url(redis_url) as client:
        client.set("lw1:{broken}:lease", "not a sorted set")
    broken = Tenant(id="broken", tier="free", limits=TENANT.limits)
    results = await asyncio.gather(
        pools.reserve_first(broken, "a", [FAST]),
        pools.reserve_first(TENANT, "b", [FAST]),
        pools.reserve_first(broken, "c", [FAST]),
        return_exceptions=True,
    )
    assert [isinstance(result, PoolsUnavailable) for result in results] == [True, False, True]


async def test_a_dropped_connection_is_made_anew(pools: RedisPools, redis_url: str) -> None:
    assert (await pools.reserve_first(TENANT, "a", [FAST])).index == 0
    with Redis.from_url(redis_url) as client:
        client.client_kill_filter(_type="normal", skipme=True)
    grant = await pools.reserve_first(TENANT, "b", [FAST])
    assert places(grant.balances) == (5, 2)


async def test_closing_fails_what_waits(redis_url: str) -> None:
    pools = RedisPools(redis_url)
    call = asyncio.ensure_future(pools.reserve_first(TENANT, "a", [FAST]))
    await asyncio.sleep(0)
    await pools.close()
    with pytest.raises(PoolsUnavailable):
        await call


async def test_a_repeated_settlement_charges_nothing_for_a_reservation_that_came_after_it(
    pools: RedisPools,
) -> None:
    """The reply to the first settlement was lost, and so was what its reservation came to."""
    grant = await pools.reserve_first(TENANT, "a", [PARALLEL])
    assert grant.reservation is not None
    used: dict[BackendGroup, int] = {"fast": 400_000, "deep": 400_000}
    assert await pools.settle(grant.reservation, used, once=True)
    await pools.adopt(TENANT, grant.reservation)  # the late one
    assert places(await pools.balances(TENANT)) == (6, 1)
    assert not await pools.settle(grant.reservation, used, once=True)
    left = await pools.balances(TENANT)
    assert places(left) == (7, 2)
    assert min(remaining(left, group, "tokens") for group in used) >= 600_000


async def test_a_soft_limit_that_an_outage_spent_is_told_with_the_next_task(
    pools: RedisPools,
) -> None:
    """What ended meanwhile is adopted and charged; nobody passes on what these replies say."""
    account = Account("t", (1_000, -1, -1), (500, -1, -1))
    spender = Tenant(id="spender", tier="pro", limits=TENANT.limits, accounts=(account,))
    away, back = MemoryPools(), MemoryPools()
    demands = (Demand(group="fast", tokens=1, most_nusd=300),)
    for name in ("a", "b", "c"):  # it is spent when the third is adopted
        there = away.reserve_first(spender, name, [demands], 0).reservation
        assert there is not None
        away.settle(there, {"fast": 1}, 0, 300)
        told = [await pools.adopt(spender, there), back.adopt(spender, there, 0)]
        assert [grant.accounts[0].soft_told[0] for grant in told] == [False, False]
        await pools.settle(there, {"fast": 1}, 300)
        back.settle(there, {"fast": 1}, 0, 300)
    cheap = (Demand(group="fast", tokens=1, most_nusd=10),)
    told = [await pools.reserve_first(spender, name, [cheap]) for name in ("d", "e")]
    assert [grant.accounts[0].soft_told[0] for grant in told] == [True, False]
