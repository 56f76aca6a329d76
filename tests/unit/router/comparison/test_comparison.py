"""Tests comparisons: sums, how sure a difference is, what cannot be tested, and the words."""

import csv
import random
from typing import Any

import msgspec
import pytest

from backends.contract import Usage
from router.backtest.log_reader import Logged, read_records
from router.backtest.results import TaskResult
from router.comparison.comparison import (
    BacktestQuestion,
    BacktestReport,
    back_test,
    own_times,
)
from router.comparison.html import as_html
from router.comparison.prediction import MIN_TASKS, check, prediction_of
from router.comparison.report import as_csv, as_text
from router.comparison.statistics import Slo, differences, intervals, summarise
from router.comparison.table import ResultTable
from router.comparison.what_if import scaled, without_untestable
from router.money.prices import ModelPrice, PriceList
from router.policy.policy import DEFAULT_POLICY, parse_policy
from router.record.recording import DecisionRecord, UsageRecord
from router.record.seen import GenerationRecord
from tests.unit.router.backtest.scenes import START_US, arrival, crowd, fleet, tenant

INFOS = {machine.info.name: machine.info for machine in fleet().machines}


def table(latencies_ms: list[float], **more: Any) -> ResultTable:
    """Returns one task a second, each as long as given."""
    made = ResultTable(len(latencies_ms))
    prices = PriceList([ModelPrice(model="lanewise-fast", input=1.0, output=2.0)])
    for index, latency_ms in enumerate(latencies_ms):
        given: dict[str, Any] = {
            "index": index,
            "at_us": START_US + index * 1_000_000,
            "tenant": "studio",
            "label": "deep",
            "route": "fast",
            "reason": "class",
            "outcome": "ok",
            "ttft_us": 10_000,
            "tpot_us": 1_000.0,
            "duration_us": round(latency_ms * 1_000),
            "usage": (("wafer", Usage(100, 0, 50)),),
            "cost": 150,
        }
        made.add(TaskResult(**given | more), INFOS, prices)
    return made


def test_a_summary() -> None:
    made = table([float(n) for n in range(1, 101)])
    found = summarise(made, Slo(ttft_ms=None, latency_ms=50.0))
    assert (found.num_tasks, found.answered, found.slo_met) == (100, 1.0, 0.5)
    assert found.latency_ms_p50 == pytest.approx(50.5)
    assert found.latency_ms_p99 == pytest.approx(99.01)
    assert (found.weighted_tokens, found.output_tokens) == (15_000, 5_000)
    assert found.money_usd == pytest.approx(100 * (100 * 1e-6 + 50 * 2e-6))
    refused = summarise(table([1.0], outcome="rate_limited", route=None, usage=()), Slo())
    assert (refused.refused, refused.slo_met, refused.latency_ms_p50) == (1.0, 0.0, None)
    left = summarise(table([1.0], outcome="cancelled"), Slo())
    assert (left.failed, left.slo_met) == (0.0, None), "nobody stayed to see it"


def test_an_interval_holds_what_the_replay_missed_and_what_the_gateway_takes() -> None:
    made = table([100.0] * 50)
    assert intervals(made, Slo())["latency_ms_p50"] == (100.0, 100.0)
    off = intervals(made, Slo(), 0, {"latency_ms_p50": -0.03, "output_tokens": 0.5}, own_ms=4.0)
    assert off["latency_ms_p50"] == pytest.approx((95.0, 105.0)), "3 and 4 in quadrature"
    assert off["ttft_ms_p50"] == pytest.approx((6.0, 14.0))
    assert off["output_tokens"] == pytest.approx((1_250, 3_750)), "no time"


def test_no_interval_is_beyond_what_can_be() -> None:
    latencies = [1.0] * 5 + [1_000.0] * 6 + [1.0] * 5 + [1_000.0] * 5
    slow = table(latencies, outcome="ok")
    refused = table([1.0] * 21, outcome="rate_limited")
    fast = table([1.0] * 21)
    whole = {"latency_ms_p50": 3.0, "slo_met": 2.0, "refused": 2.0}
    for before, after in ((slow, fast), (refused, fast), (fast, refused)):
        for each in differences(before, after, Slo(), whole):
            assert each.before + each.low >= 0, each
            assert each.before + each.high <= 1 or each.figure not in ("slo_met", "refused"), each
        for name, (low, high) in intervals(after, Slo(), 0, whole).items():
            assert low >= 0, name
            assert high <= 1 or name not in ("slo_met", "refused", "waited"), name


def test_a_difference_is_seen_only_where_it_is_one() -> None:
    chance = random.Random(5)
    before = [chance.gauss(100, 10) for _ in range(400)]
    noise = table([value + chance.gauss(0, 10) for value in before])
    slower = table([value * 1.3 for value in before])

    def seen(after: ResultTable, off_by: float = 0.0) -> bool:
        found = differences(table(before), after, Slo(), {"latency_ms_p50": off_by})
        (median,) = [each for each in found if each.figure == "latency_ms_p50"]
        assert median.low <= median.change <= median.high
        return median.seen

    assert not seen(noise)
    assert seen(slower)
    assert not seen(slower, off_by=1.5), "the replay itself was further off"


