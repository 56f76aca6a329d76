"""What a scrape says of learning and drift."""

from types import SimpleNamespace
from typing import Any

from prometheus_client import generate_latest

from gateway.metrics.counters import Counters
from gateway.metrics.reports import Reports
from gateway.metrics.table import METRICS
from router.learn.drift import SIGNALS, Standing
from router.learn.report import learning_report


def scrape(*standings: Standing) -> str:
    experience: Any = SimpleNamespace(
        learners={},
        monitors={str(n): SimpleNamespace(standing=s) for n, s in enumerate(standings)},
        num_outcomes={"feedback": 3},
    )
    read = (metric for metric in METRICS if metric.read is not None)
    counters = Counters(read, Reports(learning=learning_report(experience)))
    text: bytes = generate_latest(counters)
    return text.decode()


def test_tenants_are_counted_by_the_sign_that_their_traffic_gives() -> None:
    moved = Standing(
        {"p_deep": 1.5}, 0.0, {"p_deep": "p_deep moved", "words": "other words than before"}
    )
    text = scrape(moved, Standing({"p_deep": 0.4}, 0.0, {"p_deep": "p_deep moved"}), Standing())
    assert 'lanewise_drift_alarms{sign="p_deep"} 2.0' in text
    assert 'lanewise_drift_alarms{sign="words"} 1.0' in text
    assert 'lanewise_drift_alarms{sign="shape"} 0.0' in text
    assert 'lanewise_drift_psi{signal="p_deep"} 1.5' in text


def test_before_enough_asks_came_every_signal_stands_at_rest() -> None:
    text = scrape(Standing())
    for signal in SIGNALS:
        assert f'lanewise_drift_psi{{signal="{signal}"}} 0.0' in text
