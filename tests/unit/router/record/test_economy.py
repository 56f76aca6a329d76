"""Tests cost against quality: what is charged, the curves' ends, and the replay of `verify`."""

from pathlib import Path

import numpy as np
import pytest

from router.learn.learning import NUM_TRAITS
from router.policy.policy import DEFAULT_POLICY
from router.record.batch import Desk
from router.record.economy import (
    DEEP_PRICES,
    Pair,
    Ways,
    apgr_of,
    by_check,
    by_score,
    drawn_evidence,
)
from router.record.economy_report import ALL, PRICE_RATIO, economy_report, pairs_by_source
from router.record.evaluation import auc, curve
from router.record.labelled import Record, read_records
from router.record.report import judge

SEED = 3
DATA = Path(__file__).resolve().parents[5] / "shared/data/routing/dev"


def made_pairs(num: int = 600) -> list[Pair]:
    rng = np.random.default_rng(SEED)
    fast, deep = rng.random(num) < 0.5, rng.random(num) < 0.75
    return [
        Pair(float(f), float(d), float(p), np.zeros(NUM_TRAITS), 0.0, 10)
        for f, d, p in zip(fast, deep, rng.uniform(0.1, 0.5, num), strict=True)
    ]


def test_a_curve_without_ties_is_that_of_the_evaluation() -> None:
    pairs = made_pairs()
    scores = np.random.default_rng(SEED).random(len(pairs)).tolist()
    expected = curve([p.fast for p in pairs], [p.deep for p in pairs], scores)
    assert expected is not None
    found = apgr_of(by_score(pairs, scores, 0.1), pairs, 0.1)
    assert found.value == pytest.approx(expected.apgr, abs=0.01)
    assert found.low < found.value < found.high


def test_every_generation_is_charged() -> None:
    pairs = made_pairs()
    ways = by_check(pairs, 0.75, 0.2)
    costs = set(np.unique(ways.costs.round(6)).tolist())
    assert costs <= {0.2, 1.0, 1.2}, "fast alone, deep alone, and both"
    assert 1.2 in costs
    assert ways.gains[ways.costs == 0.2].any() is np.False_, "what fast answers gains nothing"
    assert ways.costs.mean(axis=1)[0] > ways.costs.mean(axis=1)[-1], "a dearer deep is asked less"
    assert len(ways.costs) == len(DEEP_PRICES)


def test_a_random_mix_has_half_of_the_area() -> None:
    pairs = made_pairs()
    ends = Ways(np.array([[0.1] * 600, [1.0] * 600]), np.zeros((2, 600)))
    ends.gains[1] = [pair.deep - pair.fast for pair in pairs]
    assert apgr_of(ends, pairs, 0.1).value == pytest.approx(0.5)


@pytest.mark.parametrize("wanted", [0.65, 0.75, 0.85])
def test_a_drawn_check_has_its_auc(wanted: float) -> None:
    pairs = made_pairs(20_000)
    evidence = drawn_evidence(pairs, wanted, np.random.default_rng(SEED))
    assert auc([p.fast == 1 for p in pairs], evidence.tolist()) == pytest.approx(wanted, abs=0.02)


def test_a_better_check_is_worth_more() -> None:
    pairs = made_pairs(1_500)
    found = [apgr_of(by_check(pairs, auc, 0.1), pairs, 0.1).value for auc in (0.55, 0.75, 0.95)]
    assert found == sorted(found)


def test_the_same_seed_draws_the_same_check() -> None:
    pairs = made_pairs(200)
    assert np.array_equal(by_check(pairs, 0.75, 0.1).costs, by_check(pairs, 0.75, 0.1).costs)


def test_few_outcomes_are_said_to_be_too_few() -> None:
    record = Record(text="a", labels={"small_ok": 0, "large_ok": 1})
    judged = [judge(record, Desk(policy=DEFAULT_POLICY))]
    assert economy_report(judged, DEFAULT_POLICY, 0.1) == [
        "",
        "Cost against quality: too few measured outcomes.",
    ]


@pytest.fixture(scope="module")
def recorded() -> list[Pair]:
    if not DATA.exists():
        pytest.skip("no recorded outcomes at ../shared/data/routing")
    desk = Desk(policy=DEFAULT_POLICY)
    records = [record for record in read_records([DATA]) if "small_ok" in record.labels]
    return list(pairs_by_source([judge(record, desk) for record in records])[ALL])


@pytest.mark.parametrize(("check", "least"), [(0.65, 0.63), (0.75, 0.67), (0.85, 0.76)])
def test_verify_on_recorded_pairs(recorded: list[Pair], check: float, least: float) -> None:
    found = apgr_of(by_check(recorded, check, PRICE_RATIO), recorded, PRICE_RATIO)
    assert found.value >= least
