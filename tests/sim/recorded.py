"""Runs a live gateway on an event loop that never waits, and records its many tasks."""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from backends.contract import BackendStats
from backends.simulated.backend import SimulatedBackend
from backends.simulated.gpu import GpuOptions
from backends.simulated.gpu import cost_of as gpu_cost
from backends.simulated.wafer import WaferOptions
from backends.simulated.wafer import cost_of as wafer_cost
from gateway.core.job import Job
from gateway.store.decision_log import Recorder
from gateway.task.pipeline import handle_task
from gateway.wire.response import ResponseStream
from router.classify.task import GroupLimits, Tenant
from router.policy.policy import Policy
from router.pools.memory_pools import MemoryPools
from router.record.recording import DecisionRecord, EngineSettings
from router.waiting.rules import WaitingConfig
from tests.sim.sleeping_loop import SleepingLoop
from tests.unit.gateway.doubles import AwaitedPools, Transcript, parsed_create
from tests.unit.gateway.world import World

START_US = 1_750_000_000_000_000
WIDE = GroupLimits(requests_per_min=100_000, tokens_per_min=100_000_000, max_concurrent=10_000)
TOPICS = ("caches", "locks", "trains", "taxes", "bees", "glaciers", "sorting", "queues")
ASKS = (
    "What is the capital of France?",
    "Say hello to {topic} {number}.",
    "Write {number} words about {topic}.",
    "Summarise what you know of {topic} in {number} words.",
    "Refactor our module on {topic} so that its {number} tests pass, and explain every step.",
    "Find the race condition in our lock manager of {topic}, attempt {number}.",
    "Design a distributed system for {topic} with {number} nodes; prove that it never blocks.",
)


class Ask(NamedTuple):
    """Says what a client asks, and when."""

    at_us: int
    text: str
    tenant: str
    leaves_us: int | None = None  # behind its arrival
    fields: Mapping[str, Any] = MappingProxyType({})
    queued_us: int = 0  # behind others of its stream, before it began at `at_us`


class TimedPools(AwaitedPools):
    """Puts pools on the loop's clock; leases outlive the run, as a heartbeat renews them."""

    def __init__(self, clock_us: Callable[[], int]) -> None:
        self._clock_us = clock_us
        super().__init__()
        self.memory = MemoryPools(10**15)

    @property
    def now_us(self) -> int:  # type: ignore[override]
        return self._clock_us()

    @now_us.setter
    def now_us(self, _: int) -> None:
        """The parent sets a time that stands still."""


class KeepingRecorder(Recorder):
    """Keeps every record, as if it wrote them."""

    def __init__(self) -> None:
        super().__init__(None, max_bytes=0, keep=0, on_recorded=lambda *_: None)
        self.kept: list[DecisionRecord] = []
        self.is_writing = True

    def record(self, record: DecisionRecord) -> None:
        self.kept.append(record)


def asks(seed: int, number: int, per_s: float, tenants: Sequence[str] = ("studio",)) -> list[Ask]:
    """Returns random asks of all kinds."""
    chance = random.Random(seed)
    found, at_us = [], START_US
    for _ in range(number):
        at_us += round(chance.expovariate(per_s) * 1e6)
        text = chance.choice(ASKS)
        text = text.format(topic=chance.choice(TOPICS), number=chance.randint(5, 200))
        leaves_us = 300_000 if chance.random() < 0.03 else None
        found.append(Ask(at_us, text, chance.choice(tenants), leaves_us))
    return found


def recorded(
    given: Sequence[Ask],
    policy: Policy,
    tenants: Sequence[Tenant],
    *,
    num_gpus: int = 1,
    waiting: WaitingConfig = WaitingConfig(),  # noqa: B008 - frozen
    outage: tuple[str, int, int] | None = None,
) -> list[DecisionRecord]:
    """Runs the asks through a live gateway, and returns its log.

    `outage` closes a backend between two times, from the first ask on.
    """
    loop = SleepingLoop(random.Random(1))
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(_recorded(loop, given, policy, tenants, num_gpus, waiting, outage))


async def _recorded(
    loop: SleepingLoop,
    given: Sequence[Ask],
    policy: Policy,
    tenants: Sequence[Tenant],
    num_gpus: int,
    waiting: WaitingConfig,
    outage: tuple[str, int, int] | None,
) -> list[DecisionRecord]:
    def clock_us() -> int:
        return START_US + round(loop.time() * 1e6)

    world = World(waiting=waiting, pools=TimedPools(clock_us), clock_us=clock_us)
    gw = world.gw
    gw.unix_s = lambda: clock_us() / 1e6
    gw.state.policy = policy
    backends = _backends(num_gpus, clock_us)
    gw.backends = backends
    recorder = gw.recorder = KeepingRecorder()
    by_id = {tenant.id: tenant for tenant in tenants}
    tasks = []
    for number, ask in enumerate(given):
        await asyncio.sleep(max(0.0, (ask.at_us - clock_us()) / 1e6))
        parsed = parsed_create(f"resp_{number:048x}", input=ask.text, **ask.fields)
        job = Job(
            parsed,
            ResponseStream(parsed, Transcript().emit),
            by_id[ask.tenant],
            arrived_us=clock_us() - ask.queued_us,
            refuse=lambda error: None,
        )
        tasks.append(asyncio.create_task(handle_task(gw, job)))
        if ask.leaves_us is not None:
            loop.call_later(ask.leaves_us / 1e6, tasks[-1].cancel)
        if outage is not None:
            _play(outage, backends, clock_us())
    await asyncio.gather(*tasks, return_exceptions=True)
    await gw.detached.settled()
    for backend in backends.values():
        await backend.close()
    settings = tuple(
        EngineSettings(
            name,
            "wafer" if backend.info.group == "fast" else "gpu",
            backend.info,
            msgspec.to_builtins(WaferOptions() if backend.info.group == "fast" else GpuOptions()),
        )
        for name, backend in backends.items()
    )
    first, *others = recorder.kept
    return [msgspec.structs.replace(first, engine_settings=settings), *others]


class UnsteadyBackend(SimulatedBackend):
    """Is an engine that can be out."""

    is_out = False

    def stats(self) -> BackendStats:
        stats = super().stats()
        return msgspec.structs.replace(stats, healthy=stats.healthy and not self.is_out)


def _play(outage: tuple[str, int, int], backends: dict[str, UnsteadyBackend], now_us: int) -> None:
    name, from_us, until_us = outage
    backends[name].is_out = from_us <= now_us - START_US < until_us


def _backends(num_gpus: int, clock_us: Callable[[], int]) -> dict[str, UnsteadyBackend]:
    wafer, gpu = WaferOptions(), GpuOptions()
    made = {
        "wafer": UnsteadyBackend(
            wafer.info("wafer", "fast", takes_predictions=True),
            wafer_cost(wafer),
            wafer,
            clock_us=clock_us,
        )
    }
    for number in range(num_gpus):
        name = "gpu" if num_gpus == 1 else f"gpu-{number}"
        info = gpu.info(name, "deep", accepts_images=True, takes_predictions=True)
        made[name] = UnsteadyBackend(info, gpu_cost(gpu), gpu, clock_us=clock_us)
    return made
