"""Tests what is counted of tasks that ran on both engines."""

import asyncio

import pytest

from gateway.task.pipeline import handle_task
from router.strategies.table import STRATEGIES
from tests.patience import until
from tests.unit.gateway.doubles import failure, stop, text
from tests.unit.gateway.driven_task import Running
from tests.unit.gateway.playing_backend import ANSWER, Script
from tests.unit.gateway.world import World

# strategy, fast, deep -> outcome, who won (hedge only)
ENDS: list[tuple[str, Script, Script, str, str | None]] = [
    ("hedge", [], ANSWER, "ok", "deep"),
    ("hedge", ANSWER, [failure("gpu")], "degraded", "fast"),
    ("hedge", [failure()], [failure("gpu")], "error", None),
    ("breadth", ANSWER, ANSWER, "ok", None),
    ("breadth", [failure()], ANSWER, "degraded", None),
    ("breadth", ANSWER, [failure("gpu")], "degraded", None),
    ("delegate", ANSWER, [], "ok", None),
]


def told(world: World, strategy: str) -> dict[tuple[str, str], float]:
    """Returns the values by (metric, label), of those that count anything."""
    return {
        (sample.name.removeprefix("lanewise_strategy_").removesuffix("_total"), label): sample.value
        for family in world.gw.metrics.registry.collect()
        for sample in family.samples
        if sample.name.startswith("lanewise_strategy_") and sample.labels["strategy"] == strategy
        if sample.name.endswith("_total") and sample.value
        for label in [sample.labels.get("outcome") or sample.labels["group"]]
    }


@pytest.mark.parametrize(("strategy", "fast", "deep", "outcome", "winner"), ENDS)
async def test_each_task_is_counted_once(
    strategy: str, fast: Script, deep: Script, outcome: str, winner: str | None
) -> None:
    world = World(fast, deep)
    await world.run("parallel", metadata={"strategy": strategy})
    counted = told(world, strategy)
    expected = {("tasks", outcome): 1.0}
    assert counted == (expected if winner is None else expected | {("wins", winner): 1.0})


@pytest.mark.parametrize(
    "strategy", [name for name, record in STRATEGIES.items() if not record.needs_prediction]
)
async def test_what_a_client_cancels_has_not_lost(strategy: str) -> None:
    world = World([text("A.")], [text("B.")])
    metadata = {"route": "parallel", "strategy": strategy, "hedge_after_ms": "0"}
    pump = asyncio.create_task(handle_task(world.gw, world.job(metadata=metadata)))
    await until(lambda: bool(world.fast.generations or world.deep.generations))
    pump.cancel()
    await asyncio.gather(pump, return_exceptions=True)
    await world.check()
    assert told(world, strategy) == {("tasks", "cancelled"): 1.0}


async def test_a_lost_hedge_is_wasted() -> None:
    running = Running("hedge", hedge_after_ms="0")
    deep, fast = await running.deep(), await running.fast()
    deep.sink.push(text("First."))
    deep.sink.push(text(" And a lot of words behind it, to lead."))
    await running.free("fast")
    deep.sink.finish(stop(3))
    await running.end()
    assert fast.num_cancels == 1
    assert told(running.world, "hedge") == {
        ("tasks", "ok"): 1.0,
        ("wins", "deep"): 1.0,
        ("wasted_tokens", "fast"): 9.0,
    }
