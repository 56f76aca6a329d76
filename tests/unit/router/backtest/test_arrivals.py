"""Tests arrivals of logs and traces: lengths, links between turns, outages, and shared prefixes."""

from typing import Any

import msgspec
import pytest

from router.backtest.arrivals import AnswerLength
from router.backtest.lengths import learn_lengths, length_of, sources
from router.backtest.log_reader import read_records
from router.classify.task import Route
from router.record.recording import DecisionRecord, UsageRecord
from router.record.seen import ContextRecord, EngineSeen, GenerationRecord, SeenRecord
from tests.unit.router.backtest.scenes import START_US, arrival

AT_S = START_US / 1e6


def generation(backend: str, state: str = "finished", **more: Any) -> GenerationRecord:
    given = {
        "part": "answer",
        "started_ms": 1.0,
        "first_ms": 3.0,
        "last_ms": 50.0,
        "input_tokens": 100,
        "cached_tokens": 0,
        "output_tokens": 40,
        "reasoning_tokens": 0,
    }
    return GenerationRecord(backend=backend, state=state, **given | more)


def record(number: int, at_s: float = 0.0, **more: Any) -> DecisionRecord:
    given: dict[str, Any] = {
        "id": f"resp_{number}",
        "at": AT_S + at_s,
        "tenant": "studio",
        "tier": "standard",
        "model": "auto",
        "prompt_tokens": 100,
        "outcome": "ok",
        "duration_ms": 100.0,
        "expected_output_tokens": 50,
        "usage": (
            UsageRecord("wafer", "f", "fast", 100, 0, 40, True),
            UsageRecord("gpu", "d", "deep", 100, 0, 80, True),
        ),
    }
    return DecisionRecord(**given | more)


def test_lengths_are_of_whole_answers() -> None:
    both = record(0, generations=(generation("wafer"), generation("gpu", output_tokens=80)))
    cut = record(1, generations=(generation("gpu", "cancelled", output_tokens=30),))
    first, second = read_records([both, cut]).arrivals
    assert dict(first.lengths) == {"fast": AnswerLength(40), "deep": AnswerLength(80)}
    assert (second.lengths, second.at_least_tokens) == ((), 30)


def test_a_route_of_a_later_version_is_read_as_none_asked() -> None:
    asked = read_records([record(0, asked_route="deep"), record(1, asked_route="quick")]).arrivals
    assert [each.hints.route for each in asked] == [Route.DEEP, None]


def test_strategies_and_options_of_earlier_versions_are_read_as_their_successors() -> None:
    logged = read_records(
        [
            record(0, strategy="race", asked_strategy="race", strategy_options={"margin_ms": 5}),
            record(1, asked_strategy="verify", strategy_options={"num_answers": 3, "gone": 1}),
            record(2, asked_strategy="from-a-later-version", strategy_options={"num_answers": 3}),
        ]
    )
    asked = [(each.hints.strategy, each.hints.strategy_options) for each in logged.arrivals]
    assert asked == [("hedge", {}), ("verify", {"num_answers": 3}), (None, {})]
    assert logged.facts[0].strategy == "race", "what ran is told as it was"


def test_another_engines_length_is_learned_from_pairs() -> None:
    pairs = [
        arrival(n, lengths=(("fast", AnswerLength(100)), ("deep", AnswerLength(250))))
        for n in range(8)
    ]
    single = arrival(9, lengths=(("fast", AnswerLength(60)),))
    unknown = arrival(10, lengths=(), at_least_tokens=500)
    assert length_of(single, "deep", learn_lengths([single])).output_tokens == 60, "as long"
    learned = learn_lengths([*pairs, single])
    assert length_of(single, "deep", learned).output_tokens == 150
    assert length_of(unknown, "deep", learned).output_tokens == 500, "it was at least that long"
    counts = sources([*pairs, single, unknown], learned)
    assert counts == {"log": 8, "pairs": 1, "other": 0, "classifier": 1}


