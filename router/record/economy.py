"""Compares ways to choose between two engines by cost and quality, on recorded outcomes: pure.

Each record has outcomes of both engines and what a router would say of its prompt. A way to choose
is a curve of points, one for each threshold. The cost is that of all generations; 0 is the cost of
asking the fast engine everything, 1 that of the deep one. Quality is the share of the gap between
the two that is recovered. APGR is the area under that, 0.5 for a random mix.

`verify` is replayed by the functions that decide in production: a tenant's learned gain
(`router.learn.learning`), the odds of its check (`router.learn.check_odds`) and the acceptance
(`router.strategies.acceptance`), in five folds, so that no pair is judged by what itself taught.
Its check is drawn: a normal score whose mean depends on whether the fast answer is right.
"""

from collections.abc import Sequence
from statistics import NormalDist

import msgspec
import numpy as np
from numpy.typing import NDArray

from backends.contract import BackendGroup
from router.learn.check_odds import fit_odds
from router.learn.learning import GainLearner, Observation
from router.strategies.acceptance import expected_saving

Floats = NDArray[np.float64]

SEED = 20_261_122
CHECK_AUCS = (0.65, 0.75, 0.85)
NUM_FOLDS = 5
NUM_RESAMPLES = 200  # for the intervals
SEEN_PERCENTILES = np.arange(5.0, 100.0, 10.0)  # of a check's evidence: what it may come to
# Prices of a deep answer, in right answers, for which `verify` is replayed.
DEEP_PRICES = tuple(np.linspace(0.01, 0.99, 50).round(4).tolist())


class Pair(msgspec.Struct, frozen=True):
    """Holds one record: how right each engine was (0 to 1), and what is said of its prompt."""

    fast: float
    deep: float
    p_gain: float
    traits: Floats
    rule_score: float
    num_chars: int
    is_uncertain: bool = True  # as classified
    check: float | None = None  # what the tenant's own check said of the fast answer


class Ways(msgspec.Struct, frozen=True):
    """Holds, for each threshold of one way to choose, the cost and the gain of each pair.

    Both have the shape (thresholds, pairs); costs are in deep answers, gains in right answers.
    """

    costs: Floats
    gains: Floats

    def points(self, gap: float, price_ratio: float, weights: Floats) -> tuple[Floats, Floats]:
        """Returns cost and quality at each threshold, from 0 (all fast) to 1 (all deep)."""
        costs = (self.costs @ weights - price_ratio) / (1 - price_ratio)
        return costs, self.gains @ weights / gap

    def apgr(self, gap: float, price_ratio: float, weights: Floats) -> float:
        """Returns the area under quality over cost; dearer points than all deep do not count."""
        costs, qualities = self.points(gap, price_ratio, weights)
        kept = (costs >= 0) & (costs <= 1)
        order = np.argsort(costs[kept], kind="stable")
        xs = np.concatenate([[0.0], costs[kept][order], [1.0]])
        ys = np.concatenate([[0.0], qualities[kept][order], [1.0]])
        return float(np.sum((ys[1:] + ys[:-1]) / 2 * np.diff(xs)))


class ResampledFigure(msgspec.Struct, frozen=True):
    """Holds a figure with its 95 % interval over resampled records."""

    value: float
    low: float
    high: float


def by_score(pairs: Sequence[Pair], scores: Sequence[float], price_ratio: float) -> Ways:
    """Sends the highest scores to the deep engine; equal ones share their outcomes."""
    gains = np.array([pair.deep - pair.fast for pair in pairs])
    found = np.asarray(scores, float)
    levels = np.unique(np.quantile(found, np.linspace(0, 1, 101)))
    goes_deep = (found[None, :] >= levels[:, None]).astype(float)
    return Ways(price_ratio + (1 - price_ratio) * goes_deep, goes_deep * gains)


def drawn_evidence(pairs: Sequence[Pair], auc: float, rng: np.random.Generator) -> Floats:
    """Draws what a check of this AUC says of the fast answers."""
    return drawn_checks(np.array([pair.fast >= 0.5 for pair in pairs]), auc, rng)


def drawn_checks(right: NDArray[np.bool_], auc: float, rng: np.random.Generator) -> Floats:
    """Draws a check of this AUC: how often it scores a right answer above a wrong one."""
    distance = NormalDist().inv_cdf(auc) * np.sqrt(2)
    drawn: Floats = distance * right + rng.standard_normal(right.shape)
    return drawn


def by_check(pairs: Sequence[Pair], auc: float, price_ratio: float) -> Ways:
    """Replays `verify` with a drawn check of this AUC, as `by_evidence`."""
    rng = np.random.default_rng(SEED)
    return _replayed(pairs, drawn_evidence(pairs, auc, rng), price_ratio, rng)


def by_evidence(pairs: Sequence[Pair], evidence: Floats, price_ratio: float) -> Ways:
    """Replays `verify` with what a check said, and one fast answer, at each of `DEEP_PRICES`."""
    return _replayed(pairs, evidence, price_ratio, np.random.default_rng(SEED))


def _replayed(
    pairs: Sequence[Pair], evidence: Floats, price_ratio: float, rng: np.random.Generator
) -> Ways:
    folds = rng.permutation(len(pairs)) % NUM_FOLDS
    shape = len(DEEP_PRICES), len(pairs)
    costs, goes_deep = np.zeros(shape), np.zeros(shape)
    for fold in range(NUM_FOLDS):
        taught = np.flatnonzero(folds != fold).tolist()
        p_gains = _learned_gains(pairs, taught)
        gains = [pairs[at].deep - pairs[at].fast for at in taught]
        odds = fit_odds(p_gains[taught], evidence[taught], gains)
        usual = np.percentile(evidence[taught], SEEN_PERCENTILES).tolist() if taught else [0.0]
        for at in np.flatnonzero(folds == fold).tolist():
            p_gain = float(p_gains[at])
            may_come = [odds.doubt(p_gain, each) for each in usual]
            doubt = odds.doubt(p_gain, float(evidence[at]))
            for row, price in enumerate(DEEP_PRICES):
                asks_fast = expected_saving(may_come, price) > price_ratio * price
                goes_deep[row, at] = not asks_fast or doubt >= price
                costs[row, at] = price_ratio * asks_fast + goes_deep[row, at]
    return Ways(costs, goes_deep * np.array([pair.deep - pair.fast for pair in pairs]))


def _learned_gains(pairs: Sequence[Pair], taught: Sequence[int]) -> Floats:
    learner = GainLearner()
    for at in taught:
        success: dict[BackendGroup, float] = {"fast": pairs[at].fast, "deep": pairs[at].deep}
        learner.observe(Observation(pairs[at].traits, pairs[at].p_gain, success))
    gains = [pair.p_gain + learner.correction(pair.traits) for pair in pairs]
    return np.array(gains)


def apgr_of(ways: Ways, pairs: Sequence[Pair], price_ratio: float) -> ResampledFigure:
    """Returns the APGR with its interval."""
    gains = np.array([pair.deep - pair.fast for pair in pairs])
    num_pairs = len(pairs)
    rng = np.random.default_rng(SEED)
    even = np.full(num_pairs, 1 / num_pairs)
    found = []
    for _ in range(NUM_RESAMPLES):
        weights = rng.multinomial(num_pairs, even) / num_pairs
        gap = float(gains @ weights)
        if gap > 0:
            found.append(ways.apgr(gap, price_ratio, weights))
    low, high = np.percentile(found, [2.5, 97.5]).tolist() if found else (0.0, 0.0)
    return ResampledFigure(ways.apgr(float(gains.mean()), price_ratio, even), low, high)
