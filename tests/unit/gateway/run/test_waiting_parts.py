"""Tests parts of a response that find pools full: they wait as tasks do, and leave nothing."""

import asyncio
from typing import Any

import msgspec
import pytest

from gateway.task.pipeline import handle_task
from router.classify.task import GroupLimits, Tenant
from router.pools.pools import Demand, Reservation
from router.waiting.rules import WaitingConfig
from tests.e2e.events import check_response
from tests.patience import until
from tests.unit.gateway.delegating import (
    CLOSING,
    MEANWHILE,
    OPENING,
    RoundsBackend,
    messages,
    summaries,
)
from tests.unit.gateway.doubles import MANY, RecordingGeneration, stop, text
from tests.unit.gateway.waiting_world import PATIENCE_S, WaitingWorld

BOTH = WaitingConfig(wait_ms={"fast": 30_000, "deep": 30_000})


def places(fast: int = 64, deep: int = 64) -> Tenant:
    def limits(number: int) -> GroupLimits:
        return msgspec.structs.replace(MANY, max_concurrent=number)

    return Tenant(id="acme", tier="pro", limits={"fast": limits(fast), "deep": limits(deep)})


class PartsWorld(WaitingWorld):
    """Is one parallel response; most of its generations a test drives by hand."""

    def __init__(self, limits: Tenant, waiting: WaitingConfig = BOTH) -> None:
        super().__init__([], limits=limits, waiting=waiting)
        self.deep.script = []
        self.other: Reservation | None = None  # another task's

    def begin(self, strategy: str, **metadata: str) -> "asyncio.Task[Any]":
        """Begins a response, with a client's own wishes among the metadata."""
        if strategy == "delegate":
            self.fast = RoundsBackend("wafer", "fast", rounds=[OPENING, MEANWHILE, CLOSING])
            self.gw.backends = {"wafer": self.fast, "gpu": self.deep}
        metadata |= {"route": "parallel", "strategy": strategy}
        self.made = self.job(metadata=metadata, max_output_tokens=100)
        return asyncio.create_task(handle_task(self.gw, self.made))

    def queued(self, group: str) -> float:
        return self.sample("lanewise_admission_queue_depth", group=group)

    async def wait_for_queue(self, group: str, number: int) -> None:
        await asyncio.wait_for(until(lambda: self.queued(group) == number), PATIENCE_S)

    async def generation(self, group: str, number: int = 0) -> RecordingGeneration:
        backend = self.fast if group == "fast" else self.deep
        await asyncio.wait_for(until(lambda: len(backend.generations) > number), PATIENCE_S)
        return backend.generations[number]

    def occupy_deep(self) -> None:
        """Lets another task of the tenant take a place."""
        demands = [(Demand("deep", 1),)]
        grant = self.pools.memory.reserve_first(self.tenant, "another", demands, self.pools.now_us)
        assert grant.reservation is not None
        self.other = grant.reservation

    def free_deep(self) -> None:
        """Ends that task; harmless when repeated."""
        if self.other is not None:
            self.pools.memory.settle(self.other, {}, self.pools.now_us)
            self.gw.waiting.settled(self.other)
            self.other = None

    async def left(self) -> None:
        self.free_deep()
        await super().left()
        assert self.queued("deep") == 0


def answer(generation: RecordingGeneration, words: str = "One.") -> None:
    generation.sink.push(text(words))
    generation.sink.finish(stop(3))


async def test_variations_wait_for_places_while_the_others_go_on() -> None:
    world = PartsWorld(places(fast=2))
    pump = world.begin("breadth", n="5")
    await world.wait_for_queue("fast", 3)
    assert len(world.fast.generations) == 2
    first = await world.generation("fast")
    first.sink.push(text("Meanwhile."))
    await until(lambda: "Meanwhile." in str(world.heard.events))
    for number in range(5):
        answer(await world.generation("fast", number))
    answer(await world.generation("deep"), "Judged.")
    await asyncio.wait_for(pump, PATIENCE_S)
    check_response(world.heard.events)
    routing = world.terminal["routing"]
    assert routing["variations"] == {"asked": 5, "whole": 5}
    assert "errors" not in routing
    admitted = {"group": "fast", "outcome": "admitted"}
    assert world.sample("lanewise_admission_wait_seconds_count", **admitted) == 3
    await world.left()


async def speaking(world: PartsWorld) -> "asyncio.Task[Any]":
    """Returns a response whose sub-task waits, while its fast engine has said something since."""
    world.occupy_deep()
    pump = world.begin("delegate")
    await asyncio.wait_for(until(lambda: "Meanwhile." in str(world.heard.events)), PATIENCE_S)
    await world.wait_for_queue("deep", 1)
    assert world.deep.generations == []
    assert world.made.delegations == {1}
    assert world.made.redirect is not None
    return pump


async def test_a_sub_task_waits_while_the_fast_engine_speaks() -> None:
    world = PartsWorld(places(deep=1))
    pump = await speaking(world)
    world.free_deep()
    answer(await world.generation("deep"), "By induction.")
    await asyncio.wait_for(pump, PATIENCE_S)
    assert messages(world) == [("So it is.", "final_answer")]
    assert summaries(world)[-1] == "By induction."
    assert world.terminal["routing"]["delegations"][0]["state"] == "finished"
    await world.left()


