"""Runs one task over the simulated engines, in their own time.

Everything is real but the clock: pipeline, dispatch, strategies, drivers and engines run on an
event loop that never waits, so that a run takes as long as its engines say, each time the same.
"""

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import msgspec

from backends.contract import (
    BackendError,
    BackendGroup,
    Delta,
    Finish,
    FinishReason,
    GenerateRequest,
    Generation,
    Sink,
)
from backends.simulated.backend import SimulatedBackend, SimulatedOptions
from backends.simulated.gpu import GpuOptions
from backends.simulated.gpu import cost_of as gpu_cost
from backends.simulated.wafer import WaferOptions
from backends.simulated.wafer import cost_of as wafer_cost
from gateway.task.pipeline import handle_task
from tests.e2e.events import check_response
from tests.sim.sleeping_loop import Punctual, SleepingLoop
from tests.unit.gateway.world import World
from wafer_engine.batching.cost_model import CostModel

ASK = "Write 200 words about caches."
START_US = 10_000_000
SAYING = ("response.output_text.delta", "response.reasoning_summary_text.delta")


class Timed(msgspec.Struct):
    """Is a response in its engines' time, from its arrival."""

    response: dict[str, Any]
    first_us: int  # first piece of text
    end_us: int
    items: list[tuple[str | None, int, int]]  # of each message: phase, first text, end
    silent_us: int  # at most, from its first piece to its end

    @property
    def phases(self) -> list[str | None]:
        return [phase for phase, _, _ in self.items]

    def states(self, part: str) -> list[str]:
        rows = self.response["routing"]["generations"]
        return [row["state"] for row in rows if row["part"] == part]


class Faulty(msgspec.Struct):
    """Hears of so many deltas, and then of nothing more, or of an error."""

    sink: Sink
    num_left: int
    breaks: bool
    generation: Generation | None = None

    def push(self, delta: Delta) -> None:
        if self.num_left:
            self.num_left -= 1
            self.sink.push(delta)
        elif self.breaks and self.generation is not None:
            self.breaks = False
            error = BackendError("faulty", "server_error", "it broke off", retryable=True)
            usage = self.generation.cancel()
            self.sink.finish(Finish(FinishReason.ERROR, usage, delta.at_us, error))

    def finish(self, finish: Finish) -> None:
        """Says nothing, as an engine that hangs."""


class FaultyBackend(SimulatedBackend):
    """Falls silent, or breaks, after so many deltas of each generation."""

    num_deltas = 0
    breaks = False

    def start(self, request: GenerateRequest, sink: Sink) -> Generation:
        faulty = Faulty(sink, self.num_deltas, self.breaks)
        faulty.generation = super().start(request, faulty)
        return faulty.generation


def simulated(
    name: str, group: BackendGroup, cost: CostModel, clock_us: Callable[[], int]
) -> SimulatedBackend:
    options = SimulatedOptions(model=f"{name}-model", window_tokens=65_536, max_output_tokens=8_192)
    return SimulatedBackend(options.info(name, group), cost, options, clock_us=clock_us)


async def run(ask: str, metadata: dict[str, str], hangs: dict[str, int], *, breaks: bool) -> Timed:
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
        backend.__class__ = FaultyBackend
        backend.num_deltas = num_deltas  # type: ignore[attr-defined]
        backend.breaks = breaks  # type: ignore[attr-defined]
    at_us: list[int] = []
    emit = world.heard.emit

    def timed(event_type: str, /, *frames: bytes) -> None:
        at_us.extend([clock_us() - START_US] * len(frames))
        emit(event_type, *frames)

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
    said_us = [us for us, event in zip(at_us, events, strict=True) if event["type"] in SAYING]
    for us, event in zip(at_us, events, strict=True):
        if event["type"] == "response.output_item.done":
            phase = event["item"].get("phase")
            items[event["output_index"]] = [phase, *items[event["output_index"]], us]
        elif event["type"] == "response.output_text.delta":
            items.setdefault(event["output_index"], [us])
    listed = [(phase, first_us, end_us) for phase, first_us, end_us in items.values()]
    assert all(item["type"] == "message" for item in world.terminal["output"])
    silences = (after - before for before, after in pairwise([*said_us, at_us[-1]]))
    return Timed(world.terminal, listed[0][1], at_us[-1], listed, max(silences))


def timed_run(
    strategy: str | None,
    ask: str = ASK,
    hangs: dict[str, int] | None = None,
    *,
    breaks: bool = False,
    **metadata: str,
) -> Timed:
    """Runs one task on an idle gateway; without a strategy `route` says where.

    `hangs`: backend -> deltas after which it falls silent, or `breaks`.
    """
    if strategy is not None:
        metadata |= {"route": "parallel", "strategy": strategy, "commentary": "messages"}
    with asyncio.Runner(loop_factory=lambda: SleepingLoop(Punctual())) as runner:
        timed = runner.run(run(ask, metadata, hangs or {}, breaks=breaks))
    assert timed.response["status"] == "completed"
    return timed
