"""Tests what a backend's past tasks say about the next one."""

import pytest

from router.decide.backend_speed import (
    KEPT_WORDS,
    MIN_SAMPLES,
    MIN_WORDS,
    NOISE,
    BackendSpeeds,
    Estimate,
    extra_wait,
)
from tests.unit.router.tasks import backend


def measured(
    name: str, *, ttft_us: float, tpot_us: float, times: int = MIN_SAMPLES
) -> BackendSpeeds:
    paces = BackendSpeeds()
    for _ in range(times):
        paces.note(name, ttft_us, tpot_us)
    return paces


def test_nothing_is_said_before_enough_was_measured() -> None:
    paces = measured("gpu", ttft_us=500_000, tpot_us=20_000, times=MIN_SAMPLES - 1)
    assert paces.estimate(backend("gpu", "deep"), 100) is None
    paces.note("gpu", 500_000, 20_000)
    assert paces.estimate(backend("gpu", "deep"), 100) == Estimate(2_500_000, 2_500_000)
    assert paces.estimate(backend("other", "deep"), 100) is None


def test_waiting_tasks_and_slower_tokens_show() -> None:
    paces = measured("gpu", ttft_us=500_000, tpot_us=20_000)
    queued = paces.estimate(backend("gpu", "deep", waiting=10), 100)
    assert queued == Estimate(5_000_000, 2_500_000)  # as many wait as fit: twice as long
    for _ in range(60):
        paces.note("gpu", 500_000, 60_000)
    slow = paces.estimate(backend("gpu", "deep"), 100)
    assert slow is not None
    assert slow.now_us > 2 * slow.usual_us


def test_a_lasting_pace_becomes_the_usual_one() -> None:
    paces = measured("gpu", ttft_us=500_000, tpot_us=20_000)
    for _ in range(500):
        paces.note("gpu", 500_000, 60_000)
    estimate = paces.estimate(backend("gpu", "deep"), 100)
    assert estimate is not None
    assert estimate.usual_us == pytest.approx(estimate.now_us)


def test_the_quickest_of_a_group_counts_and_an_unknown_one_keeps_it_open() -> None:
    paces = measured("gpu-1", ttft_us=0, tpot_us=20_000)
    for _ in range(MIN_SAMPLES):
        paces.note("gpu-2", 0, 10_000)
        paces.note("wafer", 0, 1_000)
    stats = [backend("wafer", "fast"), backend("gpu-1", "deep"), backend("gpu-2", "deep")]
    both = Estimate(100_000, 100_000), Estimate(1_000_000, 1_000_000)
    assert paces.both(stats, 100) == both
    assert paces.both([*stats, backend("gpu-3", "deep")], 100) is None
    assert paces.both([*stats, backend("gpu-3", "deep", healthy=False)], 100) == both
    assert paces.both(stats[1:], 100) is None
    assert paces.both(stats[:1], 100) is None


@pytest.mark.parametrize(
    ("fast_now_us", "deep_now_us", "expected"),
    [
        (1e6, 10e6, 1.0),  # as usual
        (1e6, 1e6 + 9e6 * NOISE, 1.0),  # within the noise
        (1e6, 1e6 + 9e6 * 3, 2.0),
        (7e6, 10e6, 0.5),  # the fast engine is the one that is busy
        (20e6, 10e6, 0.0),
    ],
)
def test_extra_wait(fast_now_us: float, deep_now_us: float, expected: float) -> None:
    fast, deep = Estimate(fast_now_us, 1e6), Estimate(deep_now_us, 10e6)
    assert extra_wait(fast, deep) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("fast_now_us", "deep_now_us", "expected"),
    [
        (1.0e6, 1.0e6, 1.0),
        (1.1e6, 1.0e6, 1.0),  # noise of engines that are equally quick
        (1.0e6, 1.1e6, 1.0),
        (1.0e6, 4.0e6, 3.5 / 0.5 / NOISE),  # a queue
        (4.0e6, 1.0e6, 0.0),
    ],
)
def test_engines_that_are_alike_are_compared_with_half_of_deeps_time(
    fast_now_us: float, deep_now_us: float, expected: float
) -> None:
    fast, deep = Estimate(fast_now_us, 1e6), Estimate(deep_now_us, 1e6)
    assert extra_wait(fast, deep) == pytest.approx(expected)


def test_late_words_are_those_of_the_latest_answers() -> None:
    speeds = BackendSpeeds()
    for number in range(MIN_WORDS - 1):
        speeds.note_words("gpu", number)
    assert speeds.late_words_us("gpu") is None, "too few"
    assert speeds.late_words_us("other") is None
    for number in range(1, KEPT_WORDS + 1):
        speeds.note_words("gpu", number * 1_000)
    assert speeds.late_words_us("gpu") == 122_000  # of 128, 95 % come sooner
