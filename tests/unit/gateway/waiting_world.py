"""Offers a world on the real clock whose tasks may wait for their pools."""

import asyncio
import time
from typing import Any

from gateway.core.job import Job
from gateway.task.pipeline import handle_task
from router.classify.task import GroupLimits, Tenant
from router.waiting.rules import WaitingConfig
from tests.patience import until
from tests.unit.gateway.doubles import AwaitedPools
from tests.unit.gateway.playing_backend import ANSWER, Script
from tests.unit.gateway.world import World

PATIENCE_S = 60.0  # bounds a hang; never waited out


class LivePools(AwaitedPools):
    """Runs on the real clock: what is short comes back, unless a test has it stand still."""

    stands_at_us: int | None = None

    @property
    def now_us(self) -> int:  # type: ignore[override]
        return time.monotonic_ns() // 1_000 if self.stands_at_us is None else self.stands_at_us

    @now_us.setter
    def now_us(self, value: int) -> None:
        """Nobody sets this one."""


def tenant(name: str = "acme", **limits: int) -> Tenant:
    base = {"requests_per_min": 60_000, "tokens_per_min": 60_000_000, "max_concurrent": 64}
    made = GroupLimits(**(base | limits))
    return Tenant(id=name, tier="pro", limits={"fast": made, "deep": made})


class WaitingWorld(World):
    """Every task may wait on the fast group, unless a test says otherwise."""

    def __init__(
        self,
        fast: Script = ANSWER,
        *,
        limits: Tenant | None = None,
        waiting: WaitingConfig = WaitingConfig(wait_ms={"fast": 30_000}),  # noqa: B008 - frozen
    ) -> None:
        super().__init__(
            fast,
            tenant=limits or tenant(),
            waiting=waiting,
            pools=(live := LivePools()),
            clock_us=lambda: time.monotonic_ns() // 1_000,
        )
        self.live = live

    def start(self, **fields: Any) -> tuple[Job, "asyncio.Task[Any]"]:
        metadata = {"route": "fast"} | fields.pop("metadata", {})
        job = self.job(metadata=metadata, **fields)
        return job, asyncio.create_task(handle_task(self.gw, job))

    @property
    def depth(self) -> float:
        return self.sample("lanewise_admission_queue_depth", group="fast")

    async def waits(self, num_tasks: int = 1) -> None:
        """Returns once so many wait."""
        await until(lambda: self.depth == num_tasks)

    async def left(self) -> None:
        """Checks that nothing and nobody is left in any queue."""
        await self.check()
        assert self.depth == 0
        for room in self.gw.waiting._rooms.values():
            assert not room.entries
            assert len(room.queue) == 0
