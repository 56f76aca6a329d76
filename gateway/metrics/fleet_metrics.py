"""A registry's metrics as a snapshot that another process can add up, and back as text.

An edge: it calls other edges.
"""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from gateway.metrics.metric_sums import Family, Snapshot

# What a supervisor adds to the sum of its workers': on no worker's registry.
SUPERVISOR_METRICS = frozenset(
    {"lanewise_workers", "lanewise_workers_wanted", "lanewise_worker_restarts_total"}
)


def supervised(num_serving: int, num_wanted: int, num_restarts: int) -> Snapshot:
    """Those metrics, as they stand."""
    return [
        Family("lanewise_workers", "gauge", "Workers that serve.",
               {"lanewise_workers": [((), num_serving)]}),
        Family("lanewise_workers_wanted", "gauge", "Workers that should serve.",
               {"lanewise_workers_wanted": [((), num_wanted)]}),
        Family("lanewise_worker_restarts", "counter", "Workers started again after a crash.",
               {"lanewise_worker_restarts_total": [((), num_restarts)]}),
    ]  # fmt: skip


def taken(registry: CollectorRegistry) -> Snapshot:
    """All series as they stand."""
    snapshot: Snapshot = []
    for metric in registry.collect():
        family = Family(metric.name, metric.type, metric.documentation, {})
        for sample in metric.samples:
            labels = tuple(sorted(sample.labels.items()))
            family.samples.setdefault(sample.name, []).append((labels, sample.value))
        snapshot.append(family)
    return snapshot


def rendered(snapshot: Snapshot) -> bytes:
    """In Prometheus's text format; its content type is `gateway.metrics.metrics.CONTENT_TYPE`."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Shown(snapshot))
    text: bytes = generate_latest(registry)
    return text


class _Shown(Collector):
    """A snapshot where a registry expects a collector."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterable[Metric]:
        for family in self._snapshot:
            metric = Metric(family.name, family.text, family.kind)
            for name, series in family.samples.items():
                for labels, value in series:
                    metric.add_sample(name, dict(labels), value)
            yield metric
