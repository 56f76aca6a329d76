"""Fits what a check's evidence is worth to measured pairs of fast and deep answers: pure."""

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from router.classify.log_odds import log_odds
from router.strategies.acceptance import LEAST_P, TAKEN_AT_THEIR_WORD, CheckOdds, Odds

MIN_PAIRS = 100  # fewer teach nothing that would last
# Ours, where pairs say nothing else: one deep answer in 16 is wrong where the fast one is right.
USUAL_LOSS = Odds(-2.7, 0.0, 0.5)
_PENALTY = 1.0  # on each weight's distance from the usual one, in pairs
_NUM_STEPS, _MAX_STEP = 40, 1.0  # of Newton's method, which may overshoot from far away


def fit_odds(
    p_gains: Sequence[float] | NDArray[np.float64],
    evidence: Sequence[float] | NDArray[np.float64],
    gains: Sequence[float] | NDArray[np.float64],
) -> CheckOdds:
    """Returns the odds that fit best; `gains`: how much righter deep was than fast, -1 to 1.

    With fewer than `MIN_PAIRS` pairs, the check is taken at its word.
    """
    if len(gains) < MIN_PAIRS:
        return TAKEN_AT_THEIR_WORD
    priors = [log_odds(float(p_gain), LEAST_P) for p_gain in p_gains]
    seen = np.column_stack([np.ones(len(priors)), priors, np.asarray(evidence, float)])
    found = np.asarray(gains, float)
    return CheckOdds(
        _fitted(seen, found > 0, TAKEN_AT_THEIR_WORD.gain), _fitted(seen, found < 0, USUAL_LOSS)
    )


def _fitted(seen: NDArray[np.float64], happened: NDArray[np.bool_], start: Odds) -> Odds:
    """Fits one model by Newton's method."""
    usual = np.array(msgspec.structs.astuple(start))
    weights = usual.copy()
    for _ in range(_NUM_STEPS):
        said = 1 / (1 + np.exp(-np.clip(seen @ weights, -30, 30)))
        slope = seen.T @ (happened - said) - _PENALTY * (weights - usual)
        curvature = (seen * (said * (1 - said))[:, None]).T @ seen + _PENALTY * np.eye(3)
        step = np.linalg.solve(curvature, slope)
        weights += step * min(1.0, _MAX_STEP / max(_MAX_STEP, float(np.sqrt(step @ step))))
    return Odds(*map(float, weights))
