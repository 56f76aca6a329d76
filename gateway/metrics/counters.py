"""Counters and histograms that cost a tenth of prometheus_client's, read by it at each scrape.

Its own take a lock for every change and check every observation's labels anew: with some seventy
changes for each task that was a tenth of the gateway's CPU. These belong to one thread, which may
go on counting while another renders: what is rendered is a moment's state, sample by sample. A test
holds both to the same text.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString


class Count:
    """A counter or a gauge."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, amount: float = 1) -> None:
        self.value += amount

    def dec(self, amount: float = 1) -> None:
        self.value -= amount

    def set(self, value: float) -> None:
        self.value = value


class Spread:
    """A histogram; a value that is a bucket's bound falls into it."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)  # the last one beyond all bounds
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    def observe_all(self, values: Iterable[float]) -> None:
        """The same for each of them."""
        bounds, counts = self._bounds, self.counts
        for value in values:
            counts[bisect_left(bounds, value)] += 1
            self.total += value


_Tally = TypeVar("_Tally")  # a Count or a Spread


class Series(dict[tuple[str, ...], _Tally], Generic[_Tally]):
    """A metric's tallies by their labels' values, each made when it is first asked for."""

    def __init__(self, make: Callable[[], _Tally]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, labels: tuple[str, ...]) -> _Tally:
        tally = self[labels] = self._make()
        return tally


class Tallies(Collector):
    """All tallies of a registry, in the order in which they were made."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._collects: dict[str, Callable[[], Metric]] = {}
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        for collect in self._collects.values():
            yield collect()

    def counter(self, name: str, text: str, *labels: str) -> Series[Count]:
        """A series that only rises; its name may end in `_total`."""
        return self._counts(CounterMetricFamily, name, text, labels)

    def gauge(self, name: str, text: str, *labels: str) -> Series[Count]:
        """A series that rises and falls."""
        return self._counts(GaugeMetricFamily, name, text, labels)

    def _counts(
        self,
        kind: type[CounterMetricFamily] | type[GaugeMetricFamily],
        name: str,
        text: str,
        labels: tuple[str, ...],
    ) -> Series[Count]:
        series = Series(Count)

        def collect() -> Metric:
            family = kind(name, text, labels=labels)
            for values, tally in tuple(series.items()):
                family.add_metric(values, tally.value)
            return family

        self._add(name, collect)
        return series

    def histogram(
        self, name: str, text: str, bounds: Sequence[float], *labels: str
    ) -> Series[Spread]:
        """A histogram with buckets up to each of these bounds, which rise, and one for the rest."""
        series = Series(lambda: Spread(bounds))
        names = [*map(floatToGoString, bounds), "+Inf"]

        def collect() -> Metric:
            family = HistogramMetricFamily(name, text, labels=labels)
            for values, tally in tuple(series.items()):
                buckets = list(zip(names, map(float, accumulate(tally.counts)), strict=True))
                family.add_metric(values, buckets, tally.total)
            return family

        self._add(name, collect)
        return series

    def _add(self, name: str, collect: Callable[[], Metric]) -> None:
        assert name not in self._collects, f"{name} is there already"
        self._collects[name] = collect
