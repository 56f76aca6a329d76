"""Tests stored responses through a Redis that takes none for a while, or loses what it took."""

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from gateway.store import recent_saves
from gateway.store.response_store import ResponseStore
from gateway.store.stored_response import StoredResponse
from gateway.wire.errors import ProtocolError
from router.redis.client import redis_client

RECORD = StoredResponse(response=b"{}", ancestors=(), input=(), output=(), num_own=0)


class Tried:
    """Is a store whose Redis may be away, and what it says is lost."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis
        self.is_reachable = True
        self.lost: list[tuple[str, int]] = []
        self.store = ResponseStore(
            redis, 3600, lambda: self.is_reachable, on_lost=lambda *told: self.lost.append(told)
        )

    async def save(self, *names: str) -> None:
        for name in names:
            tenant_id, _, response_id = name.partition("/")
            await self.store.save(tenant_id, response_id, RECORD)

    async def save_away(self, *names: str) -> None:
        """Saves while Redis takes nothing."""
        self.is_reachable = False
        for name in names:
            with pytest.raises(ProtocolError, match="Try again in 1s"):
                await self.save(name)
        await self.store.follow_up()
        self.is_reachable = True

    async def has(self, name: str) -> bool:
        tenant_id, _, response_id = name.partition("/")
        return await self.store.load(tenant_id, response_id) is not None


@pytest.fixture
async def tried(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Tried]:
    monkeypatch.setattr(recent_saves, "LOOK_AFTER_S", 0.0)
    async with redis_client(redis_url, timeout_s=30) as client:
        yield Tried(client)


async def test_what_went_with_a_master_is_counted_once(tried: Tried) -> None:
    await tried.save("looked/a", "looked/b", "looked/c", "other/a")
    await tried.store.follow_up()
    assert tried.lost == [], "all are there"
    await tried.redis.delete("lw1:{looked}:r:a")  # after it was looked for
    await tried.save("looked/b", "looked/d", "other/d", "other/e")
    await tried.redis.delete("lw1:{looked}:r:d", "lw1:{looked}:r:b")
    await tried.redis.delete("lw1:{other}:r:e")
    await tried.store.follow_up()
    await tried.store.follow_up()
    assert tried.lost == [("redis_lost", 3)]


async def test_a_tenant_that_redis_cannot_store_for_keeps_no_other_waiting(tried: Tried) -> None:
    await tried.save_away("broken/a", "waiting/a", "broken/b", "waiting/b")
    await tried.redis.set("lw1:{broken}:stored", "no sorted set")
    await tried.store.follow_up()
    assert [await tried.has(f"waiting/{name}") for name in "ab"] == [True, True]
    assert tried.lost == [("not_taken", 1), ("not_taken", 1)]
    await tried.redis.delete("lw1:{broken}:stored")
    await tried.store.follow_up()
    assert not await tried.has("broken/a")


async def test_what_redis_did_not_take_is_saved_once_it_does(
    tried: Tried, monkeypatch: pytest.MonkeyPatch
) -> None:
    await tried.save_away("waiting/a", "waiting/b")
    assert not await tried.has("waiting/a")
    with monkeypatch.context() as later:
        later.setattr(recent_saves, "LOOK_AFTER_S", 60.0)
        await tried.store.follow_up()
    assert await tried.has("waiting/a")
    assert await tried.has("waiting/b")
    await tried.redis.delete("lw1:{waiting}:r:a")
    await tried.store.follow_up()
    assert tried.lost == [("redis_lost", 1)], "they are looked for as any other"


async def test_who_stops_saves_the_rest(tried: Tried) -> None:
    await tried.save_away("stopping/a")
    await tried.store.close()
    assert await tried.has("stopping/a")


async def test_what_was_deleted_is_neither_lost_nor_saved_again(tried: Tried) -> None:
    await tried.save("deleting/a", "erased/a", "erased/b")
    await tried.save_away("deleting/b", "erased/c")
    assert await tried.store.delete("deleting", "a")
    assert not await tried.store.delete("deleting", "b")
    await tried.store.erase("erased")
    await tried.store.follow_up()
    assert tried.lost == []
    assert not await tried.has("deleting/b")
    assert not await tried.has("erased/c")


async def test_what_another_process_deleted_is_not_lost(tried: Tried) -> None:
    other = ResponseStore(tried.redis, 3600)
    await tried.save("both/a", "both/b", "both/c")
    assert await other.delete("both", "a")
    assert not await other.delete("both", "unknown")
    await tried.store.follow_up()
    assert tried.lost == []
    await tried.save("both/a", "both/d")
    assert await other.delete("both", "a")
    await tried.redis.delete("lw1:{both}:r:d")
    await tried.store.follow_up()
    assert tried.lost == [("redis_lost", 1)]


@pytest.mark.parametrize("name", ["MAX_WAITING_BYTES", "WAIT_S"])
async def test_what_has_no_room_or_is_too_old_is_counted(
    tried: Tried, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(recent_saves, name, 0)
    await tried.save_away("lost/a", "lost/b")
    await tried.store.follow_up()
    assert tried.lost == [("not_taken", 1)] * 2
    assert not await tried.has("lost/a")
