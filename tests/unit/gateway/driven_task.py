"""Runs a parallel task whose generations a test drives by hand."""

import asyncio
from typing import Any

from backends.contract import BackendGroup
from gateway.task.pipeline import handle_task
from router.classify.task import GroupLimits, Tenant
from tests.patience import until
from tests.unit.gateway.doubles import MANY, RecordingGeneration
from tests.unit.gateway.world import World


class Running:
    """Is one parallel task whose generations a test drives by hand."""

    def __init__(self, strategy: str, fast: GroupLimits = MANY, **metadata: str) -> None:
        limits: dict[BackendGroup, GroupLimits] = {"fast": fast, "deep": MANY}
        self.world = World([], [], tenant=Tenant(id="acme", tier="default", limits=limits))
        metadata |= {"route": "parallel", "strategy": strategy}
        self.job = self.world.job(metadata=metadata, max_output_tokens=100)
        self.pump = asyncio.create_task(handle_task(self.world.gw, self.job))

    async def fast(self, number: int = 0) -> RecordingGeneration:
        await until(lambda: len(self.world.fast.generations) > number)
        return self.world.fast.generations[number]

    async def deep(self, number: int = 0) -> RecordingGeneration:
        await until(lambda: len(self.world.deep.generations) > number)
        return self.world.deep.generations[number]

    def left(self, group: BackendGroup, unit: str) -> int:
        """Returns what the tenant could still take."""
        pools = self.world.pools
        balances = pools.memory.balances(self.world.tenant, pools.now_us)
        return next(b.remaining for b in balances if (b.group, b.unit) == (group, unit))

    def held(self, group: BackendGroup) -> int:
        """Counts the group's places in flight."""
        return MANY.max_concurrent - self.left(group, "concurrent")

    async def free(self, group: BackendGroup) -> None:
        """Waits until the group's places are free, while the response runs."""
        await until(lambda: self.held(group) == 0)
        assert not self.pump.done()

    async def end(self) -> dict[str, Any]:
        await self.pump
        await self.world.check()
        return self.world.terminal
