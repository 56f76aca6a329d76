"""Our counters say what prometheus_client's own metrics would say, letter by letter."""

import random
import re

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics import disable_created_metrics, enable_created_metrics

from gateway.metrics.counters import Counters
from gateway.metrics.record import Label, Metric
from gateway.metrics.reports import Reports

BOUNDS = (0.001, 0.25, 1.0, 30.0, 4096.0)


def test_the_text_is_the_same() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    theirs, ours = CollectorRegistry(), CollectorRegistry()
    x, y = Label("x"), Label("y")
    counters = Counters(
        (
            Metric("a_total", "counter", "Counts.", (x, y)),
            Metric("b", "gauge", "Stands.", (x,)),
            Metric("c_seconds", "histogram", "Lasts.", (x,), buckets=BOUNDS),
            Metric("d_total", "counter", "Counts, too."),
        ),
        Reports(),
    )
    ours.register(counters)
    disable_created_metrics()
    try:
        counter = Counter("a_total", "Counts.", ("x", "y"), registry=theirs)
        gauge = Gauge("b", "Stands.", ("x",), registry=theirs)
        histogram = Histogram("c_seconds", "Lasts.", ("x",), buckets=BOUNDS, registry=theirs)
        plain = Counter("d_total", "Counts, too.", registry=theirs)
        our_counter = counters.counts["a_total"]
        our_gauge = counters.counts["b"]
        our_histogram = counters.histograms["c_seconds"]
        our_plain = counters.counts["d_total"][()]
        values = (*BOUNDS, 0, 0.0001, 1e9, 0.5, 7)
        for _ in range(500):
            first, second = chance.choice('ab"\n'), chance.choice("cd")
            value = chance.choice(values) if chance.random() < 0.5 else chance.expovariate(0.1)
            counter.labels(first, second).inc(value)
            our_counter[first, second].inc(value)
            histogram.labels(first).observe(value)
            if chance.random() < 0.5:
                our_histogram[(first,)].observe(value)
            else:
                our_histogram[(first,)].observe_all((value,))
            change = chance.choice(("inc", "dec", "set"))
            getattr(gauge.labels(first), change)(value)
            getattr(our_gauge[(first,)], change)(value)
            if chance.random() < 0.1:
                counters.count_observed()
        plain.inc()
        our_plain.inc()
        del our_counter["a", "c"]
        counter.remove("a", "c")
        counters.count_observed()
        assert generate_latest(ours) == generate_latest(theirs)
    finally:
        enable_created_metrics()


def test_a_metric_nobody_reported_has_its_head_and_no_samples() -> None:
    registry = CollectorRegistry()
    lasts = Metric("c_seconds", "histogram", "Lasts.", (Label("x"),), buckets=BOUNDS)
    registry.register(Counters((lasts,), Reports()))
    assert generate_latest(registry) == b"# HELP c_seconds Lasts.\n# TYPE c_seconds histogram\n"


def test_a_metric_that_starts_at_zero_has_all_its_series_and_their_times_of_creation() -> None:
    label = Label("x", ("a", "b"))
    metric = Metric(
        "a_total", "counter", "Counts.", (label,), starts_at_zero=True, has_created=True
    )
    theirs, ours = CollectorRegistry(), CollectorRegistry()
    ours.register(Counters((metric,), Reports(), lambda: 5.0))
    counter = Counter("a_total", "Counts.", ("x",), registry=theirs)
    for value in label.values:
        counter.labels(value)
    text = re.sub(r"(_created{.*}) .*", r"\1 5.0", generate_latest(theirs).decode())
    assert generate_latest(ours).decode() == text


def test_a_value_that_no_label_has_is_a_mistake_of_ours() -> None:
    metric = Metric("a_total", "counter", "Counts.", (Label("x", ("a", "b")),))
    counters = Counters((metric,), Reports())
    counters.counts["a_total"][("a",)].inc()
    with pytest.raises(AssertionError):
        counters.counts["a_total"][("c",)].inc()
    with pytest.raises(ValueError, match="zip"):
        counters.counts["a_total"]["a", "b"].inc()
