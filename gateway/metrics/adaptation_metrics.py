"""Series about capacity that follows demand.

An edge: it calls other edges.
"""

from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge

from backends.contract import BackendGroup
from router.pools.pools import GROUPS, Shed
from router.waiting.capacity import Direction


class AdaptationMetrics:
    """The limits, how far they are used, and how they move; all 0 where nothing adapts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._limit = Gauge(
            "lanewise_capacity_limit",
            "Tasks at once that this process lets onto a group; 0 where that does not adapt.",
            ("route",),
            registry=registry,
        )
        self._inflight = Gauge(
            "lanewise_capacity_inflight",
            "Tasks of this process on a group that adapts.",
            ("route",),
            registry=registry,
        )
        self._steps = Counter(
            "lanewise_capacity_steps",
            "Moves of the limit.",
            ("route", "direction"),
            registry=registry,
        )
        self._shed = Counter(
            "lanewise_capacity_shed",
            "Tasks refused since their group of engines, or their tenant's share of it, was full.",
            ("route", "reason"),
            registry=registry,
        )
        for group in GROUPS:
            self._limit.labels(group).set(0)
            self._inflight.labels(group).set(0)
            for direction in ("up", "down"):
                self._steps.labels(group, direction)
            for reason in get_args(Shed):
                self._shed.labels(group, reason)

    def stands(self, group: BackendGroup, limit: int, num_running: int) -> None:
        """Says what the limit is, and how much of it is used."""
        self._limit.labels(group).set(limit)
        self._inflight.labels(group).set(num_running)

    def stepped(self, group: BackendGroup, direction: Direction) -> None:
        """Counts a move."""
        if direction != "none":
            self._steps.labels(group, direction).inc()

    def shed(self, group: BackendGroup, reason: Shed) -> None:
        """Counts a task that was refused for want of capacity."""
        self._shed.labels(group, reason).inc()