async def test_a_wait_in_vain_leaves_the_part_out() -> None:
    world = PartsWorld(places(deep=1), WaitingConfig(wait_ms={"deep": 50}))
    world.occupy_deep()
    await asyncio.wait_for(world.begin("delegate"), PATIENCE_S)
    assert messages(world)[-1] == ("So it is.", "final_answer")
    routing = world.terminal["routing"]
    assert routing["delegations"][0]["state"] == "failed"
    assert "rate limit reached for the deep engines on concurrent" in routing["errors"][0]
    refused = {"group": "deep", "outcome": "refused"}
    assert world.sample("lanewise_admission_wait_seconds_count", **refused) == 1
    await world.left()


@pytest.mark.parametrize(
    ("metadata", "waits"),
    [({}, True), ({"max_wait_ms": "0"}, False), ({"deadline_ms": "1"}, False)],
)
async def test_no_part_waits_longer_than_its_client_would(
    metadata: dict[str, str], waits: bool
) -> None:
    world = PartsWorld(places(fast=1))
    pump = world.begin("breadth", n="2", **metadata)
    refused = {"group": "fast", "tier": "pro", "result": "reject", "limit": "conc"}
    name = "lanewise_ratelimit_decisions_total"
    decided = until(
        lambda: world.queued("fast") == 1 or world.sample(name, **refused, mode="redis") == 1
    )
    await asyncio.wait_for(decided, PATIENCE_S)
    assert (world.queued("fast") == 1) == waits
    pump.cancel()
    await asyncio.gather(pump, return_exceptions=True)
    await world.left()


@pytest.mark.parametrize("how", ["leaves", "stops", "cancels it", "steers it"])
async def test_a_part_that_is_not_wanted_any_more_leaves_the_queue(how: str) -> None:
    world = PartsWorld(places(deep=1))
    pump = await speaking(world)
    assert world.made.redirect is not None
    if how == "stops":
        world.made.stop("cancelled")
    elif how == "cancels it":
        world.made.redirect(1, None)
    elif how == "steers it":
        world.made.redirect(1, ())
        name, gone = "lanewise_admission_wait_seconds_count", {"group": "deep", "outcome": "left"}
        await asyncio.wait_for(until(lambda: world.sample(name, **gone) == 1), PATIENCE_S)
        await world.wait_for_queue("deep", 1)  # what it asks now stands there instead
        pump.cancel()
    else:
        pump.cancel()
    await asyncio.wait_for(asyncio.gather(pump, return_exceptions=True), PATIENCE_S)
    await world.wait_for_queue("deep", 0)
    assert world.deep.generations == []
    if how == "stops":
        assert world.terminal["incomplete_details"] == {"reason": "cancelled"}
    if how == "cancels it":
        assert world.terminal["status"] == "completed"
        assert world.terminal["routing"]["delegations"][0]["state"] == "cancelled"
    await world.left()


@pytest.mark.parametrize("strategy", ["breadth", "delegate"])
async def test_leaving_at_any_moment_of_the_wait_leaves_nothing(strategy: str) -> None:
    """It leaves while it asks, waits or is tried, and just when it got in."""
    for num_turns in range(40):
        world = PartsWorld(places(fast=1 if strategy == "breadth" else 64, deep=1))
        group = "fast" if strategy == "breadth" else "deep"
        if strategy == "delegate":
            world.occupy_deep()
        pump = world.begin(strategy)
        for _ in range(num_turns):
            await asyncio.sleep(0)
        if num_turns % 2 == 0:
            await world.wait_for_queue(group, 4 if strategy == "breadth" else 1)
            world.free_deep()
            if strategy == "breadth":
                answer(world.fast.generations[0])
            for _ in range(num_turns):
                await asyncio.sleep(0)
        pump.cancel()
        await asyncio.gather(pump, return_exceptions=True)
        await world.left()


async def test_a_gateway_that_stops_lets_a_response_end_without_its_waiting_parts() -> None:
    world = PartsWorld(places(fast=1))
    pump = world.begin("breadth", n="3")
    await world.wait_for_queue("fast", 2)
    world.gw.waiting.refuse_all()
    await world.wait_for_queue("fast", 0)
    answer(await world.generation("fast"))
    answer(await world.generation("deep"), "Judged.")
    await asyncio.wait_for(pump, PATIENCE_S)
    assert world.terminal["status"] == "completed"
    assert world.terminal["routing"]["variations"] == {"asked": 3, "whole": 1}
    await world.left()


async def test_a_full_group_of_engines_is_waited_for_too() -> None:
    world = PartsWorld(places())
    world.gw.waiting.limiter.set_limit("fast", 1, {})
    pump = world.begin("breadth", n="2")
    await world.wait_for_queue("fast", 1)
    answer(await world.generation("fast"))
    answer(await world.generation("fast", 1))
    answer(await world.generation("deep"), "Judged.")
    await asyncio.wait_for(pump, PATIENCE_S)
    assert world.terminal["routing"]["variations"] == {"asked": 2, "whole": 2}
    assert world.gw.waiting.limiter.num_running("fast") == 0
    await world.left()