def test_scaled_traffic_is_of_whole_conversations() -> None:
    arrivals = [
        arrival(0, 0.0, prefix=((1, 50), (2, 100))),
        arrival(1, 50.0, prefix=((1, 50), (2, 100), (3, 200)), follows=0),
        arrival(2, 100.0),
    ]
    twice = scaled(arrivals, 2.0)
    assert len(twice) == 6
    assert [each.at_us for each in twice] == sorted(each.at_us for each in twice)
    copies = [each for each in twice if each.id.endswith("~1")]
    assert len(copies) == 3
    (copy,) = [each for each in copies if each.follows >= 0]
    assert twice[copy.follows].id == "resp_0~1"
    assert copy.prefix[0] == (1, 50), "the head is everybody's"
    assert copy.prefix[1][0] != 2
    half = scaled(crowd(1, 1_000), 0.5)
    assert 430 <= len(half) <= 570
    with pytest.raises(ValueError, match="expected a number above 0"):
        scaled(arrivals, 0)


def test_rules_that_a_log_cannot_test_are_named_and_left_out() -> None:
    policy = parse_policy(
        b"""
        [[rules]]
        name = "worded"
        when = { any = [{ words = ["locks"] }, { turns_from = 5 }] }
        route = "fast"
        [[rules]]
        name = "teams"
        when = { metadata = { team = ["ads"] } }
        route = "fast"
        [[tenants.studio.rules]]
        name = "own"
        when = { not = { words = ["x"] } }
        route = "deep"
        """
    )
    kept, named = without_untestable(policy, has_text=False, metadata_names=frozenset())
    assert [each.rule for each in named] == ["worded", "teams", "own"]
    assert not any(rule.enabled for _, rule in kept.all_rules())
    kept, named = without_untestable(policy, has_text=True, metadata_names=frozenset({"team"}))
    assert (kept, named) == (policy, ())


def logged(seed: int = 3, number: int = 120) -> Logged:
    """Records of tasks that all took a tenth of a second on the fast engine."""
    records = [
        DecisionRecord(
            id=each.id,
            at=each.at_us / 1e6,
            tenant="studio",
            tier="standard",
            model="auto",
            policy="default",
            prompt_tokens=each.prompt_tokens,
            max_output_tokens=each.max_output_tokens,
            p_deep=each.p_deep,
            expected_output_tokens=50,
            limits=tenant().limits,
            route="fast",
            outcome="ok",
            answered_by="wafer",
            ttft_ms=5.0,
            tpot_ms=1.0,
            duration_ms=100.0,
            usage=(UsageRecord("wafer", "f", "fast", each.prompt_tokens, 0, 50, True),),
            output_tokens=50,
            cost=each.prompt_tokens + 50,
        )
        for each in crowd(seed, number)
    ]
    return read_records(records)


@pytest.fixture(scope="module")
def report() -> BacktestReport:
    policies = {
        "<b>fast": parse_policy(b'deep = { route = "fast" }\nuncertain = { route = "fast" }')
    }
    asked = BacktestQuestion(logged=logged(), base=DEFAULT_POLICY, fleet=fleet(), policies=policies)
    return back_test(asked)


def test_the_gateways_own_time_is_of_the_first_token_and_of_the_end() -> None:
    def record(number: int, late_ms: float) -> DecisionRecord:
        each = arrival(number, number * 1_000.0)
        return DecisionRecord(
            id=each.id,
            at=each.at_us / 1e6,
            tenant="studio",
            tier="standard",
            model="auto",
            prompt_tokens=100,
            outcome="ok",
            queued_ms=3.0,
            ttft_ms=3.0 + 1.0 + 2.0 + 2 * late_ms,
            duration_ms=3.0 + 1.0 + 40.0 + 5.0 + 2 * late_ms,
            generations=(
                GenerationRecord(
                    backend="wafer",
                    part="answer",
                    state="finished",
                    started_ms=3.0 + 1.0 + late_ms,
                    first_ms=3.0 + 1.0 + 1.5 + late_ms,
                    last_ms=3.0 + 1.0 + 40.0 + late_ms,
                    input_tokens=100,
                    cached_tokens=0,
                    output_tokens=40,
                    reasoning_tokens=0,
                ),
            ),
        )

    own = own_times(read_records(record(n, late) for n, late in enumerate((0.0, 1.0, 9.0))))
    # The task that is late to start is late behind its tokens: 1 ms each time in the median.
    assert (own.before_us, own.behind_us, own.ending_us) == (2_000, 1_500, 6_000)


