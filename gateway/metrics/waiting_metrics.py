"""Series about tasks that wait for a pool.

An edge: it calls other edges.
"""

from typing import Literal, get_args

from prometheus_client import CollectorRegistry, Gauge, Histogram

from backends.contract import BackendGroup
from router.pools.pools import GROUPS

Ending = Literal["admitted", "refused", "left"]

WAIT_BUCKETS_S = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class WaitingMetrics:
    """How many wait, and how long it took them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._depth = Gauge(
            "lanewise_admission_queue_depth",
            "Tasks that wait for a pool of a group.",
            ("route",),
            registry=registry,
        )
        self._wait = Histogram(
            "lanewise_admission_wait_seconds",
            "How long tasks waited for a pool, by how that ended.",
            ("route", "outcome"),
            buckets=WAIT_BUCKETS_S,
            registry=registry,
        )
        for group in GROUPS:  # so that nobody waiting reads as 0, not as a missing series
            self._depth.labels(group).set(0)
            for ending in get_args(Ending):
                self._wait.labels(group, ending)

    def depth(self, group: BackendGroup, num_waiting: int) -> None:
        """Says how many wait for a group now."""
        self._depth.labels(group).set(num_waiting)

    def waited(self, group: BackendGroup, ending: Ending, duration_us: int) -> None:
        """Records one wait that is over."""
        self._wait.labels(group, ending).observe(duration_us / 1e6)
