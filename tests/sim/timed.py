"""Times tasks, engines and wake-ups by the engines' clock, on an event loop that never waits."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from backends.contract import (
    BackendError,
    Delta,
    Finish,
    FinishReason,
    GenerateRequest,
    Generation,
    Sink,
)
from backends.simulated.backend import SimulatedBackend
from backends.simulated.gpu import GpuOptions
from backends.simulated.gpu import cost_of as gpu_cost
from backends.simulated.wafer import WaferOptions
from backends.simulated.wafer import cost_of as wafer_cost
from gateway.task.pipeline import handle_task
from tests.e2e.events import check_response
from tests.sim.sleeping_loop import Punctual, SleepingLoop
from tests.unit.gateway.world import World

START_US = 10_000_000


class Muffled(msgspec.Struct):
    """Hears of so many deltas, and then of nothing more."""

    sink: Sink
    num_left: int

    def push(self, delta: Delta) -> None:
        if self.num_left:
            self.num_left -= 1
            self.sink.push(delta)

    def finish(self, finish: Finish) -> None:
        """Says nothing of the end, as an engine that hangs."""


class HangingBackend(SimulatedBackend):
    """Falls silent after so many deltas."""

    num_deltas = 0

    def start(self, request: GenerateRequest, sink: Sink) -> Generation:
        return super().start(request, Muffled(sink, self.num_deltas))


class Broken(msgspec.Struct):
    """Hears of so many deltas, and then that the engine broke."""

    sink: Sink
    num_left: int
    generation: Generation | None = None

    def push(self, delta: Delta) -> None:
        self.sink.push(delta)
        self.num_left -= 1
        if not self.num_left and self.generation is not None:
            error = BackendError("wafer", "server_error", "it broke", retryable=True)
            used = self.generation.cancel()
            self.sink.finish(Finish(FinishReason.ERROR, used, delta.at_us, error))

    def finish(self, finish: Finish) -> None:
        self.sink.finish(finish)


class BreakingBackend(SimulatedBackend):
    """Fails behind a hundred deltas."""

    def start(self, request: GenerateRequest, sink: Sink) -> Generation:
        broken = Broken(sink, 100)
        broken.generation = super().start(request, broken)
        return broken.generation


class Answered(msgspec.Struct):
    """Holds a response, and says when its first and last word came, from its arrival."""

    response: dict[str, Any]
    first_us: int
    end_us: int

    @property
    def text(self) -> str:
        """Returns the whole text of the one message."""
        (message,) = self.response["output"]
        return str(message["content"][0]["text"])

    def used(self, backend: str) -> dict[str, Any]:
        """Returns what a backend used."""
        used: dict[str, Any] = self.response["routing"]["usage"][backend]
        return used


def timed_task(
    ask: str,
    metadata: dict[str, str],
    *,
    fast: type[SimulatedBackend] = SimulatedBackend,
    deep: type[SimulatedBackend] = SimulatedBackend,
    **options: Any,
) -> Answered:
    """Runs a task on an idle gateway; `options` are the deep engine's."""
    with asyncio.Runner(loop_factory=lambda: SleepingLoop(Punctual())) as runner:
        return runner.run(_timed_task(ask, metadata, fast, deep, options))


async def _timed_task(
    ask: str,
    metadata: dict[str, str],
    fast: type[SimulatedBackend],
    deep: type[SimulatedBackend],
    options: dict[str, Any],
) -> Answered:
    loop = asyncio.get_running_loop()

    def clock_us() -> int:
        return START_US + round(loop.time() * 1e6)

    world = World()
    world.gw.clock_us = clock_us
    backends = {
        "wafer": _backend("wafer", WaferOptions(), wafer_cost(WaferOptions()), clock_us),
        "gpu": _backend("gpu", GpuOptions(**options), gpu_cost(GpuOptions()), clock_us),
    }
    backends["wafer"].__class__, backends["gpu"].__class__ = fast, deep
    world.gw.backends = backends
    words_us: list[int] = []
    emit = world.heard.emit

    def timed(event_type: str, /, *frames: bytes) -> None:
        if event_type == "response.output_text.delta":
            words_us.append(clock_us() - START_US)
        emit(event_type, *frames)

    world.heard.emit = timed  # type: ignore[method-assign]
    await handle_task(world.gw, world.job(input=ask, metadata=metadata))
    await world.check()
    for backend in backends.values():
        stats = backend.stats()
        assert (stats.num_running, stats.num_waiting, stats.kv_used_tokens) == (0, 0, 0)
        await backend.close()
    check_response(world.heard.events)
    assert world.terminal["status"] == "completed"
    return Answered(world.terminal, words_us[0], words_us[-1])


def _backend(name: str, options: Any, cost: Any, clock_us: Callable[[], int]) -> SimulatedBackend:
    group: Any = "fast" if name == "wafer" else "deep"
    info = options.info(name, group, takes_predictions=options.takes_predictions)
    return SimulatedBackend(info, cost, options, clock_us=clock_us)
