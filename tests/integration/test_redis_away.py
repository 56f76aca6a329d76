"""The way to Redis over real servers: frozen, killed, restarted empty, read-only, out of memory."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio.retry import Retry
from redis.backoff import ConstantBackoff, NoBackoff
from redis.retry import Retry as Waiting

from backends.drive.driver import monotonic_us
from gateway.process.embedded_redis import EmbeddedRedis
from router.classify.task import GroupLimits, Tenant
from router.pools.failover_pools import FailoverPools
from router.pools.heartbeat import KEY, Heartbeat
from router.pools.pools import BUDGET_US, Demand, Reservation
from router.pools.redis_pools import RedisPools

LIMITS = GroupLimits(requests_per_min=6_000, tokens_per_min=1_000_000, max_concurrent=40)
TENANT = Tenant(id="acme", tier="pro", limits={"fast": LIMITS, "deep": LIMITS})
FAST = [(Demand(group="fast", tokens=1_000),)]
PATIENCE_S = 60.0  # bounds a hang; never decides whether something was fast enough
PATIENT_US = 20_000_000  # where nothing is wrong with Redis


class Gateway:
    """The pools of one gateway, watched as a gateway watches them."""

    def __init__(self, url: str, name: str, budget_us: int) -> None:
        timeout_s = budget_us / 1e6
        self._redis = AsyncRedis.from_url(
            url,
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            retry=Retry(NoBackoff(), 0),
        )
        self.heartbeat = Heartbeat(self._redis, name)
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
        """What a busy machine was too slow for within a budget is charged by the next look."""
        await self.until(lambda: self.pools.mode == "redis" and not self.pools.report.num_unsettled)

    async def reserve(self, name: str) -> Reservation:
        grant = await self.pools.reserve_first(TENANT, name, FAST)
        assert grant.reservation is not None
        return grant.reservation

    async def close(self) -> None:
        await self.pools.close()
        await self._redis.aclose()


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


def places_held(url: str) -> int:
    patience = Waiting(ConstantBackoff(0.01), int(PATIENCE_S / 0.01))  # it may be starting again
    with Redis.from_url(url, retry=patience) as client:
        return int(client.hget("lw1:{acme}:p:fast", "n") or 0)


async def test_a_frozen_redis_is_gone_around_and_then_brought_up_to_date() -> None:
    server = EmbeddedRedis()
    url = await server.start()
    try:
        async with gateway(url) as one:
            await one.until_back()  # a busy machine may have missed the first look
            assert server.pid is not None
            before = await one.reserve("before")
            os.kill(server.pid, signal.SIGSTOP)
            try:
                # All at once: they wait for one budget together, and none is refused.
                during = await asyncio.gather(*(one.reserve(f"during-{n}") for n in range(10)))
                await one.until_away()
                late = await one.reserve("late")
                for reservation in (before, *during[:5]):
                    await one.pools.settle(reservation, {"fast": 10})
            finally:
                os.kill(server.pid, signal.SIGCONT)
            await one.until_back()
            assert one.pools.report.num_unsettled == 0
            assert places_held(url) == 6
            for reservation in (*during[5:], late):
                await one.pools.settle(reservation, {"fast": 10})
            await one.until_settled()
            assert places_held(url) == 0
            watcher = RedisPools(url, budget_us=PATIENT_US)
            balances = await watcher.balances(TENANT)
            await watcher.close()
            spent = next(b for b in balances if (b.group, b.unit) == ("fast", "tokens"))
            assert spent.remaining >= LIMITS.tokens_per_min - 12 * 10
    finally:
        await server.stop()


async def test_a_killed_redis_comes_back_empty_and_learns_what_runs() -> None:
    server = EmbeddedRedis(first_pause_s=0.05)
    url = await server.start()
    try:
        async with gateway(url) as one:
            await one.until_back()  # a busy machine may have missed the first look
            assert server.pid is not None
            before, ending = await one.reserve("before"), await one.reserve("ending")
            os.kill(server.pid, signal.SIGKILL)
            during = await one.reserve("during")  # whether it is up again already or not
            await one.pools.settle(ending, {"fast": 10})
            await one.until(lambda: one.pools.mode == "redis" and places_held(url) == 2)
            for reservation in (before, during):
                await one.pools.settle(reservation, {"fast": 10})
            await one.until_settled()
            assert places_held(url) == 0
            with Redis.from_url(url) as client:
                assert client.zcard("lw1:{acme}:lease") == 0
    finally:
        await server.stop()


@pytest.mark.parametrize("trouble", ["readonly", "memory"])
async def test_a_redis_that_takes_no_writes_is_away(trouble: str) -> None:
    server = EmbeddedRedis()
    url = await server.start()
    try:
        async with gateway(url) as one:
            await one.until_back()  # a busy machine may have missed the first look
            running = await one.reserve("running")
            with Redis.from_url(url) as client:
                if trouble == "readonly":
                    client.replicaof("127.0.0.1", "1")
                else:
                    client.config_set("maxmemory-policy", "noeviction")
                    client.config_set("maxmemory", "1")
                await one.until_away()
                meanwhile = await one.reserve("meanwhile")
                if trouble == "readonly":
                    client.replicaof("NO", "ONE")
                else:
                    client.config_set("maxmemory", "0")
                await one.until_back()
            assert places_held(url) == 2
            for reservation in (running, meanwhile):
                await one.pools.settle(reservation, {"fast": 10})
            await one.until_settled()
            assert places_held(url) == 0
    finally:
        await server.stop()


async def test_gateways_count_each_other(redis_url: str) -> None:
    async with (
        gateway(redis_url, "one", PATIENT_US) as one,
        gateway(redis_url, "two", PATIENT_US) as two,
    ):
        await one.pools.check()
        assert (one.pools.report.num_gateways, two.pools.report.num_gateways) == (2, 2)
        await two.heartbeat.stop()
        assert (await one.heartbeat.beat()).num_gateways == 1
        with Redis.from_url(redis_url) as client:
            client.zadd(KEY, {"long gone": 1})
        assert (await one.heartbeat.beat()).num_gateways == 1


async def test_a_redis_that_forgot_us_says_so(redis_url: str) -> None:
    async with gateway(redis_url, budget_us=PATIENT_US) as one:
        await one.reserve("running")
        assert not (await one.heartbeat.beat()).is_new
        with Redis.from_url(redis_url) as client:
            client.flushall()
        assert places_held(redis_url) == 0
        await one.pools.check()
        assert places_held(redis_url) == 1


async def test_a_gateway_without_any_redis_is_blind() -> None:
    async with gateway("unix:///nowhere/redis.sock") as one:
        assert one.pools.blind
        assert not one.pools.ready
