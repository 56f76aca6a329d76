"""Tests the policy store on a real Redis: versions, compare-and-set, rollback, audit, news."""

import asyncio
import hashlib
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from router.policy import store as policy_store
from router.policy.policy import PolicyError
from router.policy.store import (
    NoSuchVersion,
    PolicyConflict,
    PolicyStore,
    PolicyStoreUnavailable,
    State,
    read_version,
)
from router.redis.audit import Author
from tests.integration.policies import ONE, TWO


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator["Redis"]:
    async with Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture
def store(redis: "Redis") -> PolicyStore:
    return PolicyStore(redis)


async def test_nothing_was_ever_stored(store: PolicyStore) -> None:
    assert await store.state() == State()
    assert await store.versions() == []
    assert await store.audit() == []
    with pytest.raises(NoSuchVersion):
        await store.rollback(expected=0, author=Author("ann"))


async def test_versions_are_numbered_and_never_change(store: PolicyStore) -> None:
    assert await store.put(ONE, author=Author("ann"), comment="first") == (1, True)
    assert await store.put(TWO, author=Author("bob")) == (2, True)
    assert await store.put(TWO, author=Author("ann")) == (2, False), (
        "the same content is the same version"
    )
    assert await store.put(ONE, author=Author("ann")) == (3, True), "unless others came between"
    first, content = await store.load(1)
    assert (first.author, first.comment, first.label, content) == ("ann", "first", "one", ONE)
    assert [stored.version for stored in await store.versions()] == [3, 2, 1]
    assert (await store.state()).active == 0, "storing puts nothing in force"
    with pytest.raises(NoSuchVersion):
        await store.load(4)
    with pytest.raises(PolicyError):
        await store.put(b"nonsense", author=Author("ann"))


async def test_activate_and_roll_back(store: PolicyStore) -> None:
    for content in (ONE, TWO):
        await store.put(content, author=Author("ann"))
    await store.activate(1, expected=0, author=Author("ann"))
    await store.activate(2, expected=1, author=Author("bob"), comment="better")
    assert (await store.state()).active == 2
    assert await store.rollback(expected=2, author=Author("ann"), comment="worse") == 1
    assert await store.rollback(expected=1, author=Author("ann")) == 0
    assert (await store.state()).active == 0
    with pytest.raises(NoSuchVersion, match="no policy was in force before the one that is"):
        await store.rollback(expected=0, author=Author("ann"))
    lines = [(line.action, line.author, line.before, line.after) for line in await store.audit()]
    assert lines == [
        ("policies.rollback", "ann", {"active": 1}, {"active": 0}),
        ("policies.rollback", "ann", {"active": 2}, {"active": 1}),
        ("policies.activate", "bob", {"active": 1}, {"active": 2}),
        ("policies.activate", "ann", {"active": 0}, {"active": 1}),
        ("policies.store", "ann", {"last": 1}, {"last": 2}),
        ("policies.store", "ann", {"last": 0}, {"last": 1}),
    ]
    assert [line.comment for line in await store.audit(2)] == ["", "worse"]


async def test_what_is_activated_again_is_not_what_was_before(store: PolicyStore) -> None:
    await store.put(ONE, author=Author("ann"))
    await store.activate(1, expected=0, author=Author("ann"))
    await store.activate(1, expected=1, author=Author("ann"))
    assert await store.rollback(expected=1, author=Author("ann")) == 0


async def test_an_old_version_in_force_is_activated_again(
    store: PolicyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy_store, "MAX_VERSIONS", 1)
    await store.put(ONE, author=Author("ann"))
    await store.activate(1, expected=0, author=Author("ann"))
    await store.put(TWO, author=Author("ann"))
    await store.activate(1, expected=1, author=Author("ann"))
    assert (await store.load(1))[1] == ONE


