"""Stored responses are bounded by tenant and together, on a real Redis."""

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from gateway.store.response_store import ResponseStore
from gateway.store.stored_bytes import RESPONSES, StoredBytes
from gateway.store.stored_response import StoredResponse
from router.redis.client import redis_client

KIB = 1 << 10


def stored(num_bytes: int, *ancestors: str) -> StoredResponse:
    return StoredResponse(
        response=b"x" * num_bytes, ancestors=ancestors, input=(), output=(), num_own=0
    )


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with redis_client(redis_url, timeout_s=30) as client:
        yield client


def store_of(redis: Redis, tenant_kib: int, all_kib: int = 1_000_000) -> ResponseStore:
    counted = StoredBytes(redis, 3600, tenant_kib * KIB, all_kib * KIB)
    return ResponseStore(redis, 3600, stored_bytes=counted)


async def left(store: ResponseStore, tenant: str, num: int) -> list[int]:
    found = [await store.load(tenant, f"resp_{number}") for number in range(num)]
    return [number for number, each in enumerate(found) if each is not None]


async def test_a_tenants_own_oldest_go_first(redis: Redis) -> None:
    store = store_of(redis, tenant_kib=100)
    for number in range(5):
        await store.save("other", f"resp_{number}", stored(KIB))
    for number in range(24):
        await store.save("heavy", f"resp_{number}", stored(15 * KIB))

    assert await left(store, "other", 5) == [0, 1, 2, 3, 4]
    assert await left(store, "heavy", 24) == [18, 19, 20, 21, 22, 23]
    used = await redis.hget("lw1:{heavy}:bytes", "")
    assert used is not None
    assert int(used) <= 100 * KIB


async def test_what_is_continued_is_not_the_oldest(redis: Redis) -> None:
    store = store_of(redis, tenant_kib=100)
    for number in range(6):
        ancestors = ("resp_0",) if number == 5 else ()
        await store.save("heavy", f"resp_{number}", stored(15 * KIB, *ancestors))
    await store.save("heavy", "resp_6", stored(15 * KIB))
    assert await left(store, "heavy", 7) == [0, 2, 3, 4, 5, 6]


async def test_the_newest_stays_however_large(redis: Redis) -> None:
    store = store_of(redis, tenant_kib=10)
    await store.save("heavy", "resp_0", stored(50 * KIB))
    assert await left(store, "heavy", 1) == [0]
    await store.save("heavy", "resp_1", stored(KIB))
    assert await left(store, "heavy", 2) == [1]


async def test_what_is_stored_again_or_deleted_counts_once(redis: Redis) -> None:
    store = store_of(redis, tenant_kib=100)
    for _ in range(10):
        await store.save("acme", "resp_0", stored(15 * KIB))
    await store.save("acme", "resp_0", stored(KIB), only_new=True)
    await store.save("acme", "resp_1", stored(15 * KIB))
    assert await left(store, "acme", 2) == [0, 1]
    assert await store.delete("acme", "resp_0")
    assert not await store.delete("acme", "resp_0")
    assert await store.delete("acme", "resp_1")
    assert await redis.hget("lw1:{acme}:bytes", "") == b"0"


async def test_of_all_tenants_the_largest_loses_first(redis: Redis) -> None:
    store = store_of(redis, tenant_kib=200, all_kib=220)
    for number in range(5):
        await store.save("small", f"resp_{number}", stored(10 * KIB))
    for number in range(12):
        await store.save("large", f"resp_{number}", stored(15 * KIB))
    await store.share()

    assert await left(store, "small", 5) == [0, 1, 2, 3, 4]
    assert await left(store, "large", 12) == list(range(1, 12))
    totals = await redis.zrange(RESPONSES.tenants, 0, -1, withscores=True)
    assert sum(int(num_bytes) for _, num_bytes in totals) <= 220 * KIB


async def test_what_has_expired_crowds_nobody_out(redis: Redis) -> None:
    store = store_of(redis, tenant_kib=50, all_kib=100)
    for number in range(9):
        await store.save(f"gone-{number}", "resp_0", stored(10 * KIB))
    await store.share()
    assert await redis.zcard(RESPONSES.tenants) == 9
    await redis.delete(*await redis.keys("lw1:{gone-*"))  # as if its time were over
    for number in range(3):
        await store.save("lives", f"resp_{number}", stored(15 * KIB))
    await store.share()

    assert await left(store, "lives", 3) == [0, 1, 2]
    assert await redis.zrange(RESPONSES.tenants, 0, -1) == [b"lives"]


async def test_tenants_that_have_nothing_left_are_forgotten(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.store.stored_bytes.MAX_LOOKED_UP", 4)
    store = store_of(redis, tenant_kib=50)
    await redis.zadd(RESPONSES.tenants, {f"gone-{number}": number + 1 for number in range(10)})
    for number in range(4):  # some at a time
        await store.save("lives", f"resp_{number}", stored(KIB))
        await store.share()
    assert await redis.zrange(RESPONSES.tenants, 0, -1) == [b"lives"]


async def test_bounds_follow_from_the_memory_of_redis(redis: Redis) -> None:
    await redis.config_set("maxmemory", 100 << 20)
    try:
        assert await StoredBytes(redis, 60)._read_bounds() == (25 << 20, 75 << 20)
    finally:
        await redis.config_set("maxmemory", 0)
    assert await StoredBytes(redis, 60, 7)._read_bounds() == (7, 3 << 30)
