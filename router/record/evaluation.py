"""Measures how good a classifier is, from labels and scores.

`docs/classifier.md` explains each number and its traps: above all, that a classifier that merely
recognises a text's source has a good pooled AUC, and should be judged by the mean AUC in sources.
"""

from collections import defaultdict
from collections.abc import Hashable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MIN_OF_EACH = 3  # a source with fewer deep or interactive records has no AUC worth averaging
CALIBRATION_BINS = 10


class Curve(msgspec.Struct, frozen=True):
    """Summarises accuracy over the share of calls to the large model, as RouteLLM does.

    Quality is the recovered share of the gap between both models' accuracy (PGR). A router that
    chooses at random has an APGR of 0.5 and a CPT(x) of x.
    """

    num_records: int
    small_accuracy: float
    large_accuracy: float
    apgr: float  # area under quality over the share of calls
    cpt50: float  # the smallest share of calls to the large model that recovers 50 % of the gap
    cpt80: float


class Flags(msgspec.Struct, frozen=True):
    """Counts a yes/no decision's results."""

    hits: int
    false_alarms: int
    misses: int
    right_rejections: int

    @property
    def recall(self) -> float:
        return share(self.hits, self.hits + self.misses)

    @property
    def precision(self) -> float:
        return share(self.hits, self.hits + self.false_alarms)

    @property
    def false_alarm_rate(self) -> float:
        return share(self.false_alarms, self.false_alarms + self.right_rejections)


def auc(positive: Sequence[bool], scores: Sequence[float]) -> float:
    """Returns how often a positive scores above a negative, ties as half; NaN without both."""
    is_positive = np.asarray(positive, bool)
    num_positive = int(is_positive.sum())
    num_negative = len(is_positive) - num_positive
    if not num_positive or not num_negative:
        return float("nan")
    ranks = _ranks(np.asarray(scores, float))
    above = ranks[is_positive].sum() - num_positive * (num_positive + 1) / 2
    return float(above / (num_positive * num_negative))


def auc_within(
    groups: Sequence[Hashable], positive: Sequence[bool], scores: Sequence[float]
) -> tuple[float, int]:
    """Returns the mean AUC in single groups and the number of groups with enough of both kinds."""
    members: dict[Hashable, list[tuple[bool, float]]] = defaultdict(list)
    for group, is_positive, score in zip(groups, positive, scores, strict=True):
        members[group].append((is_positive, score))
    found = []
    for pairs in members.values():
        labels, of_group = zip(*pairs, strict=True)
        if MIN_OF_EACH <= sum(labels) <= len(labels) - MIN_OF_EACH:
            found.append(auc(labels, of_group))
    return (float(np.mean(found)), len(found)) if found else (float("nan"), 0)


def calibration_error(happened: Sequence[bool], probabilities: Sequence[float]) -> float:
    """Computes the expected calibration error over bins of equal width; NaN without records."""
    if not happened:
        return float("nan")
    events, said = np.asarray(happened, float), np.asarray(probabilities, float)
    bins = np.minimum((said * CALIBRATION_BINS).astype(int), CALIBRATION_BINS - 1)
    gaps = np.bincount(bins, weights=events - said, minlength=CALIBRATION_BINS)
    return float(np.abs(gaps).sum() / len(events))


def flags(positive: Sequence[bool], flagged: Sequence[bool]) -> Flags:
    """Compares a yes/no decision with the truth."""
    count = list(zip(positive, flagged, strict=True)).count
    pairs = (True, True), (False, True), (True, False), (False, False)
    return Flags(*map(count, pairs))


def curve(
    small_ok: Sequence[float], large_ok: Sequence[float], scores: Sequence[float]
) -> Curve | None:
    """Computes the curve of sending the highest scores to the large model; None without a gap.

    Records of equal score share their outcomes, so that the order of the file does not matter.
    """
    small, large = np.asarray(small_ok, float), np.asarray(large_ok, float)
    if not len(small) or large.mean() <= small.mean():
        return None
    _, group = np.unique(-np.asarray(scores, float), return_inverse=True)
    sizes = np.bincount(group)
    gains = (np.bincount(group, weights=large - small) / sizes)[np.sort(group)]
    quality = np.concatenate([[0.0], np.cumsum(gains)]) / (large - small).sum()
    return Curve(
        num_records=len(small),
        small_accuracy=float(small.mean()),
        large_accuracy=float(large.mean()),
        apgr=float((quality[1:] + quality[:-1]).sum() / (2 * len(small))),
        cpt50=float(np.argmax(quality >= 0.5) / len(small)),
        cpt80=float(np.argmax(quality >= 0.8) / len(small)),
    )


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Computes Spearman's correlation, ties at their mean rank; NaN if either does not vary."""
    one, other = (_ranks(np.asarray(values, float)) for values in (first, second))
    one, other = one - one.mean(), other - other.mean()
    size = float(np.sqrt((one**2).sum() * (other**2).sum()))
    return float((one * other).sum() / size) if size else float("nan")


def _ranks(values: Floats) -> Floats:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Floats = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return ranks


def share(part: int, whole: int) -> float:
    """Returns a part's share of the whole; NaN of nothing."""
    return part / whole if whole else float("nan")
