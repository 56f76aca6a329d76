"""Adapts each group's concurrency limit and its tenants' shares to the load, once a second.

It is off unless the configuration names a group. Each process adapts by itself, from its own tasks
and from the total load that the engines report. This is an edge.
"""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass

from backends.contract import BackendGroup, BackendStats
from gateway.core.waiting_room import WaitingRoom
from gateway.metrics.counters import Counters
from router.decide.adaptive_capacity import AdaptiveCapacity
from router.waiting.rules import AdaptationConfig


@dataclass(eq=False)
class Adaptation:
    """Steps the capacities by the loop's clock, and counts the steps; `tick` once a second."""

    config: AdaptationConfig
    _: KW_ONLY
    waiting: WaitingRoom
    stats: Callable[[], Sequence[BackendStats]]
    clock_us: Callable[[], int]
    metrics: Counters

    def __post_init__(self) -> None:
        """Sets the first limits at once, so that no burst comes before them."""
        room = self.waiting
        self._capacity = AdaptiveCapacity(
            self.config, room.config, room.limiter, room.wanting, self.stats(), self.clock_us()
        )
        for group in self.config.groups:
            self._show(group)

    def observe(self, group: BackendGroup, token_us: float | None) -> None:
        """Notes the time per output token of a task that ended."""
        self._capacity.observe(group, token_us, self.clock_us())

    async def tick(self) -> None:
        """Moves every adaptive group by at most one step."""
        for group in self.config.groups:
            direction = self._capacity.step(group, self.stats(), self.clock_us())
            if direction != "none":
                self.metrics.counts["lanewise_capacity_steps_total"][group, direction].inc()
            self._show(group)
            self.waiting.look_again(group)

    def _show(self, group: BackendGroup) -> None:
        limit, num_running = self._capacity.limit(group), self.waiting.limiter.num_running(group)
        self.metrics.counts["lanewise_capacity_limit"][(group,)].set(limit)
        self.metrics.counts["lanewise_capacity_inflight"][(group,)].set(num_running)
