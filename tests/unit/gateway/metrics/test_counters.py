"""Our tallies say what prometheus_client's own metrics would say, letter by letter."""

import random

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics import disable_created_metrics, enable_created_metrics

from gateway.metrics.counters import Tallies

BOUNDS = (0.001, 0.25, 1.0, 30.0, 4096.0)


def test_the_text_is_the_same() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    theirs, ours = CollectorRegistry(), CollectorRegistry()
    tallies = Tallies(ours)
    disable_created_metrics()
    try:
        counter = Counter("a_total", "Counts.", ("x", "y"), registry=theirs)
        gauge = Gauge("b", "Stands.", ("x",), registry=theirs)
        histogram = Histogram("c_seconds", "Lasts.", ("x",), buckets=BOUNDS, registry=theirs)
        plain = Counter("d_total", "Counts, too.", registry=theirs)
        our_counter = tallies.counter("a_total", "Counts.", "x", "y")
        our_gauge = tallies.gauge("b", "Stands.", "x")
        our_histogram = tallies.histogram("c_seconds", "Lasts.", BOUNDS, "x")
        our_plain = tallies.counter("d_total", "Counts, too.")[()]
        values = (*BOUNDS, 0, 0.0001, 1e9, 0.5, 7)
        for _ in range(500):
            x, y = chance.choice('ab"\n'), chance.choice("cd")
            value = chance.choice(values) if chance.random() < 0.5 else chance.expovariate(0.1)
            counter.labels(x, y).inc(value)
            our_counter[x, y].inc(value)
            histogram.labels(x).observe(value)
            our_histogram[(x,)].observe(value)
            change = chance.choice(("inc", "dec", "set"))
            getattr(gauge.labels(x), change)(value)
            getattr(our_gauge[(x,)], change)(value)
        plain.inc()
        our_plain.inc()
        del our_counter["a", "c"]
        counter.remove("a", "c")
        assert generate_latest(ours) == generate_latest(theirs)
    finally:
        enable_created_metrics()


def test_a_metric_nobody_reported_has_its_head_and_no_samples() -> None:
    registry = CollectorRegistry()
    Tallies(registry).histogram("c_seconds", "Lasts.", BOUNDS, "x")
    assert generate_latest(registry) == b"# HELP c_seconds Lasts.\n# TYPE c_seconds histogram\n"
