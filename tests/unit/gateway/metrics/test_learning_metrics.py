"""Tests what a scrape says of learning and drift."""

from types import SimpleNamespace
from typing import Any

from prometheus_client import generate_latest

from gateway.metrics.counters import Counters
from gateway.metrics.reports import Reports
from gateway.metrics.table import METRICS
from router.learn.drift import SIGNALS, Standing
from router.learn.experience import Experience
from router.learn.report import learning_report


def scrape(*standings: Standing) -> str:
    experience: Any = SimpleNamespace(
        learners={},
        monitors={str(n): SimpleNamespace(standing=s) for n, s in enumerate(standings)},
        num_outcomes={"feedback": 3},
        asked_lately=lambda tenant_id, now_us: True,
    )
    read = (metric for metric in METRICS if metric.read is not None)
    counters = Counters(read, Reports(learning=learning_report(experience, 0)))
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


def test_a_tenant_that_asks_no_more_has_no_traffic_that_moved() -> None:
    experience, minute_us = Experience(), 60_000_000
    for tenant_id, asked_us in (("left", 0), ("stays", 20 * minute_us)):
        experience.monitor(tenant_id).standing = Standing({"p_deep": 1.5}, 0.0, {"words": "moved"})
        experience.note_balances(tenant_id, (), asked_us)
    num_tenants = [
        learning_report(experience, minutes * minute_us).num_alarms["words"]
        for minutes in (29, 31, 49, 51)
    ]
    assert num_tenants == [2, 1, 1, 0]
    assert learning_report(experience, 51 * minute_us).largest_psi["p_deep"] == 0.0


def test_before_enough_asks_came_every_signal_stands_at_rest() -> None:
    text = scrape(Standing())
    for signal in SIGNALS:
        assert f'lanewise_drift_psi{{signal="{signal}"}} 0.0' in text
