"""Counts at a tenth of prometheus_client's cost, which reads these counters at each scrape.

Its own take a lock for every change and check every observation's labels anew: with some seventy
changes for each task that was a tenth of the gateway's CPU. Each of these belongs to one thread,
which may go on counting while another renders: what is rendered is a moment's state, sample by
sample. A test holds both to the same text.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from itertools import accumulate, product
from typing import Any, Generic, TypeVar

from prometheus_client import core
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from gateway.metrics.record import Kind, Metric
from gateway.metrics.reports import Reports


class Count:
    """Is a counter or a gauge."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, amount: float = 1) -> None:
        self.value += amount

    def dec(self, amount: float = 1) -> None:
        self.value -= amount

    def set(self, value: float) -> None:
        self.value = value

    def sample(self) -> tuple[float]:
        return (self.value,)


class HistogramCounter:
    """Is a histogram; a value that is a bucket's bound falls into it.

    What is observed is only gathered, since each task observes a dozen values: `count` counts it.
    """

    __slots__ = ("_bounds", "_counted", "_gathered", "observe", "observe_all")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        # How many values fell into each bucket, the last one beyond all bounds, and their sum.
        self._counted: tuple[list[int], float] = [0] * (len(bounds) + 1), 0.0
        self._gathered: list[float] = []
        self.observe: Callable[[float], None] = self._gathered.append
        self.observe_all: Callable[[Iterable[float]], None] = self._gathered.extend

    def observe_times(self, value: float, times: int) -> None:
        """Counts a value that was observed so many times."""
        counts, total = self._counted
        counts[bisect_left(self._bounds, value)] += times
        self._counted = counts, total + value * times

    def count(self) -> None:
        """Counts what was gathered; call it from the thread that observes."""
        gathered = self._gathered
        if not gathered:
            return
        counts, total = self._counted
        for value in gathered:
            total += value
        gathered.sort()
        counts, num_before = counts.copy(), 0
        for bucket, bound in enumerate(self._bounds):
            num_within = bisect_right(gathered, bound)
            counts[bucket] += num_within - num_before
            num_before = num_within
        counts[-1] += len(gathered) - num_before
        gathered.clear()
        self._counted = counts, total

    def sample(self) -> tuple[list[tuple[str, float]], float]:
        """Returns the buckets, each with what fell into it or below, and the sum."""
        counts, total = self._counted
        floats = map(float, accumulate(counts))
        return list(zip(_bucket_names(self._bounds), floats, strict=True)), total


@cache
def _bucket_names(bounds: tuple[float, ...]) -> tuple[str, ...]:
    return (*map(floatToGoString, bounds), "+Inf")


_Counter = TypeVar("_Counter")  # a Count or a HistogramCounter


class Series(dict[tuple[str, ...], _Counter], Generic[_Counter]):
    """Holds a metric's counters by their labels' values, each made when it is first asked for."""

    def __init__(
        self, metric: Metric, make: Callable[[], _Counter], now_s: Callable[[], float]
    ) -> None:
        super().__init__()
        self._metric = metric
        self._make = make
        self._now_s = now_s
        self.created_s: dict[tuple[str, ...], float] = {}  # only where the metric shows it
        if metric.starts_at_zero or not metric.labels:
            for values in product(*(label.values for label in metric.labels)):
                self[values]

    def __missing__(self, values: tuple[str, ...]) -> _Counter:
        for label, value in zip(self._metric.labels, values, strict=True):
            assert not label.values or value in label.values, (self._metric.name, values)
        counter = self[values] = self._make()
        if self._metric.has_created:
            self.created_s[values] = self._now_s()
        return counter


_FAMILIES: dict[Kind, Any] = {
    "counter": core.CounterMetricFamily,
    "gauge": core.GaugeMetricFamily,
    "histogram": core.HistogramMetricFamily,
}


class Counters(Collector):
    """Holds the metrics of a table: read from reports, or counted here by their names in the table.

    `counts[name][labels].inc()`, `histograms[name][labels].observe(value)`; `labels` is the tuple
    of their values in the table's order. What every task counts adds to `value` without a call.
    """

    def __init__(
        self, metrics: Iterable[Metric], reports: Reports, now_s: Callable[[], float] = lambda: 0.0
    ) -> None:
        """Takes as `now_s` what returns the Unix time."""
        self._metrics = tuple(metrics)
        self.reports = reports
        self.counts: dict[str, Series[Count]] = {}
        self.histograms: dict[str, Series[HistogramCounter]] = {}
        for metric in self._metrics:
            if metric.kind == "histogram":
                make = partial(HistogramCounter, metric.buckets)
                self.histograms[metric.name] = Series(metric, make, now_s)
            elif metric.read is None:
                self.counts[metric.name] = Series(metric, Count, now_s)

    def begin_open_series(self) -> None:
        """Makes the series that are to be there before they count, where labels are open.

        Call it from the thread that counts, with the latest reports.
        """
        for metric in self._metrics:
            if metric.zeros is not None:
                histograms = self.histograms.get(metric.name)
                series: Series[Any] = self.counts[metric.name] if histograms is None else histograms
                for values in metric.zeros(self.reports):
                    series[values]

    def count_observed(self) -> None:
        """Counts what the histograms have gathered; call it from the thread that observes."""
        for series in self.histograms.values():
            for histogram in series.values():
                histogram.count()

    def collect(self) -> Iterator[core.Metric]:
        for metric in self._metrics:
            labels = [label.name for label in metric.labels]
            family = _FAMILIES[metric.kind](metric.name, metric.help, labels=labels)
            if metric.read is not None:
                for values, value in metric.read(self.reports).items():
                    family.add_metric(values, float(value))  # it may be a bool
                yield family
                continue
            by_name = self.histograms if metric.kind == "histogram" else self.counts
            series: Series[Any] = by_name[metric.name]
            for values, counter in tuple(series.items()):
                family.add_metric(values, *counter.sample())
            for values, created_s in tuple(series.created_s.items()):
                named = dict(zip(labels, values, strict=True))
                family.add_sample(f"{family.name}_created", named, created_s)
            yield family
