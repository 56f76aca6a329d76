"""Tests records of keys, tenants and tiers on a real Redis, followed by two gateways."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress

import msgspec
import pytest
from redis.asyncio import Redis

from gateway.access.tenant_store import MAX_RECORDS, Change, TenantStore
from gateway.access.tenant_view import TenantsView
from gateway.config.keys import KeyRecord
from gateway.config.tenants import TenantRecord
from gateway.wire.errors import ProtocolError
from router.redis.audit import AuditEntry

AUDIT = AuditEntry(author="ada", action="tenants.create", subject="acme")


class Follower:
    """Holds a store with its view, and counts how often it changed."""

    def __init__(self, redis: "Redis") -> None:
        self.tenant_view = TenantsView()
        self.changed = asyncio.Event()
        self.directory = TenantStore(
            redis, self.tenant_view, max_stale_s=3600, on_change=self.changed.set
        )


@pytest.fixture
async def followers(redis_url: str) -> AsyncIterator[tuple[Follower, Follower]]:
    async with AsyncExitStack() as stack:
        clients = [Redis.from_url(redis_url, socket_timeout=60) for _ in range(2)]
        for client in clients:
            stack.push_async_callback(client.aclose)
        first, second = (Follower(client) for client in clients)
        yield first, second


def tenant(tenant_id: str, tier: str) -> bytes:
    return msgspec.json.encode(TenantRecord(id=tenant_id, tier=tier))


def change(follower: Follower, name: str, after: bytes) -> Change:
    return Change(name, follower.tenant_view.raw(name), after)


async def test_what_one_writes_the_other_hears_of(followers: tuple[Follower, Follower]) -> None:
    writer, reader = followers
    follow = asyncio.create_task(reader.directory.follow())
    try:
        for tier in ("free", "pro"):
            reader.changed.clear()
            await writer.directory.write([change(writer, "tenant:a", tenant("a", tier))], AUDIT)
            assert writer.tenant_view.tenants["a"].tier == tier
            await asyncio.wait_for(reader.changed.wait(), 60)
            assert reader.tenant_view.tenants["a"].tier == tier
        reader.changed.clear()
        await writer.directory.write([change(writer, "tenant:a", b"")], AUDIT)
        await asyncio.wait_for(reader.changed.wait(), 60)
        assert not reader.tenant_view.tenants
    finally:
        follow.cancel()
        with suppress(asyncio.CancelledError):
            await follow
    entries = await reader.directory.audit(10)
    assert [entry.action for entry in entries] == ["tenants.create"] * 3


async def test_the_second_of_two_at_once_loses_whole(
    followers: tuple[Follower, Follower],
) -> None:
    first, second = followers
    stale = change(second, "tenant:a", tenant("a", "pro"))
    await first.directory.write([change(first, "tenant:a", tenant("a", "free"))], AUDIT)
    with pytest.raises(ProtocolError, match="in between") as caught:
        await second.directory.write([change(second, "tenant:b", tenant("b", "pro")), stale], AUDIT)
    assert caught.value.kind.status == 409
    await second.directory.refresh()
    assert {t.id: t.tier for t in second.tenant_view.tenants.values()} == {"a": "free"}


async def test_a_write_that_landed_before_its_reply_was_lost_is_told_as_landed(
    followers: tuple[Follower, Follower],
) -> None:
    first, late = followers  # the second knows of nothing that the first wrote
    made = [Change("tenant:a", b"", tenant("a", "pro")), Change("tenant:b", b"", b"")]
    for directory in (first.directory, late.directory):
        await directory.write(made, AUDIT)
    assert set(late.tenant_view.tenants) == {"a"}
    gone = [Change("tenant:a", tenant("a", "pro"), b"")]
    for directory in (first.directory, late.directory):
        await directory.write(gone, AUDIT)
    assert not late.tenant_view.tenants
    assert len(await first.directory.audit(10)) == 2, "each is one change"
    half = [Change("tenant:a", b"", tenant("a", "pro")), Change("tenant:c", b"{}", b"{}")]
    with pytest.raises(ProtocolError, match="in between"):
        await late.directory.write(half, AUDIT)


async def test_lost_records_are_kept_until_somebody_makes_new_ones(
    followers: tuple[Follower, Follower], redis_url: str
) -> None:
    first, second = followers
    await first.directory.write([change(first, "tenant:a", tenant("a", "free"))], AUDIT)
    await second.directory.refresh()
    async with Redis.from_url(redis_url) as client:
        await client.flushall()
    await second.directory.refresh()
    assert set(second.tenant_view.tenants) == {"a"}
    assert second.tenant_view.is_lost
    with pytest.raises(ProtocolError, match="Redis has lost the records"):
        await first.directory.write([change(first, "tenant:a", tenant("a", "pro"))], AUDIT)
    fresh = Change("tenant:b", b"", tenant("b", "pro"))
    await first.directory.write([fresh], AUDIT)
    await second.directory.refresh()
    assert set(first.tenant_view.tenants) == set(second.tenant_view.tenants) == {"b"}
    assert not first.tenant_view.is_lost
    assert not second.tenant_view.is_lost


async def test_there_is_an_end_to_records_and_to_remembered_removals(
    followers: tuple[Follower, Follower], redis_url: str
) -> None:
    first, second = followers
    await first.directory.write([change(first, "tenant:a", tenant("a", "free"))], AUDIT)
    await second.directory.refresh()
    async with Redis.from_url(redis_url) as client:
        filler = {f"tier:{n}": b"{}" for n in range(MAX_RECORDS)}
        await client.hset("lw1:{directory}:records", mapping=filler)  # type: ignore[arg-type]
        with pytest.raises(ProtocolError, match="no more may be"):
            await first.directory.write([Change("tenant:b", b"", tenant("b", "pro"))], AUDIT)
        await client.hdel("lw1:{directory}:records", *filler)
        removed = {f"tier:{n}": 0.5 for n in range(10_002)}
        await client.zadd("lw1:{directory}:changed", removed)  # type: ignore[arg-type]
    await first.directory.write([Change("tenant:b", b"", tenant("b", "pro"))], AUDIT)
    await second.directory.refresh()  # a new epoch: everything is read again
    assert set(second.tenant_view.tenants) == {"a", "b"}
    async with Redis.from_url(redis_url) as client:
        assert await client.zcard("lw1:{directory}:changed") == 1


def key(key_id: str) -> bytes:
    record = KeyRecord(
        id=key_id, tenant_id="a", digest="d", pepper="v1", created_s=1, created_by="ada"
    )
    return msgspec.json.encode(record)


async def test_when_a_key_was_used_is_kept_for_as_long_as_the_key(
    followers: tuple[Follower, Follower], redis_url: str
) -> None:
    first, second = followers
    made = [change(first, f"key:{key_id}", key(key_id)) for key_id in ("k1", "k2")]
    await first.directory.write(made, AUDIT)
    await first.directory.note_used({"k1": 7, "k2": 9})
    assert await second.directory.last_used_s(["k1", "k3"]) == {"k1": 7}
    assert await second.directory.last_used_s([]) == {}
    await first.directory.write([change(first, "key:k1", b"")], AUDIT)
    await first.directory.note_used({"k1": 8})  # too late
    async with Redis.from_url(redis_url) as client:
        assert await client.hgetall("lw1:{directory}:used") == {b"k2": b"9"}
