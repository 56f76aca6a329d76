"""Tests that gateways follow the store: what comes into force, what stays, and the cache."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from gateway.store.policy_watch import InForce, PolicyWatch
from router.policy.policy import DEFAULT_POLICY
from router.policy.store import PolicyStore, PolicyStoreUnavailable
from router.redis.audit import Author
from tests.integration.policies import ONE, TWO


class Gate(PolicyStore):
    """Is a store that a test can take away."""

    is_open = True

    async def state(self):  # type: ignore[no-untyped-def]
        if not self.is_open:
            raise PolicyStoreUnavailable("taken away")
        return await super().state()


class Follower:
    """Is a gateway's watch, with what it reports."""

    def __init__(self, redis: "Redis", cache: Path | None = None) -> None:
        self.store = Gate(redis)
        self.taken: list[InForce] = []
        self.reloads: list[str] = []
        self.watch = PolicyWatch(
            self.store,
            DEFAULT_POLICY,
            cache=cache,
            on_change=self.taken.append,
            on_reload=self.reloads.append,
        )

    @property
    def versions(self) -> tuple[str, int, int]:
        current = self.watch.current
        return current.source, current.version, current.shadow_version


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator["Redis"]:
    async with Redis.from_url(redis_url) as client:
        yield client


async def activate(redis: "Redis", content: bytes, *, floor: int = 0) -> int:
    store = PolicyStore(redis)
    version, _ = await store.put(content, author=Author("ann"), floor=floor)
    await store.activate(version, expected=(await store.state()).active, author=Author("ann"))
    return version


async def test_what_the_store_says_comes_into_force(redis: "Redis") -> None:
    follower = Follower(redis)
    await follower.watch.start()
    assert follower.versions == ("configured", 0, 0)
    await activate(redis, ONE)
    assert await follower.watch.refresh()
    assert follower.versions == ("store", 1, 0)
    assert follower.watch.current.policy.version == "v1"
    await activate(redis, TWO)
    await PolicyStore(redis).shadow(1, author=Author("ann"))
    await follower.watch.refresh()
    assert follower.versions == ("store", 2, 1)
    await PolicyStore(redis).activate(0, expected=2, author=Author("ann"))
    await follower.watch.refresh()
    assert follower.versions == ("configured", 0, 1)
    assert follower.watch.current.policy is DEFAULT_POLICY
    assert follower.reloads == ["ok"] * 3
    assert follower.watch.current == follower.taken[-1]


async def test_a_running_watch_hears_of_a_change(redis: "Redis") -> None:
    follower = Follower(redis)
    heard = asyncio.Event()
    follower.watch._on_change = lambda _: heard.set()
    running = asyncio.create_task(follower.watch.run())
    await activate(redis, ONE)
    await asyncio.wait_for(heard.wait(), 20.0)
    while not running.done():
        running.cancel()  # again: redis-py 8.1 loses one that comes while a reply does
        await asyncio.wait((running,), timeout=0.1)
    assert follower.versions == ("store", 1, 0)


async def test_where_subscribing_is_refused_polling_is_enough(
    redis: "Redis", redis_url: str
) -> None:
    await redis.execute_command(
        "ACL", "SETUSER", "deaf", "on", "nopass", "~*", "+@all", "resetchannels"
    )
    async with Redis.from_url(redis_url, username="deaf", password="any") as deaf:
        follower = Follower(deaf)
        heard = asyncio.Event()
        follower.watch._on_change = lambda _: heard.set()
        await activate(redis, ONE)
        running = asyncio.create_task(follower.watch.run())
        await asyncio.wait_for(heard.wait(), 20.0)
        heard.clear()
        await activate(redis, TWO)
        await asyncio.wait_for(heard.wait(), 20.0)
        while not running.done():
            running.cancel()
            await asyncio.wait((running,), timeout=0.1)
    await redis.execute_command("ACL", "DELUSER", "deaf")
    assert follower.versions == ("store", 2, 0)


async def test_a_store_that_is_away_changes_nothing_and_is_followed_again(redis: "Redis") -> None:
    await activate(redis, ONE)
    follower = Follower(redis)
    await follower.watch.start()
    follower.store.is_open = False
    assert not await follower.watch.refresh()
    assert follower.versions == ("store", 1, 0)
    await activate(redis, TWO)
    follower.store.is_open = True
    await follower.watch.refresh()
    assert follower.versions == ("store", 2, 0)
    assert follower.reloads == ["ok", "unavailable", "ok"]


