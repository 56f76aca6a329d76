"""Decides whether a fast answer that was checked goes out, or the deep engine answers: pure.

A check gives evidence of how good the answer is, in log-odds. With the gain that was expected of
the deep engine before (the probability that it is right where the fast one is not), it says what
the deep engine would be expected to gain now: the doubt. The answer goes out if the doubt is below
what a deep answer costs in wait and money, in right answers; the fast one is paid for by then.
It is not asked for at all where its price is more than what looking at it is expected to save.

`lanewise eval` replays recorded outcomes by these functions.
"""

from collections.abc import Collection, Iterable
from typing import Literal

import msgspec

from router.classify.log_odds import log_odds, probability

Verdict = Literal["accepted", "doubtful", "unclear"]

LEAST_P = 1e-3  # no opinion and no check is surer
USUAL_DEEP_PRICE = 0.25  # in right answers, where a policy's band implies no price


class Odds(msgspec.Struct, frozen=True):
    """Says how expected gain and evidence move a probability: a logistic model."""

    bias: float
    per_gain: float  # per log-odds of the expected gain
    per_evidence: float  # per log-odds of evidence that the answer is right

    def of(self, p_gain: float, evidence: float) -> float:
        """Returns the probability."""
        prior = log_odds(p_gain, LEAST_P)
        return probability(self.bias + self.per_gain * prior + self.per_evidence * evidence)


class CheckOdds(msgspec.Struct, frozen=True):
    """Holds how likely the deep engine is right where the fast one is not, and the reverse.

    The defaults take expectation and evidence at their word, and know of no losses.
    `router.learn.check_odds` fits them to a tenant's pairs.
    """

    gain: Odds = Odds(0.0, 1.0, -1.0)
    loss: Odds | None = None

    def doubt(self, p_gain: float, evidence: float) -> float:
        """Returns what the deep engine is expected to gain over the answer, in right answers."""
        lost = 0.0 if self.loss is None else self.loss.of(p_gain, evidence)
        return self.gain.of(p_gain, evidence) - lost


TAKEN_AT_THEIR_WORD = CheckOdds()


def expected_saving(doubts: Collection[float], deep_price: float) -> float:
    """Returns what looking at a fast answer saves, where each of these doubts is as likely.

    Where it is accepted it saves a deep answer's price, less what that was expected to gain.
    """
    return sum([deep_price - doubt for doubt in doubts if doubt < deep_price]) / len(doubts)


class Acceptance(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what one task's answers are accepted by. Prices are in right answers."""

    p_gain: float = 0.2  # expected of the deep engine, before any check
    deep_price: float = USUAL_DEEP_PRICE  # of a deep answer's cost and wait
    fast_price: float = 0.0  # of one fast answer
    odds: CheckOdds = TAKEN_AT_THEIR_WORD

    def doubt(self, evidence: float) -> float:
        """Returns what the deep engine is expected to gain, after the checks."""
        return self.odds.doubt(self.p_gain, evidence)

    def accepts(self, evidence: float) -> bool:
        """Says whether the fast answer is worth more than a deep one costs."""
        return self.doubt(evidence) < self.deep_price

    def is_worth_a_look(self, evidence: Collection[float], num_answers: int = 1) -> bool:
        """Says whether to ask for fast answers, where each of this evidence is as likely."""
        doubts = [self.doubt(each) for each in evidence]
        return expected_saving(doubts, self.deep_price) > num_answers * self.fast_price

    def settles(self, evidence: Iterable[float]) -> Verdict:
        """Says what all the evidence that may still come leads to; "unclear" if it differs."""
        found = {self.accepts(each) for each in evidence}
        if len(found) > 1:
            return "unclear"
        return "accepted" if found == {True} else "doubtful"
