"""A gateway tells what its Redis may drop, on a real Redis."""

import asyncio
import time

import pytest
from redis.asyncio import Redis

from gateway.process.maintenance import follow_evictions
from router.redis.cancelling import cancelled
from router.redis.client import redis_client

PATIENCE_S = 60.0  # a bound for what takes milliseconds


async def settings(redis: Redis, max_memory_bytes: int, policy: str) -> None:
    await redis.config_set("maxmemory-policy", policy)
    await redis.config_set("maxmemory", max_memory_bytes)


async def told(caplog: pytest.LogCaptureFixture, text: str) -> None:
    give_up_s = time.monotonic() + PATIENCE_S
    while text not in caplog.text:
        assert time.monotonic() < give_up_s
        await asyncio.sleep(0.005)


async def test_what_may_go_and_what_went_is_logged(
    redis_url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.process.maintenance.EVICTIONS_INTERVAL_S", 0.01)
    async with redis_client(redis_url, timeout_s=30) as redis:
        await redis.config_resetstat()  # whose evictions are those of other tests
        await settings(redis, 0, "allkeys-lru")
        following = asyncio.create_task(follow_evictions(redis))
        try:
            await told(caplog, "allkeys-lru evicts pools")
            await settings(redis, 0, "volatile-lru")
            await redis.set("a", b"x" * 1_000, ex=60)
            await redis.config_set("maxmemory", 1)
            await told(caplog, "keys dropped since it started: 1")
        finally:
            await settings(redis, 0, "noeviction")
            await cancelled(following)
    assert caplog.text.count("evicts pools") == 1
