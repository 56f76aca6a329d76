"""Tests the ring of the charts."""

from gateway.live.history import KEPT_S, RECORDED_S, History
from gateway.live.sample import Point
from router.record.recording import DecisionRecord, UsageRecord

USAGE = UsageRecord("wafer", "lanewise-fast", "fast", 10, 0, 100, exact=True)


def record(ended_s: float) -> DecisionRecord:
    return DecisionRecord(
        id="resp_1",
        at=ended_s - 1.0,
        tenant="dev",
        tier="development",
        model="auto",
        route="fast",
        outcome="ok",
        duration_ms=1_000.0,
        usage=(USAGE,),
    )


def point(at: float) -> Point:
    return Point(at=at, tokens_per_s={}, tasks_per_s={}, running=0)


def test_it_never_begins_empty() -> None:
    history = History()
    history.begin([record(9_990.0), record(9_990.5), record(100.0)], 10_000.0)
    points = list(history)
    assert len(points) == KEPT_S / RECORDED_S
    assert points[0].at > 10_000.0 - KEPT_S
    assert sum(each.tasks_per_s.get("fast", 0) * RECORDED_S for each in points) == 2
    assert sum(each.tokens_per_s.get("wafer", 0) * RECORDED_S for each in points) == 200


def test_it_is_bounded_in_time_and_in_number() -> None:
    history = History()
    for second in range(5_000):
        history.add(point(float(second)))
    points = list(history)
    assert len(points) <= KEPT_S
    assert points[0].at >= points[-1].at - KEPT_S


def test_a_gap_without_watchers_is_filled_from_the_log() -> None:
    history = History()
    history.add(point(9_900.0))
    history.begin([record(9_950.0)], 10_000.0)
    times = [each.at for each in history]
    assert times == sorted(times)
    assert times[0] == 9_900.0
    assert any(each.tasks_per_s for each in history)
