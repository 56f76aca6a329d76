"""Tests what a check's evidence is worth, fitted to pairs."""

import numpy as np
import pytest

from router.learn.check_odds import MIN_PAIRS, fit_odds
from router.strategies.acceptance import TAKEN_AT_THEIR_WORD, CheckOdds, Odds

SEED = 5


def test_few_pairs_leave_a_check_at_its_word() -> None:
    assert fit_odds([0.2] * 99, [1.0] * 99, [1.0] * 99) == TAKEN_AT_THEIR_WORD
    assert MIN_PAIRS == 100


def test_the_odds_that_made_the_pairs_are_found_again() -> None:
    rng = np.random.default_rng(SEED)
    made = CheckOdds(Odds(-0.5, 0.6, -1.4), Odds(-3.0, 0.1, 0.8))
    p_gains, evidence = rng.uniform(0.02, 0.9, 20_000), rng.normal(0, 1.5, 20_000)
    assert made.loss is not None
    chances = rng.random(20_000).tolist()
    gains = [
        float(made.gain.of(p, e) > chance) - float(made.loss.of(p, e) > 1 - chance)
        for p, e, chance in zip(p_gains.tolist(), evidence.tolist(), chances, strict=True)
    ]
    found = fit_odds(p_gains, evidence, gains)
    assert found.loss is not None
    for one, other in ((found.gain, made.gain), (found.loss, made.loss)):
        assert one.bias == pytest.approx(other.bias, abs=0.2)
        assert one.per_gain == pytest.approx(other.per_gain, abs=0.15)
        assert one.per_evidence == pytest.approx(other.per_evidence, abs=0.2)


@pytest.mark.parametrize("always", [True, False])
def test_pairs_that_all_end_alike_give_finite_odds(always: bool) -> None:
    evidence = np.linspace(-1e3, 1e3, 200)
    odds = fit_odds([0.5] * 200, evidence, [float(always)] * 200)
    assert odds.loss is not None
    for each in (odds.gain, odds.loss):
        assert np.isfinite([each.bias, each.per_gain, each.per_evidence]).all()
    assert -1 <= odds.doubt(0.5, 1e6) <= 1
