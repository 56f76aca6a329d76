"""Tests the way to Redis where servers freeze, die, come back empty, take no writes or are full."""

import asyncio
import os
import signal

import pytest
from redis import Redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry as Waiting

from gateway.process.embedded_redis import EmbeddedRedis
from router.pools.redis_pools import RedisPools
from router.redis.heartbeat import HEARD_MS, KEY
from tests.integration.watched_gateway import LIMITS, PATIENCE_S, TENANT, gateway

PATIENT_US = 20_000_000  # where nothing is wrong with Redis


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
                left = client.zrange("lw1:{acme}:lease", 0, -1)
                assert all(each.endswith(b"!") for each in left), "remembered as settled"
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
        with Redis.from_url(redis_url) as client:
            now_ms = client.time()[0] * 1_000
            for beat_ms, num_heard in ((now_ms * 2, 2), (now_ms - HEARD_MS - 1_000, 1)):
                client.zadd(KEY, {"two": beat_ms})
                await one.pools.check()
                assert (one.pools.report.num_gateways, one.pools.report.num_heard) == (2, num_heard)
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
