"""Series about policies and the decision log. As in `metrics`, labels come from closed sets.

An edge: it calls other edges.
"""

from collections.abc import Callable, Sequence
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge

from gateway.store.decision_log import Recorded

PolicyReload = Literal["ok", "invalid", "unavailable"]

MAX_POLICIES = 6  # whose decisions have series; those of older ones end


class PolicyMetrics:
    """Methods to report with; all belong to the event loop's thread, but `recorded`."""

    def __init__(self, registry: CollectorRegistry, forget: Callable[[str], None]) -> None:
        """`forget`: ends the series of a policy that was superseded long ago."""
        self._forget = forget
        self._latest: list[str] = []
        self._version = Gauge(
            "lanewise_policy_version",
            "The stored version in force (live) and the one that shadows it; 0: none is.",
            ("mode",),
            registry=registry,
        )
        self._reloads = Counter(
            "lanewise_policy_reload_total",
            "Times that this process took a policy from the store, or could not.",
            ("result",),
            registry=registry,
        )
        self._records = Counter(
            "lanewise_decision_records_total",
            "Lines for the decision log; dropped: too slow a disk, failed: a full or missing one.",
            ("result",),
            registry=registry,
        )
        for mode in ("live", "shadow"):
            self._version.labels(mode).set(0)
        for result in ("written", "dropped", "failed"):
            self._records.labels(result)

    def in_force(self, names: Sequence[str], version: int, shadow_version: int) -> None:
        """Says which policies decide."""
        self._version.labels("live").set(version)
        self._version.labels("shadow").set(shadow_version)
        self._latest = [name for name in self._latest if name not in names] + list(names)
        for name in self._latest[:-MAX_POLICIES]:
            self._forget(name)
        del self._latest[:-MAX_POLICIES]

    def reload(self, result: PolicyReload) -> None:
        """Counts a change that was taken from the store, or a look at it that failed."""
        self._reloads.labels(result).inc()

    def recorded(self, result: Recorded, count: int = 1) -> None:
        """Counts lines of the decision log; may be called from any thread."""
        self._records.labels(result).inc(count)
