"""Tests capacity that follows demand, in a gateway over doubles."""

import asyncio
from typing import Any

import msgspec

from backends.contract import BackendStats
from gateway.core.adaptation import Adaptation
from gateway.task.pipeline import handle_task
from router.classify.task import Tenant
from router.waiting.capacity import CapacityBounds
from router.waiting.rules import AdaptationConfig, WaitingConfig
from tests.patience import until
from tests.unit.gateway.playing_backend import ANSWER
from tests.unit.gateway.waiting_world import PATIENCE_S, WaitingWorld, tenant

BOUNDS = CapacityBounds(min_concurrent=1, max_concurrent=100)


class AdaptiveWorld(WaitingWorld):
    """The fast engine says what a test sets; the fast group adapts."""

    def __init__(self, *, max_num_seqs: int, wait_ms: int = 30_000, **config: Any) -> None:
        waiting = WaitingConfig(wait_ms={"fast": wait_ms}, weights={"gold": 3})
        super().__init__([], waiting=waiting)
        self.seen: dict[str, Any] = {"max_num_seqs": max_num_seqs}
        self.now_us = 0
        self.adaptation = self.gw.adaptation = Adaptation(
            AdaptationConfig(groups={"fast": BOUNDS}, **config),
            waiting=self.gw.waiting,
            stats=self.stats,
            clock_us=lambda: self.now_us,
            metrics=self.gw.metrics,
        )

    def stats(self) -> list[BackendStats]:
        return [msgspec.structs.replace(self.fast.stats(), **self.seen), self.deep.stats()]

    async def tick(self, **seen: Any) -> None:
        self.now_us += 1_000_000
        self.seen |= seen
        await self.adaptation.tick()

    @property
    def limit(self) -> float:
        return self.sample("lanewise_capacity_limit", group="fast")

    def start_for(self, who: Tenant) -> "asyncio.Task[Any]":
        self.tenant = who
        return self.start()[1]


async def test_a_full_group_lets_nobody_in_and_says_when_to_come() -> None:
    world = AdaptiveWorld(max_num_seqs=2, wait_ms=0)
    running = [world.start()[1] for _ in range(2)]
    await until(lambda: len(world.fast.generations) == 2)
    _, third = world.start()
    assert await third is None
    assert world.refusal.code == "server_is_overloaded"
    assert int(world.refusal.headers["retry-after-ms"]) >= 1_000
    assert "x-ratelimit-limit-requests" not in world.refusal.headers, "no pool refused it"
    assert world.sample("lanewise_capacity_shed_total", group="fast", reason="capacity") == 1
    assert world.outcomes()["none", "shed"] == 1
    for each in running:
        each.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    await world.left()
    assert world.gw.waiting.limiter.num_running("fast") == 0


async def test_a_fallback_takes_what_a_full_group_does_not() -> None:
    world = AdaptiveWorld(max_num_seqs=1, wait_ms=0)
    world.deep.script = ANSWER
    _, one = world.start()
    await until(lambda: len(world.fast.generations) == 1)
    job = world.job(model="auto", input="Say hi.")
    pump = asyncio.create_task(handle_task(world.gw, job))
    ended = await asyncio.wait_for(pump, PATIENCE_S)
    assert ended is not None
    assert ended.backend == "gpu"
    one.cancel()
    await asyncio.gather(one, return_exceptions=True)
    await world.left()


async def test_the_limit_follows_the_engine() -> None:
    world = AdaptiveWorld(max_num_seqs=4)
    running = [world.start()[1] for _ in range(4)]
    await until(lambda: len(world.fast.generations) == 4)
    _, waiting = world.start()
    await world.waits()
    assert world.limit == 4
    await world.tick(num_running=4, num_waiting=3)
    assert world.limit == 3
    await world.tick(num_waiting=0)
    assert world.limit == 4
    await world.tick()
    assert world.limit == 5
    await asyncio.wait_for(until(lambda: len(world.fast.generations) == 5), PATIENCE_S)
    assert world.depth == 0, "there was room for it at once"
    assert world.sample("lanewise_capacity_steps_total", group="fast", direction="up") == 2
    for each in (*running, waiting):
        each.cancel()
    await asyncio.gather(*running, waiting, return_exceptions=True)
    await world.left()
    assert world.gw.waiting.limiter.num_running("fast") == 0


async def test_what_ends_makes_room_for_the_one_with_the_larger_weight() -> None:
    """Gold has three times the weight: of four that get in, three are its own."""
    world = AdaptiveWorld(max_num_seqs=4)
    gold, plain = tenant("gold"), tenant("plain")
    gold = msgspec.structs.replace(gold, tier="gold")
    first = [world.start_for(plain) for _ in range(4)]
    await until(lambda: len(world.fast.generations) == 4)
    waiting = []
    for number in range(4):
        waiting += [world.start_for(plain), world.start_for(gold)]
        await world.waits(2 * number + 2)
    await world.tick(num_running=4, kv_used_tokens=900_000)  # nearly full: no more for now
    for number, each in enumerate(first):
        each.cancel()
        await asyncio.gather(each, return_exceptions=True)
        await asyncio.wait_for(
            until(lambda number=number: len(world.fast.generations) == 5 + number),  # type: ignore[misc]
            PATIENCE_S,
        )
    by_tenant = world.gw.waiting.limiter.running_by_tenant("fast")
    running = {name: count for (name, _), count in by_tenant.items()}
    assert running == {"gold": 3, "plain": 1}
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    await world.left()
    assert world.gw.waiting.limiter.num_running("fast") == 0
