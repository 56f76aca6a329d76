"""Joins the metrics of several workers as those of one gateway.

Counters and histograms add up, those of workers that ended included: a sum that fell would read as
a restart. Gauges are of workers that live; the table says whether they add up or whether every
worker sees the same thing. Series are bounded by what each worker bounds, times their number.
"""

from collections.abc import Callable, Collection, Iterable, Sequence

import msgspec
from prometheus_client import core, generate_latest
from prometheus_client.registry import Collector

from gateway.metrics.counters import Counters
from gateway.metrics.record import Merge
from gateway.metrics.reports import Reports, WorkersReport
from gateway.metrics.table import METRICS

Labels = tuple[tuple[str, str], ...]


class Family(msgspec.Struct, array_like=True):
    """Holds one metric as a worker has it: samples by name and sorted labels."""

    name: str  # as prometheus_client has it: a counter's without `_total`
    kind: str
    text: str
    samples: dict[str, list[tuple[Labels, float]]]


Snapshot = list[Family]

_MERGES = {metric.family: metric.merge for metric in METRICS}
_ENDING = {metric.family for metric in METRICS if metric.ends}


def snapshot_of(families: Iterable[core.Metric]) -> Snapshot:
    """Returns all series of a registry or a collector as they stand."""
    snapshot: Snapshot = []
    for metric in families:
        family = Family(metric.name, metric.type, metric.documentation, {})
        for sample in metric.samples:
            labels = tuple(sorted(sample.labels.items()))
            family.samples.setdefault(sample.name, []).append((labels, sample.value))
        snapshot.append(family)
    return snapshot


def supervised(
    workers: WorkersReport, num_redis_restarts: int = 0, links: Collection[str] = ()
) -> Snapshot:
    """Returns what a supervisor adds to the sum of its workers'; `links` as `Reports` has them."""
    ours = (metric for metric in METRICS if metric.owner in ("supervisor", "either"))
    reports = Reports(workers=workers, num_redis_restarts=num_redis_restarts, links=links)
    return snapshot_of(Counters(ours, reports).collect())


def rule_of(family: str, labels: Labels, linked: Collection[str]) -> Merge:
    """Says how several workers' values become one; `linked` are the backends behind a link."""
    rule = _MERGES.get(family, "sum")
    if rule == "engine":
        backend = next((value for name, value in labels if name in ("backend", "engine")), "")
        return "max" if backend in linked else "sum"
    return rule


def merged(snapshots: Sequence[Snapshot], linked: Collection[str]) -> Snapshot:
    """Makes one snapshot of all; a series' time of creation is that of the oldest."""
    families: dict[str, Family] = {}
    found: dict[tuple[str, str], dict[Labels, list[float]]] = {}
    for family in (family for snapshot in snapshots for family in snapshot):
        families.setdefault(family.name, Family(family.name, family.kind, family.text, {}))
        for name, samples in family.samples.items():
            values = found.setdefault((family.name, name), {})
            for labels, value in samples:
                values.setdefault(labels, []).append(value)
    ways: dict[Merge, Callable[[list[float]], float]] = {"sum": sum, "max": max, "min": min}
    for (family_name, name), values in found.items():
        is_time = name.endswith("_created")
        families[family_name].samples[name] = [
            (labels, ways["min" if is_time else rule_of(family_name, labels, linked)](each))
            for labels, each in values.items()
        ]
    return list(families.values())


def lasting(snapshot: Iterable[Family], linked: Collection[str]) -> Snapshot:
    """Returns what of a worker's metrics outlives it: counts of its own, and no gauges."""
    kept: Snapshot = []
    for family in snapshot:
        if family.kind in ("counter", "histogram"):
            samples = {
                name: [each for each in series if rule_of(family.name, each[0], linked) == "sum"]
                for name, series in family.samples.items()
            }
            kept.append(Family(family.name, family.kind, family.text, samples))
    return kept


def ended(before: Snapshot, now: Snapshot) -> Snapshot:
    """Returns the series of a worker that ended between two of its snapshots, as they were last.

    Others may have the same series still, and the sum must not fall when one has ended it. A value
    that fell is of a series that ended and began again.
    """
    latest = _series_that_end(now)
    return _some(
        before,
        lambda name, labels, value: value > latest.get((name, labels), -1.0),
    )


def still_shown(past: Snapshot, snapshots: Iterable[Snapshot]) -> Snapshot:
    """Leaves out of the past the series that may end and that no worker has any more."""
    shown = {each for snapshot in snapshots for each in _series_that_end(snapshot)}
    kept = _some(past, lambda name, labels, _: (name, labels) in shown)
    return [family for family in past if family.name not in _ENDING] + kept


def _series_that_end(snapshot: Snapshot) -> dict[tuple[str, Labels], float]:
    return {
        (name, labels): value
        for family in snapshot
        if family.name in _ENDING
        for name, series in family.samples.items()
        for labels, value in series
    }


def _some(snapshot: Snapshot, takes: Callable[[str, Labels, float], bool]) -> Snapshot:
    """Returns those samples of families whose series may end that `takes` wants."""
    return [
        Family(
            family.name,
            family.kind,
            family.text,
            {
                name: [each for each in series if takes(name, *each)]
                for name, series in family.samples.items()
            },
        )
        for family in snapshot
        if family.name in _ENDING
    ]


def rendered(snapshot: Snapshot) -> bytes:
    """Writes Prometheus's text format, whose content type is `metrics.CONTENT_TYPE`."""
    text: bytes = generate_latest(_Shown(snapshot))
    return text


class _Shown(Collector):
    """Shows a snapshot where prometheus_client expects a collector."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterable[core.Metric]:
        for family in self._snapshot:
            metric = core.Metric(family.name, family.text, family.kind)
            for name, series in family.samples.items():
                for labels, value in series:
                    metric.add_sample(name, dict(labels), value)
            yield metric
