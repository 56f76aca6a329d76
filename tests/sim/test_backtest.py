"""Tests back-tests against a live gateway: recorded under one policy, and run live under another.

Both run in their engines' own time, so that no busy machine decides; `make accept` asks the same of
processes and sockets.
"""

import math
from typing import Any

import msgspec
import pytest

from gateway.backtest.fleets import Speeds, fleet_of_settings
from router.backtest.log_reader import Logged, read_records
from router.classify.task import Tenant
from router.comparison.comparison import BacktestQuestion, BacktestReport, back_test
from router.comparison.redecide import Redecider
from router.comparison.statistics import Slo, TaskSummary, summarise
from router.comparison.table import logged_table
from router.policy.policy import Policy, parse_policy
from router.record.recording import DecisionRecord
from tests.sim.recorded import WIDE, Ask, asks, recorded

SEED = 23
STUDIO = Tenant(id="studio", tier="standard", limits={"fast": WIDE, "deep": WIDE})
SHORT = {"max_output_tokens": 400}  # so that a live run takes seconds


def policy(name: str, text: str = "") -> Policy:
    return parse_policy(f'version = "{name}"\n{text}'.encode())


def crowd(number: int = 100, per_s: float = 3.0) -> list[Ask]:
    return [each._replace(fields=SHORT) for each in asks(SEED, number, per_s)]


def question(records: list[DecisionRecord], base: Policy, **more: Any) -> BacktestQuestion:
    settings = next(each.engine_settings for each in records if each.engine_settings)
    fleet = fleet_of_settings(settings, Speeds())
    redecider = Redecider(base, {each.info.name: each.info for each in fleet.machines})
    logged = read_records(records, redecider.take)
    return BacktestQuestion(
        logged=logged, base=base, fleet=fleet, redecided=redecider.found, **more
    )


def truth(records: list[DecisionRecord]) -> TaskSummary:
    logged: Logged = read_records(records)
    return summarise(logged_table(logged), Slo())


def check_replay(report: BacktestReport) -> None:
    """Checks that the log's own policy comes to what the log says."""
    assert report.replay.decided_same is not None
    assert report.replay.decided_same >= 0.995, report.first_line
    assert report.replay.routed_same >= 0.99, report.first_line
    assert abs(report.replay.off_by["latency_ms_mean"]) <= 0.02, report.first_line
    assert abs(report.replay.off_by["latency_ms_p95"]) <= 0.02, report.first_line
    assert abs(report.replay.off_by["output_tokens"]) <= 0.01, report.first_line


def check_prediction(predicted: TaskSummary, live: TaskSummary) -> None:
    """Checks that it is within what a back-test promises."""
    # The median of a hundred tasks, half of which are quick, jumps by whole gaps between them.
    for name in ("latency_ms_mean", "latency_ms_p95"):
        was, said = getattr(live, name), getattr(predicted, name)
        assert math.isclose(said, was, rel_tol=0.05, abs_tol=3.0), (name, said, was)
    for name in ("ttft_ms_p50", "ttft_ms_p95"):
        was, said = getattr(live, name), getattr(predicted, name)
        assert math.isclose(said, was, rel_tol=0.1, abs_tol=5.0), (name, said, was)
    assert abs(predicted.refused - live.refused) <= 0.02
    assert math.isclose(predicted.output_tokens, live.output_tokens, rel_tol=0.03)


PAIRS = [
    ("band", "[band]\nlow = 0.5\nhigh = 0.98", {}),
    ("hedge", 'interactive = { route = "parallel" }\n[strategies]\nhedge_after_ms = 10', {}),
    ("all deep", 'interactive = { route = "deep" }\nuncertain = { route = "deep" }', {}),
    ("outage", 'interactive = { route = "deep" }', {"outage": ("gpu", 8_000_000, 16_000_000)}),
]


@pytest.mark.parametrize(("name", "text", "more"), PAIRS, ids=[name for name, *_ in PAIRS])
def test_what_is_predicted_comes(name: str, text: str, more: dict[str, Any]) -> None:
    before, after, given = policy("before"), policy("after", text), crowd()
    log = recorded(given, before, [STUDIO], **more)
    report = back_test(question(log, before, policies={"after": after}))
    check_replay(report)
    live = truth(recorded(given, after, [STUDIO], **more))
    check_prediction(report.policies[0].summary, live)
    assert report.policies[0].num_moved > 0


def test_a_route_left_out_for_want_of_capacity_is_no_other_decision() -> None:
    base = policy("base")
    log = recorded(crowd(30), base, [STUDIO])
    assert question(log, base).redecided.share == 1.0
    full = [
        msgspec.structs.replace(each, ranked=each.ranked[1:]) if len(each.ranked) > 1 else each
        for each in log
    ]
    assert {each.ranked[0].reason for each in full} >= {"fallback"}
    assert question(full, base).redecided.share == 1.0
    wrong = [
        msgspec.structs.replace(
            each, ranked=(msgspec.structs.replace(each.ranked[0], backends=("nowhere",)),)
        )
        for each in log
    ]
    assert question(wrong, base).redecided.share == 0.0


def test_tasks_that_queued_for_their_streams_begin_when_they_did() -> None:
    base = policy("base")
    given = [
        each._replace(queued_us=4_000_000 if number % 5 == 0 else 0)
        for number, each in enumerate(crowd(60))
    ]
    log = recorded(given, base, [STUDIO])
    began = [record.at + (record.queued_ms or 0.0) / 1e3 for record in log]
    assert min(began) == pytest.approx(given[0].at_us / 1e6, abs=0.01)
    report = back_test(question(log, base))
    check_replay(report)
    assert abs(report.replay.off_by["ttft_ms_p95"]) <= 0.02, report.first_line


def test_a_canary_takes_the_conversations_that_it_took() -> None:
    canary = policy(
        "canary",
        '[[rules]]\nname = "some"\npercent = 40\nwhen = { labels = ["deep"] }\nroute = "fast"',
    )
    given = crowd(60)
    log = recorded(given, canary, [STUDIO])
    report = back_test(question(log, canary))
    check_replay(report)
    ruled = [record for record in log if record.rule == "some"]
    assert 0 < len(ruled) < sum(record.label == "deep" for record in log)


def test_what_if_and_rules_that_need_words() -> None:
    base = policy("base")
    worded = policy("words", '[[rules]]\nname = "w"\nwhen = { words = ["locks"] }\nroute = "fast"')
    log = recorded(crowd(50), base, [STUDIO])
    asked = question(log, base, policies={"words": worded}, scale=2.0, slow={"gpu": 0.5})
    changed, words = back_test(asked).policies
    assert changed.summary.num_tasks == 100
    assert words.before == changed.summary, "it is compared under the same circumstances"
    assert (changed.summary.tpot_ms_p95 or 0) > 1.5 * (truth(log).tpot_ms_p95 or 0)
    assert [each.rule for each in words.untestable] == ["w"]
    without = msgspec.structs.replace(
        asked, policies={}, scale=1.0, slow={}, without=frozenset({"gpu"})
    )
    (alone,) = back_test(without).policies
    assert {engine.name for engine in alone.engines} == {"wafer"}
    assert alone.num_moved > 0
