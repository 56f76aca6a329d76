"""Tests acceptance: what evidence, expectation and price make of an answer."""

import pytest

from router.strategies.acceptance import Acceptance, CheckOdds, Odds


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
    deaf = CheckOdds(Odds(0.0, 1.0, 0.0))
    assert deaf.doubt(0.2, 5.0) == pytest.approx(0.2)


def test_what_deep_may_lose_counts_against_what_it_may_gain() -> None:
    """An answer that is surely right goes out even where deep answers cost nothing."""
    odds = CheckOdds(loss=Odds(-2.0, 0.0, 1.0))
    acceptance = Acceptance(p_gain=0.2, deep_price=0.0, odds=odds)
    assert acceptance.doubt(3.0) < 0 < acceptance.doubt(-3.0)
    assert acceptance.accepts(3.0)
    assert not acceptance.accepts(-3.0)


@pytest.mark.parametrize(
    ("fast_price", "num_answers", "is_worth_it"),
    [(0.0, 1, True), (0.1, 1, True), (0.1, 3, False), (0.2, 1, False)],
)
def test_a_look_is_worth_what_it_is_expected_to_save(
    fast_price: float, num_answers: int, is_worth_it: bool
) -> None:
    acceptance = Acceptance(p_gain=0.3, deep_price=0.3, fast_price=fast_price)
    assert acceptance.is_worth_a_look([-3.0, 3.0], num_answers) is is_worth_it


def test_where_no_evidence_could_save_anything_there_is_no_look() -> None:
    assert not Acceptance(p_gain=0.9, deep_price=0.1).is_worth_a_look([-1.0, 1.0])
