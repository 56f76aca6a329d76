"""The live driver and a replay give the same timestamps, with the cost models that are served.

The driver runs on a real event loop whose clock is made of its own sleeps: no time passes, and a
seeded process that is always a little late decides when it is woken. A failure prints its seed.
"""

import asyncio
import random
from collections.abc import Callable, Mapping

import pytest

from backends.drive.driver import Driver
from backends.gpu_engine.cost import GpuCost
from tests.sim.sleeping_loop import SleepingLoop
from wafer_engine.batching.cost_model import CostModel
from wafer_engine.batching.engine import Engine, EngineStats
from wafer_engine.batching.sequence import Sequence
from wafer_engine.calibration.replay import Request, replay
from wafer_engine.hardware.cost import WaferCost

START_US = 1_750_000_000_000_000  # a clock that reads years, as real ones do

Times = Mapping[int, tuple[int, int]]  # request -> first and last token


class Listener:
    """Receives for one request, and remembers its first and last token."""

    def __init__(self, number: int, times: dict[int, tuple[int, int]], last: asyncio.Event) -> None:
        self._number, self._times, self._last = number, times, last
        self.first_us: int | None = None
        self.num_tokens = 0

    def advance(self, num_tokens: int, at_us: int) -> None:
        self.first_us = at_us if self.first_us is None else self.first_us
        self.num_tokens += num_tokens

    def finish(self, at_us: int) -> None:
        assert self.first_us is not None
        self._times[self._number] = (self.first_us, at_us)
        self._last.set()

    def fail(self, message: str, at_us: int) -> None:
        raise AssertionError(message)


async def live(
    cost: CostModel, sizes: list[tuple[int, int, int]]
) -> tuple[list[Request], Times, EngineStats]:
    """Submits (gap in us, prompt, output) in order; returns what was sent, when, and told."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SleepingLoop)

    def clock_us() -> int:
        return START_US + loop.now_us

    driver = Driver(Engine(cost), clock_us=clock_us)
    requests: list[Request] = []
    times: dict[int, tuple[int, int]] = {}
    ended = [asyncio.Event() for _ in sizes]
    for number, (gap_us, prompt, output) in enumerate(sizes):
        await asyncio.sleep(gap_us / 1e6)
        requests.append(Request(clock_us(), prompt, output))
        sequence = Sequence(id=number, num_prompt_tokens=prompt, num_output_tokens=output)
        driver.submit(sequence, Listener(number, times, ended[number]))
    for event in ended:
        await event.wait()
    stats = driver.stats()
    driver.close("done")
    return requests, times, stats


ENGINES: dict[str, tuple[Callable[[], CostModel], float, int, int]] = {
    # engine, mean gap in us, prompt and output tokens at most: enough to run out of KV cache
    "gpu": (lambda: GpuCost(overhead_us=0, kv_capacity_tokens=12_000), 20_000, 2_000, 400),
    "wafer": (lambda: WaferCost(overhead_us=0), 20_000, 12_000, 6_000),
    "hosted wafer": (WaferCost, 20_000, 12_000, 6_000),
}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("engine", ENGINES)
def test_live_and_replayed_timestamps_are_equal(engine: str, seed: int) -> None:
    make, gap_us, max_prompt, max_output = ENGINES[engine]
    chance = random.Random(f"{engine} {seed}")
    sizes = [
        (
            int(chance.expovariate(1 / gap_us)),
            chance.randint(1, max_prompt),
            chance.randint(1, max_output),
        )
        for _ in range(60)
    ]
    with asyncio.Runner(loop_factory=lambda: SleepingLoop(chance)) as runner:
        requests, told, stats = runner.run(live(make(), sizes))
    assert stats.num_preemptions > 0, f"{engine}, seed {seed}: nothing was preempted"
    replayed = replay(make(), requests)
    expected = {
        number: (times.first_token_us, times.last_token_us) for number, times in enumerate(replayed)
    }
    assert told == expected, f"{engine}, seed {seed}"
