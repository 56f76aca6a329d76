"""Tests metrics against values worked out by hand, and against their definitions on random data."""

import math

import numpy as np
import pytest

from router.record.evaluation import (
    auc,
    auc_within,
    calibration_error,
    curve,
    flags,
    rank_correlation,
)

SEED = 11


@pytest.mark.parametrize(
    ("positive", "scores", "expected"),
    [
        ([True, False], [0.9, 0.1], 1.0),
        ([True, False], [0.1, 0.9], 0.0),
        ([True, False], [0.5, 0.5], 0.5),
        ([True, True, False, False], [0.9, 0.2, 0.3, 0.1], 0.75),
    ],
)
def test_auc(positive: list[bool], scores: list[float], expected: float) -> None:
    assert auc(positive, scores) == expected


def test_auc_is_the_share_of_pairs_in_order() -> None:
    rng = np.random.default_rng(SEED)
    positive = [bool(x) for x in rng.random(60) < 0.4]
    scores = [float(x) for x in rng.integers(0, 9, 60)]
    pairs = [
        (a > b) + (a == b) / 2
        for a, is_positive in zip(scores, positive, strict=True)
        if is_positive
        for b, other in zip(scores, positive, strict=True)
        if not other
    ]
    assert auc(positive, scores) == pytest.approx(sum(pairs) / len(pairs)), SEED


def test_auc_needs_both_kinds() -> None:
    assert math.isnan(auc([True, True], [0.1, 0.2]))


def test_auc_within_is_free_of_what_the_group_tells() -> None:
    """Scores that only know the group are perfect pooled and worthless inside."""
    groups = ["small"] * 10 + ["large"] * 10
    positive = [False] * 7 + [True] * 3 + [True] * 7 + [False] * 3
    scores = [0.1] * 10 + [0.9] * 10
    assert auc(positive, scores) == pytest.approx(0.7)
    assert auc_within(groups, positive, scores) == (0.5, 2)
    assert auc_within(["only"] * 3, [True, False, False], [1, 0, 0])[1] == 0


@pytest.mark.parametrize(
    ("happened", "said", "expected"),
    [
        ([True, False], [1.0, 0.0], 0.0),
        ([True, False, True, False], [0.55] * 4, 0.05),
        ([True, True], [0.0, 0.0], 1.0),
    ],
)
def test_calibration_error(happened: list[bool], said: list[float], expected: float) -> None:
    assert calibration_error(happened, said) == pytest.approx(expected)


def test_flags() -> None:
    found = flags([True, True, True, False, False], [True, True, False, True, False])
    assert (found.hits, found.misses, found.false_alarms, found.right_rejections) == (2, 1, 1, 1)
    assert found.recall == found.precision == pytest.approx(2 / 3)
    assert found.false_alarm_rate == 0.5


def test_an_oracle_recovers_the_gap_at_once() -> None:
    small, large = [1, 1, 0, 0], [1, 1, 1, 1]
    oracle = curve(small, large, [0, 0, 1, 1])
    worst = curve(small, large, [1, 1, 0, 0])
    assert oracle is not None
    assert worst is not None
    assert (oracle.small_accuracy, oracle.large_accuracy) == (0.5, 1.0)
    # Quality rises 0, 1/2, 1, 1, 1 over five points: the area by trapezoids.
    assert oracle.apgr == pytest.approx((0.25 + 0.75 + 1 + 1) / 4)
    assert worst.apgr == pytest.approx(1 - oracle.apgr)
    assert (oracle.cpt50, oracle.cpt80) == (0.25, 0.5)
    assert (worst.cpt50, worst.cpt80) == (0.75, 1.0)


def test_equal_scores_are_as_good_as_chance() -> None:
    """The order of the file must not count."""
    found = curve([0, 0, 1, 1], [1, 1, 1, 1], [0.5] * 4)
    assert found is not None
    assert found.apgr == pytest.approx(0.5)
    assert found.cpt50 == 0.5


def test_no_gap_no_curve() -> None:
    assert curve([1, 1], [1, 0], [0, 1]) is None
    assert curve([], [], []) is None


def test_random_scores_are_as_good_as_chance() -> None:
    rng = np.random.default_rng(SEED)
    small, large = rng.random(20_000) < 0.6, rng.random(20_000) < 0.8
    found = curve(small.astype(float), large.astype(float), rng.random(20_000))
    assert found is not None
    assert found.apgr == pytest.approx(0.5, abs=0.03), SEED


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [([1, 2, 3], [10, 100, 1_000], 1.0), ([1, 2, 3], [3, 2, 1], -1.0), ([1, 2], [5, 5], math.nan)],
)
def test_rank_correlation(first: list[float], second: list[float], expected: float) -> None:
    assert rank_correlation(first, second) == pytest.approx(expected, nan_ok=True)
