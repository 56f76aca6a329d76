"""Each strategy from request to terminal event over the simulated engines, in their own time.

Everything is real but the clock: pipeline, dispatch, strategies, drivers and engines run on an
event loop that never waits, so that a run takes as long as its engines say, each time the same.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from backends.contract import (
    BackendGroup,
)
from backends.drive.driver import TICK_US
from backends.simulated.backend import SimulatedBackend, SimulatedOptions
from backends.simulated.gpu import GpuOptions
from backends.simulated.gpu import cost_of as gpu_cost
from backends.simulated.wafer import WaferOptions
from backends.simulated.wafer import cost_of as wafer_cost
from gateway.task.pipeline import handle_task
from router.strategies.machine import PATIENCE_US
from tests.e2e.events import check_response
from tests.sim.sleeping_loop import SleepingLoop
from tests.sim.timed import HangingBackend, Punctual
from tests.unit.gateway.world import World
from wafer_engine.batching.cost_model import CostModel

ASK = "Write 200 words about caches."
START_US = 10_000_000
SLACK_US = 2 * TICK_US  # when a token is fetched, and when an end is


class Timed(msgspec.Struct):
    """A response in its engines' time, from its arrival."""

    response: dict[str, Any]
    first_us: int  # first piece of text
    end_us: int
    items: list[tuple[str | None, int, int]]  # of each message: phase, first text, end

    @property
    def phases(self) -> list[str | None]:
        return [phase for phase, _, _ in self.items]

    def states(self, part: str) -> list[str]:
        rows = self.response["routing"]["generations"]
        return [row["state"] for row in rows if row["part"] == part]


def simulated(
    name: str, group: BackendGroup, cost: CostModel, clock_us: Callable[[], int]
) -> SimulatedBackend:
    options = SimulatedOptions(model=f"{name}-model", window_tokens=65_536, max_output_tokens=8_192)
    return SimulatedBackend(options.info(name, group), cost, options, clock_us=clock_us)


async def run(ask: str, metadata: dict[str, str], hangs: dict[str, int]) -> Timed:
    loop = asyncio.get_running_loop()

    def clock_us() -> int:
        return START_US + round(loop.time() * 1e6)

    world = World()
    world.gw.clock_us = clock_us
    world.gw.backends = {
        "wafer": simulated("wafer", "fast", wafer_cost(WaferOptions()), clock_us),
        "gpu": simulated("gpu", "deep", gpu_cost(GpuOptions()), clock_us),
    }
    for name, num_deltas in hangs.items():
        backend = world.gw.backends[name]
        backend.__class__ = HangingBackend
        backend.num_deltas = num_deltas  # type: ignore[attr-defined]
    at_us: list[int] = []
    emit = world.heard.emit

    def timed(event_type: str, frame: bytes) -> None:
        at_us.append(clock_us() - START_US)
        emit(event_type, frame)

    world.heard.emit = timed  # type: ignore[method-assign]
    await handle_task(world.gw, world.job(input=ask, metadata=metadata, seed=1))
    await world.check()
    for backend in world.gw.backends.values():
        stats = backend.stats()
        assert (stats.num_running, stats.num_waiting, stats.kv_used_tokens) == (0, 0, 0)
        await backend.close()
    events = world.heard.events
    check_response(events)
    items: dict[int, list[Any]] = {}
    for us, event in zip(at_us, events, strict=True):
        if event["type"] == "response.output_item.done":
            phase = event["item"].get("phase")
            items[event["output_index"]] = [phase, *items[event["output_index"]], us]
        elif event["type"] == "response.output_text.delta":
            items.setdefault(event["output_index"], [us])
    listed = [(phase, first_us, end_us) for phase, first_us, end_us in items.values()]
    assert all(item["type"] == "message" for item in world.terminal["output"])
    return Timed(world.terminal, listed[0][1], at_us[-1], listed)


def timed_run(
    strategy: str | None, ask: str = ASK, hangs: dict[str, int] | None = None, **metadata: str
) -> Timed:
    """One task on an idle gateway; without a strategy `route` says where.

    `hangs`: backend -> deltas after which it falls silent.
    """
    if strategy is not None:
        metadata |= {"route": "parallel", "strategy": strategy, "commentary": "messages"}
    with asyncio.Runner(loop_factory=lambda: SleepingLoop(Punctual())) as runner:
        timed = runner.run(run(ask, metadata, hangs or {}))
    assert timed.response["status"] == "completed"
    return timed