async def test_two_admins_never_undo_each_other_unseen(store: PolicyStore) -> None:
    for content in (ONE, TWO):
        await store.put(content, author=Author("ann"))
    await store.activate(1, expected=0, author=Author("ann"))
    with pytest.raises(PolicyConflict, match="version 1 is in force, not 0"):
        await store.activate(2, expected=0, author=Author("bob"))
    with pytest.raises(PolicyConflict):
        await store.rollback(expected=2, author=Author("bob"))
    with pytest.raises(PolicyConflict):
        await PolicyStore(store._redis).rollback(expected=3, author=Author("bob"))
    with pytest.raises(NoSuchVersion):
        await store.activate(9, expected=1, author=Author("bob"))
    with pytest.raises(NoSuchVersion):
        await store.shadow(9, author=Author("bob"))
    assert (await store.state()).active == 1
    outcomes = await asyncio.gather(
        *(store.activate(2, expected=1, author=Author(f"a{n}")) for n in range(20)),
        return_exceptions=True,
    )
    assert outcomes.count(None) == 1
    assert sum(isinstance(outcome, PolicyConflict) for outcome in outcomes) == 19


async def test_many_store_at_once(store: PolicyStore) -> None:
    documents = [b'version = "%d"' % n for n in range(4)]
    stored = await asyncio.gather(
        *(store.put(content, author=Author("a")) for content in documents)
    )
    assert sorted(version for version, _ in stored) == [1, 2, 3, 4]
    for content, (version, is_new) in zip(documents, stored, strict=True):
        assert is_new
        assert (await store.load(version))[1] == content


async def test_a_number_is_never_given_twice_even_if_redis_forgot(store: PolicyStore) -> None:
    assert await store.put(ONE, author=Author("ann"), floor=7) == (8, True)
    assert await store.put(TWO, author=Author("ann"), floor=3) == (9, True)


async def test_old_versions_go_but_never_one_in_force(
    store: PolicyStore, redis: "Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy_store, "MAX_VERSIONS", 3)
    for n in range(1, 8):
        await store.put(b'version = "%d"' % n, author=Author("ann"))
        if n == 1:
            await store.activate(1, expected=0, author=Author("ann"))
        if n == 2:
            await store.shadow(2, author=Author("ann"))
    assert [stored.version for stored in await store.versions()] == [7, 6, 5, 2, 1]
    await store.activate(7, expected=1, author=Author("ann"))
    assert await redis.exists("lw1:{policy}:v:1") == 0
    assert await redis.ttl("lw1:{policy}:v:7") == -1, "nothing expires"


async def test_a_shadow_comes_and_goes(store: PolicyStore) -> None:
    await store.put(ONE, author=Author("ann"))
    await store.shadow(1, author=Author("ann"))
    state = await store.state()
    assert (state.active, state.shadow, state.revision) == (0, 1, 1)
    await store.shadow(0, author=Author("ann"))
    assert (await store.state()).shadow == 0


async def test_changes_are_announced(store: PolicyStore) -> None:
    changes = store.changes(poll_s=60.0)
    await anext(changes)
    await store.put(ONE, author=Author("ann"))
    waiting = asyncio.ensure_future(anext(changes))
    await store.activate(1, expected=0, author=Author("ann"))
    await asyncio.wait_for(waiting, 20.0)  # an hour's poll would not come in time
    await changes.aclose()


async def test_polling_needs_no_announcement(store: PolicyStore) -> None:
    changes = store.changes(poll_s=0.001)
    for _ in range(3):
        await anext(changes)
    await changes.aclose()


async def test_an_unreachable_redis_is_told_apart(tmp_path: object) -> None:
    async with Redis.from_url(f"unix://{tmp_path}/none.sock") as nobody:
        lost = PolicyStore(nobody)
        with pytest.raises(PolicyStoreUnavailable):
            await lost.state()
        with pytest.raises(PolicyStoreUnavailable):
            await lost.put(ONE, author=Author("ann"))
        changes = lost.changes(0.001)
        for _ in range(3):  # whoever follows it goes on looking
            await asyncio.wait_for(anext(changes), 20.0)
        await changes.aclose()


def test_what_a_stored_policy_decides_is_signed_with_its_number() -> None:
    assert read_version(7, ONE).version == "v7"
    digest = read_version(7, ONE).digest
    assert digest
    assert hashlib.sha256(ONE).hexdigest().startswith(digest)


@pytest.mark.parametrize("version", [-1, -(10**30), 1, 10**30])
async def test_what_is_no_version_is_not_put_in_force(store: PolicyStore, version: int) -> None:
    with pytest.raises(NoSuchVersion):
        await store.activate(version, expected=0, author=Author("ann"))
    with pytest.raises(NoSuchVersion):
        await store.shadow(version, author=Author("ann"))
    assert await store.state() == State()
