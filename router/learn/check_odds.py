"""Fits what a check's evidence is worth to measured pairs of fast and deep answers: pure."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from router.classify.log_odds import log_odds
from router.strategies.acceptance import LEAST_P, TAKEN_AT_THEIR_WORD, CheckOdds

MIN_PAIRS = 100  # fewer teach nothing that would last
_PENALTY = 1.0  # on each weight's distance from taking the check at its word, in pairs
_NUM_STEPS, _MAX_STEP = 40, 1.0  # of Newton's method, which may overshoot from far away


def fit_odds(
    p_gains: Sequence[float] | NDArray[np.float64],
    evidence: Sequence[float] | NDArray[np.float64],
    gained: Sequence[bool] | NDArray[np.bool_],
) -> CheckOdds:
    """Returns the odds that fit best; `gained`: deep was right where fast was not.

    With fewer than `MIN_PAIRS` pairs, the check is taken at its word.
    """
    if len(gained) < MIN_PAIRS:
        return TAKEN_AT_THEIR_WORD
    priors = [log_odds(float(p_gain), LEAST_P) for p_gain in p_gains]
    seen = np.column_stack([np.ones(len(priors)), priors, np.asarray(evidence, float)])
    happened = np.asarray(gained, float)
    usual = np.array([TAKEN_AT_THEIR_WORD.bias, 1.0, TAKEN_AT_THEIR_WORD.per_evidence])
    weights = usual.copy()
    for _ in range(_NUM_STEPS):
        said = 1 / (1 + np.exp(-np.clip(seen @ weights, -30, 30)))
        slope = seen.T @ (happened - said) - _PENALTY * (weights - usual)
        curvature = (seen * (said * (1 - said))[:, None]).T @ seen + _PENALTY * np.eye(3)
        step = np.linalg.solve(curvature, slope)
        weights += step * min(1.0, _MAX_STEP / max(_MAX_STEP, float(np.sqrt(step @ step))))
    return CheckOdds(*map(float, weights))
