"""Tests drift: what is an alarm, what is not, and what ends one."""

import numpy as np
import pytest

from router.classify.classify import classify, features_of_text
from router.classify.text_features import read
from router.learn.drift import (
    CUSUM_MAX,
    HALF,
    NUM_BINS,
    SIGNALS,
    Monitor,
    load_reference,
    make_reference,
    psi,
    values_of,
)
from router.learn.learning import SHAPE_TRAITS, traits

SEED = 20_260_119


def rows(count: int, seed: int, *, p_deep: float = 0.0, shape: float = 0.0) -> list[list[float]]:
    """Asks from one source, or from one that differs by so much."""
    chance = np.random.default_rng(seed)
    made = chance.normal(size=(count, len(SIGNALS)))
    made[:, 0] = 1 / (1 + np.exp(-made[:, 0] - p_deep))
    made[:, 2:4] += shape
    values: list[list[float]] = made.tolist()
    return values


REFERENCE = make_reference(rows(5_000, SEED))


def watched(*groups: list[list[float]]) -> Monitor:
    monitor = Monitor(REFERENCE)
    for group in groups:
        for row in group:
            monitor.note(row)
    return monitor


def test_psi_is_the_textbooks() -> None:
    assert psi((0.5, 0.5), (50, 50)) == 0
    assert psi((0.5, 0.5), (80, 20)) == pytest.approx(0.3 * np.log(1.6) - 0.3 * np.log(0.4))
    assert np.isfinite(psi((0.0, 1.0), (100, 0)))


def test_more_of_the_same_is_no_alarm() -> None:
    for seed in range(5):
        monitor = watched(rows(3 * HALF, SEED + 1 + seed))
        assert monitor.standing.alarms == {}, f"seed {SEED + 1 + seed}"
        assert 0 < max(monitor.standing.psi.values()) < 0.15


def test_few_asks_are_no_evidence() -> None:
    assert watched(rows(HALF - 1, SEED, p_deep=5)).standing.psi == {}


def test_each_kind_of_shift_has_its_alarm() -> None:
    assert set(watched(rows(2 * HALF, SEED, p_deep=1.5)).standing.alarms) == {"p_deep"}
    shifted = watched(rows(2 * HALF, SEED, shape=1.5)).standing
    assert set(shifted.alarms) == {"shape"}
    assert any(name in shifted.alarms["shape"] for name in SHAPE_TRAITS)
    strange = rows(2 * HALF, SEED)
    for row in strange:
        row[1] = 9.0
    assert set(watched(strange).standing.alarms) == {"words"}


def test_one_shape_alone_is_a_habit_of_writing() -> None:
    habit = rows(2 * HALF, SEED)
    for row in habit:
        row[2] += 2
    assert watched(habit).standing.alarms == {}


def test_an_alarm_ends_when_the_traffic_is_back() -> None:
    monitor = watched(rows(2 * HALF, SEED, p_deep=1.5))
    assert monitor.standing.alarms
    for row in rows(3 * HALF, SEED + 9):
        monitor.note(row)
    assert monitor.standing.alarms == {}


def test_traffic_that_was_learned_becomes_the_reference_once() -> None:
    monitor = watched(rows(2 * HALF, SEED, p_deep=1.5))
    monitor.settle()
    assert monitor.standing.alarms == {}
    for row in rows(3 * HALF, SEED + 3, p_deep=1.5):
        monitor.note(row)
    assert monitor.standing.alarms == {}
    monitor.settle()  # once only: else slow drift would never be seen
    for row in rows(3 * HALF, SEED + 4, p_deep=-1.5):
        monitor.note(row)
    assert set(monitor.standing.alarms) == {"p_deep"}


def failing(monitor: Monitor, count: int, share: float, seed: int) -> int:
    """Returns how many outcomes of so many failures it takes to an alarm; 0: none came."""
    chance = np.random.default_rng(seed)
    for number in range(1, count + 1):
        monitor.note_outcome(float(chance.random() < share))
        if "failures" in monitor.standing.alarms:
            return number
    return 0


def test_the_cusum_tells_a_lasting_change_from_a_bad_day() -> None:
    for seed in range(5):
        monitor = Monitor(REFERENCE)
        assert failing(monitor, 600, 0.2, seed) == 0, f"seed {seed}"
        assert failing(monitor, 15, 0.6, seed) == 0, f"seed {seed}"
        assert failing(monitor, 600, 0.2, seed + 50) == 0, f"seed {seed}"
        assert 0 < failing(monitor, 200, 0.6, seed) < 100, f"seed {seed}"
        for _ in range(500):
            monitor.note_outcome(1.0)
        assert monitor.standing.failures <= CUSUM_MAX
        for _ in range(100):
            monitor.note_outcome(0.0)
        assert "failures" not in monitor.standing.alarms


def test_the_shipped_reference_fits_the_signals() -> None:
    """`make train` made it, with the weights."""
    reference = load_reference()
    assert set(reference.histograms) == set(SIGNALS)
    for name, histogram in reference.histograms.items():
        assert len(histogram.shares) == len(histogram.edges) + 1 <= NUM_BINS, name
        assert sum(histogram.shares) == pytest.approx(1, abs=0.01), name
        assert list(histogram.edges) == sorted(set(histogram.edges)), name


def test_the_values_of_an_ask() -> None:
    prompt = "Refactor the zzyzx qwfpgj module"
    seen = features_of_text(prompt)
    task_class = classify(seen)
    values = values_of(task_class.p_deep, read(prompt), traits(read(prompt), task_class))
    assert len(values) == len(SIGNALS)
    assert values[0] == task_class.p_deep
    assert 0.4 <= values[1] <= 0.6  # two of four words ("the" is known) or of five