@pytest.fixture(scope="module")
def fast() -> Timed:
    return timed_run(None, route="fast")


@pytest.fixture(scope="module")
def deep() -> Timed:
    return timed_run(None, route="deep")


def about(us: int) -> Any:
    return pytest.approx(us, abs=SLACK_US)


def test_the_engines_differ_as_they_should(fast: Timed, deep: Timed) -> None:
    assert fast.first_us < deep.first_us
    assert fast.end_us < deep.end_us / 5


def test_hedge_joins_when_the_time_is_up(fast: Timed, deep: Timed) -> None:
    after_us = deep.first_us // 2 // 1_000 * 1_000
    timed = timed_run("hedge", hedge_after_ms=str(after_us // 1_000))
    assert timed.first_us == about(after_us + fast.first_us)
    assert timed.end_us == about(after_us + fast.end_us)
    assert timed.states("answer") == ["cancelled", "finished"]
    assert timed.response["routing"]["usage"]["gpu"]["output_tokens"] == 0


def test_hedge_leaves_a_deep_engine_alone_that_begins_in_time(deep: Timed) -> None:
    timed = timed_run("hedge", hedge_after_ms=str(deep.first_us // 1_000 + 100))
    assert (timed.first_us, timed.end_us) == (about(deep.first_us), about(deep.end_us))
    assert timed.states("answer") == ["finished"]
    assert timed.response["routing"]["usage"]["wafer"]["total_tokens"] == 0


def test_breadth_takes_little_longer_than_one_answer(fast: Timed) -> None:
    timed = timed_run("breadth", n="8")
    assert timed.phases == [*["commentary"] * 8, "final_answer"]
    assert timed.states("vary") == ["finished"] * 8
    varied_us = timed.items[7][2]
    assert varied_us < 4 * fast.end_us, "one batch, not one after the other"
    assert timed.items[8][1] > varied_us - SLACK_US, "the judge reads them all first"
    texts = {item["content"][0]["text"] for item in timed.response["output"][:8]}
    assert len(texts) == 8, "each is its own"
    plain = timed_run("breadth", n="3", judge="false")
    assert plain.phases == ["final_answer"] * 3
    assert plain.response["routing"]["usage"]["gpu"]["total_tokens"] == 0


HANDED = "Say what a cache is. Then prove that caches stampede, in 200 words."


def test_delegate_works_beside_the_sub_task(fast: Timed, deep: Timed) -> None:
    timed = timed_run("delegate", HANDED)
    assert timed.phases == ["commentary", "commentary", "commentary", "final_answer"]
    opening, beside, subtask, closing = timed.items
    assert timed.first_us < 20 * fast.first_us + SLACK_US, "held until it proves to be a prelude"
    assert opening[2] < beside[1] < opening[2] + deep.first_us, "the fast engine goes on at once"
    assert beside[2] < subtask[2]
    assert closing[1] > subtask[2] - SLACK_US
    alone_us = timed.end_us - (closing[2] - closing[1]) - opening[2]
    assert alone_us < deep.end_us * 2, "what the fast engine said meanwhile cost no time"
    assert timed.states("subtask") == ["finished"]


# -- an engine that hangs: how long it holds the answer, and what is said of it -----------------


def silent(timed: Timed) -> list[str]:
    """The backends that were given up, each once."""
    errors = timed.response["routing"].get("errors", [])
    assert all("silent for 5 s" in error for error in errors)
    return [error.split(":")[0].removeprefix("backend ") for error in errors]


def test_hedge_does_not_wait_for_a_deep_engine_that_hangs(fast: Timed) -> None:
    timed = timed_run("hedge", hangs={"gpu": 0}, hedge_after_ms="250")
    assert timed.first_us == about(250_000 + fast.first_us)
    assert timed.end_us == about(250_000 + fast.end_us)


def test_breadth_goes_on_without_variations_that_hang(deep: Timed) -> None:
    timed = timed_run("breadth", hangs={"wafer": 0}, n="3")
    assert timed.first_us == about(PATIENCE_US + deep.first_us)
    assert silent(timed) == ["wafer"]
    assert timed.states("vary") == ["failed"] * 3
    assert timed.response["routing"]["variations"] == {"asked": 3, "whole": 0}