def test_the_report_says_it_in_all_forms(report: BacktestReport) -> None:
    text = as_text(report)
    assert text.startswith("Replay under 'default', which made the log: ")
    assert "120 tasks" in text
    assert "tasks go another way" in text
    assert "120 taken to be as long as the engine's that answered" in text
    html = as_html(report)
    assert "<script" not in html
    assert "<b>fast" not in html, "names are escaped"
    assert html.count("<svg") >= 2
    assert "money" not in html, "there are no prices"
    assert as_csv(report).count("\n") >= 4
    row = dict(zip(*csv.reader(as_csv(report).splitlines()[:2]), strict=True))
    assert row["policy"] == "as logged"
    assert (row["waited"], row["money_usd"]) == ("", ""), "a log does not say them"
    again = msgspec.json.decode(msgspec.json.encode(report), type=BacktestReport)
    assert as_text(again) == text


def test_what_is_assumed_of_a_strategy_is_said_where_it_ran() -> None:
    def notes(policy: str) -> str:
        policies = {"new": parse_policy(policy.encode())}
        asked = BacktestQuestion(
            logged=logged(), base=DEFAULT_POLICY, fleet=fleet(), policies=policies
        )
        return " ".join(back_test(asked).notes)

    assumed = "How often fast answers agree is assumed"
    assert assumed in notes('deep = { route = "parallel", strategy = "verify" }')
    elsewhere = 'deep = { route = "fast" }\nuncertain = { route = "fast" }'
    assert assumed not in notes(f'strategy = "verify"\n{elsewhere}'), "it never ran"


def test_without_a_policy_the_log_stands_beside_its_replay() -> None:
    replayed = back_test(BacktestQuestion(logged=logged(), base=DEFAULT_POLICY, fleet=fleet()))
    lines = as_text(replayed).splitlines()
    head = next(line for line in lines if "as logged" in line)
    assert head.split() == ["as", "logged", "replayed", "off", "by"]
    mean = next(line for line in lines if line.startswith("latency p95"))
    real, said = replayed.logged.latency_ms_p95, replayed.before.summary.latency_ms_p95
    assert real is not None
    assert said is not None
    assert mean.split()[3:] == [f"{real:,.1f}", f"{said:,.1f}", f"{said / real - 1:+.1%}"]
    assert not any("->" in line or "before" in line for line in lines), "nothing was changed"


def test_twice_the_traffic_stands_beside_what_it_was() -> None:
    asked = BacktestQuestion(logged=logged(), base=DEFAULT_POLICY, fleet=fleet(), scale=2.0)
    (tested,) = back_test(asked).policies
    assert (tested.before.num_tasks, tested.summary.num_tasks) == (120, 240)
    assert tested.summary.output_tokens == pytest.approx(2 * tested.before.output_tokens, rel=0.01)
    assert (tested.differences, tested.num_moved) == ((), 0), "no task is the same as before"
    for part in (*tested.ways, *tested.tenants):
        assert part.before.num_tasks <= part.after.num_tasks


def test_traffic_of_which_nothing_is_left() -> None:
    asked = BacktestQuestion(
        logged=logged(number=3), base=DEFAULT_POLICY, fleet=fleet(), scale=1e-6
    )
    with pytest.raises(ValueError, match="at 1e-06 times the traffic no task of the log is left"):
        back_test(asked)


def test_a_seed_below_0_is_refused_by_name() -> None:
    asked = BacktestQuestion(
        logged=logged(number=3), base=DEFAULT_POLICY, fleet=fleet(), policies={}, seed=-1
    )
    with pytest.raises(ValueError, match="seed -1: expected a whole number from 0"):
        back_test(asked)


def test_a_way_that_no_task_took_before_has_no_figures(report: BacktestReport) -> None:
    gone = [part for part in report.policies[0].ways if not part.after.num_tasks]
    assert gone, "the policy sends all tasks to the fast engine"
    lines = as_text(report).splitlines()
    for part in gone:
        assert any(f"way {part.name}: " in line and line.endswith("-> no task") for line in lines)


def test_a_prediction_is_held_to_what_came(report: BacktestReport) -> None:
    prediction = prediction_of(report, report.before, logged(), "v3", 1.0)
    assert check(prediction, logged(number=MIN_TASKS - 1)) is None
    for name in ("slo_met", "refused"):
        figure = prediction.figures[name]
        assert 0 <= figure.low <= figure.value <= figure.high <= 1, "it is a share"
    found = check(prediction, logged())
    assert found is not None
    off = {figure.figure for figure in found.figures if not figure.within}
    assert "refused" not in off
    assert found.within == (not off)
    slow = msgspec.structs.replace(
        prediction,
        conditions=msgspec.structs.replace(prediction.conditions, tasks_per_s=1_000.0),
    )
    told = check(slow, logged())
    assert told is not None
    assert any("traffic" in cause for cause in told.causes)


def test_a_log_without_tasks() -> None:
    with pytest.raises(ValueError, match="no task that reached the router"):
        back_test(BacktestQuestion(logged=read_records([]), base=DEFAULT_POLICY, fleet=fleet()))
