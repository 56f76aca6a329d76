"""What a check's evidence is worth, fitted to pairs."""

import numpy as np
import pytest

from router.learn.check_odds import MIN_PAIRS, fit_odds
from router.strategies.acceptance import TAKEN_AT_THEIR_WORD, CheckOdds

SEED = 5


def test_few_pairs_leave_a_check_at_its_word() -> None:
    assert fit_odds([0.2] * 99, [1.0] * 99, [True] * 99) == TAKEN_AT_THEIR_WORD
    assert MIN_PAIRS == 100


def test_the_odds_that_made_the_pairs_are_found_again() -> None:
    rng = np.random.default_rng(SEED)
    made = CheckOdds(bias=-0.5, per_gain=0.6, per_evidence=-1.4)
    p_gains, evidence = rng.uniform(0.02, 0.9, 8_000), rng.normal(0, 1.5, 8_000)
    doubts = [made.doubt(p, e) for p, e in zip(p_gains.tolist(), evidence.tolist(), strict=True)]
    found = fit_odds(p_gains, evidence, rng.random(8_000) < np.array(doubts))
    assert found.bias == pytest.approx(made.bias, abs=0.15)
    assert found.per_gain == pytest.approx(made.per_gain, abs=0.1)
    assert found.per_evidence == pytest.approx(made.per_evidence, abs=0.15)


@pytest.mark.parametrize("always", [True, False])
def test_pairs_that_all_end_alike_give_finite_odds(always: bool) -> None:
    evidence = np.linspace(-1e3, 1e3, 200)
    odds = fit_odds([0.5] * 200, evidence, [always] * 200)
    assert np.isfinite([odds.bias, odds.per_gain, odds.per_evidence]).all()
    assert 0 <= odds.doubt(0.5, 1e6) <= 1
