"""Tests what outcomes taught, through a real Redis: it is added up, kept, and reset everywhere."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
from redis.asyncio import Redis

from router.learn.experience import Experience
from router.learn.learned_store import LearnedStore
from router.learn.learning import ARMS, NUM_TRAITS, GainLearner, Observation
from tests.patience import until

CHANCE = np.random.default_rng(20_260_118)


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    client: Redis = Redis.from_url(redis_url)
    await client.flushdb()
    yield client
    await client.aclose()


def teach(learner: GainLearner, count: int) -> None:
    for _ in range(count):
        success = {"fast": float(CHANCE.random() < 0.4), "deep": float(CHANCE.random() < 0.9)}
        vector = np.clip(CHANCE.normal(size=NUM_TRAITS) / 3, -3, 3)
        vector[0] = 1.0
        learner.observe(Observation(vector, 0.2, success))  # type: ignore[arg-type]


class Process:
    """Is one gateway's part of it."""

    def __init__(self, redis: Redis) -> None:
        self.experience = Experience()
        self.store = LearnedStore(redis, self.experience)

    @property
    def learner(self) -> GainLearner:
        return self.experience.learner("acme")

    async def tick(self) -> None:
        await self.store.refresh()
        await self.store.share()


async def test_processes_know_the_sum_of_what_each_learned(redis: Redis) -> None:
    one, two = Process(redis), Process(redis)
    teach(one.learner, 120)
    teach(two.learner, 130)
    for process in (one, two, one):
        await process.tick()
    assert one.learner.fresh is None
    for arm in ARMS:
        assert one.learner.known[arm].num_outcomes == pytest.approx(250)
        np.testing.assert_array_equal(one.learner.known[arm].gram, two.learner.known[arm].gram)
    assert one.learner.trust == 1
    newcomer = Process(redis)
    assert await newcomer.store.load("acme")
    assert newcomer.learner.distance == pytest.approx(one.learner.distance, rel=0.05)
    assert await redis.ttl("lw1:{acme}:learned") > 0


async def test_a_write_that_another_crosses_is_not_lost(redis: Redis) -> None:
    processes = [Process(redis) for _ in range(3)]
    for _ in range(5):
        for process in processes:
            teach(process.learner, 3)
        await processes[0].store.share()
        await processes[2].store.share()
        await processes[1].store.share()
    for process in processes * 2:
        await process.tick()
    for process in processes:
        assert process.learner.known["fast"].num_outcomes == pytest.approx(45)


async def test_a_reset_reaches_all_and_can_be_undone(redis: Redis) -> None:
    one, two = Process(redis), Process(redis)
    teach(one.learner, 200)
    await one.tick()
    await two.store.load("acme")
    teach(two.learner, 5)
    await one.store.reset("acme")
    assert (one.learner.num_outcomes, one.learner.epoch) == (0, 1)
    await two.tick()
    assert (two.learner.num_outcomes, two.learner.epoch) == (0, 1)  # its fresh ones went, too
    assert await two.store.restore("acme")
    assert two.learner.num_outcomes == pytest.approx(200)
    await one.tick()
    assert (one.learner.num_outcomes, one.learner.epoch) == (pytest.approx(200), 2)
    assert not await one.store.restore("acme")
    newcomer = Process(redis)
    teach(newcomer.learner, 7)  # before it ever asked Redis: a reset long past takes nothing
    await newcomer.tick()
    assert newcomer.learner.num_outcomes == pytest.approx(207)


async def test_a_reset_takes_what_is_just_being_shared(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Process(redis)
    teach(process.learner, 30)
    await process.tick()
    teach(process.learner, 5)
    write, may_write = redis.eval, asyncio.Event()

    async def held_up(*arguments: Any) -> Any:
        await may_write.wait()
        return await write(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(redis, "eval", held_up)
        sharing = asyncio.create_task(process.store.share())
        await until(lambda: process.learner.fresh is None)
    await process.store.reset("acme")
    may_write.set()
    await sharing
    await process.tick()
    assert process.learner.num_outcomes == 0


async def test_an_erasure_says_whether_anything_was_learned(redis: Redis) -> None:
    process = Process(redis)
    assert not await process.store.erase("acme")
    teach(process.learner, 30)
    await process.tick()
    assert await process.store.erase("acme")
    assert not await process.store.restore("acme")


async def test_without_redis_outcomes_wait_in_memory(redis: Redis) -> None:
    away: Redis = Redis.from_url("unix:///nowhere/redis.sock")
    experience = Experience()
    teach(experience.learner("acme"), 30)
    await LearnedStore(away, experience).share()
    await away.aclose()
    assert experience.learner("acme").known["fast"].num_outcomes == pytest.approx(30)
    await LearnedStore(redis, experience).share()
    newcomer = Process(redis)
    assert await newcomer.store.load("acme")
    assert newcomer.learner.known["deep"].num_outcomes == pytest.approx(30)


async def test_records_of_another_version_and_strange_names_count_as_none(redis: Redis) -> None:
    process = Process(redis)
    assert not await process.store.load("nobody")
    assert not await process.store.load("{acme}:p:fast")
    await redis.set("lw1:{acme}:learned", b"\xff not msgpack")
    teach(process.learner, 20)
    await process.tick()
    assert process.learner.known["fast"].num_outcomes == pytest.approx(20)
