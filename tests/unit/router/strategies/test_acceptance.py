"""Acceptance: what evidence, expectation and price make of an answer."""

import pytest

from router.strategies.acceptance import Acceptance, CheckOdds


def test_without_evidence_the_doubt_is_the_expected_gain() -> None:
    assert Acceptance(p_gain=0.3).doubt(0.0) == pytest.approx(0.3)


def test_evidence_for_the_answer_lowers_the_doubt() -> None:
    doubts = [Acceptance(p_gain=0.3).doubt(evidence) for evidence in (-2.0, 0.0, 2.0)]
    assert doubts == sorted(doubts, reverse=True)
    assert doubts[0] > 0.7
    assert doubts[2] < 0.1


@pytest.mark.parametrize(("deep_price", "accepted"), [(0.01, False), (0.2, False), (0.4, True)])
def test_the_dearer_a_deep_answer_the_more_is_accepted(deep_price: float, accepted: bool) -> None:
    assert Acceptance(p_gain=0.3, deep_price=deep_price).accepts(0.0) is accepted


def test_it_is_settled_once_nothing_that_may_come_changes_it() -> None:
    acceptance = Acceptance(p_gain=0.3, deep_price=0.3)
    assert acceptance.settles([0.5, 2.0]) == "accepted"
    assert acceptance.settles([-0.5, -2.0]) == "doubtful"
    assert acceptance.settles([-0.5, 0.5]) == "unclear"


def test_a_check_that_says_nothing_may_be_left_out_by_its_odds() -> None:
    deaf = CheckOdds(per_evidence=0.0)
    assert deaf.doubt(0.2, 5.0) == pytest.approx(0.2)
