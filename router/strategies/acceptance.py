"""Decides whether a fast answer that was checked goes out, or the deep engine answers: pure.

A check gives evidence of how good the answer is, in log-odds. With the gain that was expected of
the deep engine before (the probability that it is right where the fast one is not), it says how
likely the deep engine would do better now: the doubt. The answer goes out if the doubt is below
what a deep answer costs in wait and money, in right answers; the fast one is paid for either way.

`lanewise eval` replays recorded outcomes by these functions.
"""

from collections.abc import Iterable
from typing import Literal

import msgspec

from router.classify.log_odds import log_odds, probability

Verdict = Literal["accepted", "doubtful", "unclear"]

LEAST_P = 1e-3  # no opinion and no check is surer
USUAL_DEEP_PRICE = 0.25  # in right answers, where a policy's band implies no price


class CheckOdds(msgspec.Struct, frozen=True):
    """Says how gain and evidence move the doubt: a logistic model in three numbers.

    The defaults take both at their word. `router.learn.checks` fits them to a tenant's pairs.
    """

    bias: float = 0.0
    per_gain: float = 1.0  # per log-odds of the expected gain
    per_evidence: float = -1.0  # per log-odds of evidence that the answer is right

    def doubt(self, p_gain: float, evidence: float) -> float:
        """Returns the probability that the deep engine would do better."""
        prior = log_odds(p_gain, LEAST_P)
        return probability(self.bias + self.per_gain * prior + self.per_evidence * evidence)


TAKEN_AT_THEIR_WORD = CheckOdds()


class Acceptance(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what one task's answers are accepted by."""

    p_gain: float = 0.2  # expected of the deep engine, before any check
    deep_price: float = USUAL_DEEP_PRICE  # of a deep answer's cost and wait, in right answers
    odds: CheckOdds = TAKEN_AT_THEIR_WORD

    def doubt(self, evidence: float) -> float:
        """Returns how likely the deep engine would do better, after the checks."""
        return self.odds.doubt(self.p_gain, evidence)

    def accepts(self, evidence: float) -> bool:
        """Says whether the fast answer is worth more than a deep one costs."""
        return self.doubt(evidence) < self.deep_price

    def settles(self, evidence: Iterable[float]) -> Verdict:
        """Says what all the evidence that may still come leads to; "unclear" if it differs."""
        found = {self.accepts(each) for each in evidence}
        if len(found) > 1:
            return "unclear"
        return "accepted" if found == {True} else "doubtful"