def test_turns_are_linked_by_their_prefixes() -> None:
    first = record(0, context=ContextRecord(prefix=((11, 100),)))
    then = record(
        1, 1.0, prompt_tokens=300, context=ContextRecord(prefix=((11, 100), (12, 150), (13, 300)))
    )
    before, after = read_records([then, first]).arrivals
    assert (before.end_prefix, after.follows) == ((12, 150), 0)
    assert after.think_us == pytest.approx(900_000, abs=1)


def test_a_turn_that_queued_for_the_answer_before_it_is_linked_to_it() -> None:
    first = record(0, context=ContextRecord(prefix=((11, 100),)))
    then = ContextRecord(prefix=((11, 100), (12, 150), (13, 300)))
    early = record(1, 0.02, prompt_tokens=300, queued_ms=81.0, context=then)
    after = read_records([first, early]).arrivals[1]
    assert after.follows == 0
    assert after.think_us + after.queued_us == pytest.approx(1_000, abs=1), "from end to start"
    unqueued = msgspec.structs.replace(early, queued_ms=0.2)
    assert read_records([first, unqueued]).arrivals[1].follows == -1, "it began before that end"


@pytest.mark.parametrize(
    "turned_away", [{"route": "fast", "reason": "fallback"}, {"outcome": "rate_limited"}]
)
def test_of_two_that_came_at_once_who_found_a_pool_full_came_last(
    turned_away: dict[str, Any],
) -> None:
    ended_first = record(0, **turned_away)
    logged = read_records([ended_first, record(1, reason="class")])
    assert [each.id for each in logged.arrivals] == [record(1).id, ended_first.id]


def test_a_line_that_is_read_twice_counts_once() -> None:
    at_once = [record(0), record(1), record(2, 1.0)]
    logged = read_records([*at_once, *at_once])
    assert [each.id for each in logged.arrivals] == [each.id for each in at_once]
    assert (len(logged.facts), logged.num_again) == (3, 3)


def test_outages_are_what_decisions_saw() -> None:
    def seen(*, healthy: bool) -> SeenRecord:
        return SeenRecord(engines=(EngineSeen("gpu", healthy=healthy),))

    rows = [record(n, n, seen=seen(healthy=n not in (2, 3))) for n in range(6)]
    (outage,) = read_records(rows).outages
    assert (outage.backend, outage.breaks) == ("gpu", False)
    assert outage.from_us == START_US + 2_000_000 - 1
    assert outage.until_us == START_US + 4_000_000 - 1
    rows[2] = record(2, 2, seen=seen(healthy=False), generations=(generation("gpu", "failed"),))
    (outage,) = read_records(rows).outages
    assert outage.breaks, "a generation failed by then"


def test_lines_of_schema_1_are_arrivals_too() -> None:
    old = record(0, schema=1, answered_by="gpu", p_deep=0.9, outcome="ok")
    logged = read_records([old])
    assert logged.schema == 1
    (only,) = logged.arrivals
    assert dict(only.lengths) == {"deep": AnswerLength(80)}
    gone = record(1, schema=1, outcome="cancelled", duration_ms=40.0)
    assert read_records([gone]).arrivals[0].left_us == 40_000


def test_how_often_is_handed_on_is_learned_from_who_could() -> None:
    handed = (generation("wafer", part="converse"), generation("gpu", part="subtask"))
    kept = (generation("wafer", part="converse"),)
    rows = [record(n, strategy="delegate", generations=handed if n else kept) for n in range(4)]
    logged = read_records([*rows, record(5, strategy="hedge")])
    assert logged.odds.hands_on == 0.75
    assert dict(logged.arrivals[0].lengths) == {"fast": AnswerLength(40)}, "it answered by itself"
    assert dict(logged.arrivals[1].lengths) == {"deep": AnswerLength(40)}, "of the sub-task"