async def test_a_store_that_forgot_everything_changes_nothing(redis: "Redis") -> None:
    await activate(redis, ONE)
    follower = Follower(redis)
    await follower.watch.start()
    await redis.flushall()
    assert await follower.watch.refresh()
    assert follower.versions == ("store", 1, 0)
    # The next admin goes on from the number this gateway knows, and is followed.
    assert await activate(redis, TWO, floor=follower.watch.highest) == 2
    await follower.watch.refresh()
    assert follower.versions == ("store", 2, 0)


BROKEN = [b"rules = 3", b"\xff", b'{"version": "x", "invented_later": 1}']


@pytest.mark.parametrize("content", BROKEN)
async def test_a_document_that_cannot_be_read_changes_nothing(
    redis: "Redis", content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    await activate(redis, ONE)
    follower = Follower(redis)
    await follower.watch.start()
    version = await activate(redis, TWO)
    await redis.hset(f"lw1:{{policy}}:v:{version}", "content", content)  # a newer gateway's, or rot
    for _ in range(3):
        assert not await follower.watch.refresh()
    assert follower.versions == ("store", 1, 0)
    assert follower.reloads == ["ok", "invalid", "invalid", "invalid"]
    assert caplog.text.count("stays in force") == 1, "said once, counted always"
    await redis.hset(f"lw1:{{policy}}:v:{version}", "content", TWO)
    assert await follower.watch.refresh()
    assert follower.versions == ("store", 2, 0)


async def test_a_document_that_is_lost_is_not_the_default_policy(redis: "Redis") -> None:
    await activate(redis, ONE)
    follower = Follower(redis)
    await follower.watch.start()
    version = await activate(redis, TWO)
    await redis.hdel(f"lw1:{{policy}}:v:{version}", "content")
    assert not await follower.watch.refresh()
    assert follower.versions == ("store", 1, 0)


async def test_a_version_that_is_gone_changes_nothing(redis: "Redis") -> None:
    follower = Follower(redis)
    await activate(redis, ONE)
    await redis.delete("lw1:{policy}:v:1")
    await follower.watch.start()
    assert follower.versions == ("configured", 0, 0)
    assert follower.reloads == ["invalid"]


async def test_the_last_good_policy_survives_a_start_without_the_store(
    redis: "Redis", tmp_path: Path
) -> None:
    cache = tmp_path / "policy.json"
    await activate(redis, ONE)
    await Follower(redis, cache).watch.start()
    async with Redis.from_url(f"unix://{tmp_path}/none.sock") as nobody:
        blind = Follower(nobody, cache)
        await blind.watch.start()
        assert blind.versions == ("last_good", 1, 0)
        assert blind.taken[-1].policy.version == "v1"
        assert blind.watch.highest == 1
    await redis.flushall()
    forgotten = Follower(redis, cache)
    await forgotten.watch.start()
    assert forgotten.versions == ("last_good", 1, 0)


async def test_a_return_to_the_configured_policy_is_remembered(
    redis: "Redis", tmp_path: Path
) -> None:
    cache = tmp_path / "policy.json"
    await activate(redis, ONE)
    follower = Follower(redis, cache)
    await follower.watch.start()
    await PolicyStore(redis).rollback(expected=1, author=Author("ann"))
    await follower.watch.refresh()
    assert not cache.exists()


@pytest.mark.parametrize("content", [b"", b"rot", b'{"version": 1, "content": "!"}'])
async def test_a_cache_that_cannot_be_read_is_no_obstacle(
    redis: "Redis", tmp_path: Path, content: bytes
) -> None:
    cache = tmp_path / "policy.json"
    cache.write_bytes(content)
    follower = Follower(redis, cache)
    await follower.watch.start()
    assert follower.versions == ("configured", 0, 0)


async def test_a_cache_that_cannot_be_written_is_no_obstacle(
    redis: "Redis", tmp_path: Path
) -> None:
    await activate(redis, ONE)
    follower = Follower(redis, tmp_path / "missing" / "policy.json")
    await follower.watch.start()
    assert follower.versions == ("store", 1, 0)
