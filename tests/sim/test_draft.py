"""Tests `draft` over the simulated engines, in their own time: its gain, and its cost at worst.

Ratios to the deep engine alone, which writes the same answer in the same run.
"""

from typing import Any

import pytest

from router.strategies.machine import WAITED_FOR_US
from tests.sim.timed import Answered, BreakingBackend, HangingBackend, timed_task

ASK = "Write a Python program of 300 lines that simulates a library."


def answered(
    strategy: str | None = "draft", *, metadata: dict[str, str] | None = None, **more: Any
) -> Answered:
    """Runs the task on an idle gateway; `more` is `timed_task`'s."""
    asked = dict(metadata or {})
    asked |= {"route": "deep"} if strategy is None else {"strategy": strategy}
    return timed_task(ASK, asked, **more)


@pytest.fixture(scope="module")
def deep() -> Answered:
    return answered(None)


def test_the_ask_is_for_300_lines(deep: Answered) -> None:
    assert 280 <= deep.text.count("\n") <= 320


def test_it_takes_a_third_of_the_time_where_four_of_five_tokens_are_right(deep: Answered) -> None:
    drafted = answered(prediction_acceptance=0.8)
    assert drafted.text == deep.text, "one message, in the deep engine's own words"
    assert drafted.end_us <= deep.end_us / 3
    details = drafted.used("gpu")["output_tokens_details"]
    num_tokens = deep.used("gpu")["output_tokens"]
    assert details["accepted_prediction_tokens"] == pytest.approx(0.8 * num_tokens, rel=0.05)
    rejected = details["rejected_prediction_tokens"]
    assert 0 < rejected < num_tokens
    assert drafted.used("gpu")["output_tokens"] == num_tokens + rejected, "charged, as servers do"
    parts = [(row["part"], row["state"]) for row in drafted.response["routing"]["generations"]]
    assert parts == [("draft", "finished"), ("answer", "finished")]


def test_it_is_hardly_slower_where_no_token_is_right(deep: Answered) -> None:
    drafted = answered(prediction_acceptance=0.0)
    assert drafted.text == deep.text
    assert drafted.end_us <= 1.1 * deep.end_us


def test_by_their_own_words_the_engines_say_nearly_the_same(deep: Answered) -> None:
    drafted = answered()
    assert drafted.text == deep.text
    assert drafted.end_us < deep.end_us / 5


def test_a_draft_that_is_late_predicts_as_far_as_it_came(deep: Answered) -> None:
    drafted = answered(metadata={"draft_ms": "500"})
    assert drafted.text == deep.text
    assert 500_000 <= drafted.first_us <= 500_000 + 2 * deep.first_us + 20_000
    assert drafted.end_us < deep.end_us
    states = [row["state"] for row in drafted.response["routing"]["generations"]]
    assert states == ["cancelled", "finished"]


def test_a_silent_fast_engine_holds_nothing_up(deep: Answered) -> None:
    drafted = answered(fast=HangingBackend)
    assert drafted.text == deep.text
    assert drafted.first_us <= WAITED_FOR_US + deep.first_us + 20_000
    assert "backend wafer: silent for 1 s" in drafted.response["routing"]["errors"][0]


def test_a_draft_that_breaks_off_predicts_as_far_as_it_came(deep: Answered) -> None:
    drafted = answered(fast=BreakingBackend)
    assert drafted.text == deep.text
    assert drafted.end_us < deep.end_us
    rows = drafted.response["routing"]["generations"]
    found = [(row["backend"], row["part"], row["state"]) for row in rows]
    assert found == [("wafer", "draft", "failed"), ("gpu", "answer", "finished")], "nobody goes on"
    assert drafted.used("gpu")["output_tokens_details"]["accepted_prediction_tokens"] > 0


def test_without_predictions_it_is_the_deep_engine_alone(deep: Answered) -> None:
    plain = answered(takes_predictions=False)
    assert (plain.text, plain.end_us) == (deep.text, deep.end_us)
    assert plain.response["routing"]["strategy"] is None
    assert "no deep engine that takes predictions is up" in plain.response["routing"]["why"]
