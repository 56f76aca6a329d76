"""Tests each strategy from request to terminal event on simulated engines, in their own time."""

from typing import Any

import pytest

from backends.drive.driver import TICK_US
from router.strategies.hedge import LEAD_TOKENS
from router.strategies.machine import WAITED_FOR_US
from tests.sim.timed_runs import Timed, timed_run

SLACK_US = 2 * TICK_US  # when a token is fetched, and when an end is


@pytest.fixture(scope="module")
def fast() -> Timed:
    return timed_run(None, route="fast")


@pytest.fixture(scope="module")
def deep() -> Timed:
    return timed_run(None, route="deep")


def about(us: float) -> Any:
    return pytest.approx(us, abs=SLACK_US)


def leading_us(timed: Timed) -> float:
    """Returns what an engine's first words take to lead."""
    usage = timed.response["usage"]["output_tokens"]
    return LEAD_TOKENS * (timed.end_us - timed.first_us) / usage


def test_the_engines_differ_as_they_should(fast: Timed, deep: Timed) -> None:
    assert fast.first_us < deep.first_us
    assert fast.end_us < deep.end_us / 5


def test_hedge_joins_when_the_time_is_up(fast: Timed, deep: Timed) -> None:
    after_us = deep.first_us // 2 // 1_000 * 1_000
    timed = timed_run("hedge", hedge_after_ms=str(after_us // 1_000))
    assert timed.first_us == about(after_us + fast.first_us + leading_us(fast))
    assert timed.end_us == about(after_us + fast.end_us)
    assert timed.states("answer") == ["cancelled", "finished"]
    usage = timed.response["routing"]["usage"]
    assert usage["gpu"]["output_tokens"] < 8, "it gives way once the other leads"


def test_hedge_leaves_a_deep_engine_alone_that_begins_in_time(deep: Timed) -> None:
    timed = timed_run("hedge", hedge_after_ms=str(deep.first_us // 1_000 + 100))
    assert (timed.first_us, timed.end_us) == (about(deep.first_us), about(deep.end_us))
    assert timed.states("answer") == ["finished"]
    assert timed.response["routing"]["usage"]["wafer"]["total_tokens"] == 0


def test_breadth_takes_little_longer_than_one_answer(fast: Timed) -> None:
    timed = timed_run("breadth", n="8")
    assert timed.phases == [*["commentary"] * 8, "final_answer"]
    assert timed.states("vary") == ["finished"] * 8
    varied_us = timed.items[7][2]
    assert varied_us < 4 * fast.end_us, "one batch, not one after the other"
    assert timed.items[8][1] > varied_us - SLACK_US, "the judge reads them all first"
    texts = {item["content"][0]["text"] for item in timed.response["output"][:8]}
    assert len(texts) == 8, "each is its own"
    plain = timed_run("breadth", n="3", judge="false")
    assert plain.phases == ["final_answer"] * 3
    assert plain.response["routing"]["usage"]["gpu"]["total_tokens"] == 0


HANDED = "Say what a cache is. Then prove that caches stampede, in 200 words."


def test_delegate_works_beside_the_sub_task(fast: Timed, deep: Timed) -> None:
    timed = timed_run("delegate", HANDED)
    assert timed.phases == ["commentary", "commentary", "commentary", "final_answer"]
    opening, beside, subtask, closing = timed.items
    assert timed.first_us < 20 * fast.first_us + SLACK_US, "held until it proves to be a prelude"
    assert opening[2] < beside[1] < opening[2] + deep.first_us, "the fast engine goes on at once"
    assert beside[2] < subtask[2]
    assert closing[1] > subtask[2] - SLACK_US
    alone_us = timed.end_us - (closing[2] - closing[1]) - opening[2]
    assert alone_us < deep.end_us * 2, "what the fast engine said meanwhile cost no time"
    assert timed.states("subtask") == ["finished"]


def test_advise_asks_for_a_plan_and_then_answers() -> None:
    timed = timed_run("advise", HANDED)
    assert timed.phases == ["commentary", "final_answer"]
    assert timed.states("advice") == ["finished"]
    assert timed.response["routing"]["answered_by"] == "wafer"
    assert timed.items[1][1] > timed.items[0][2] - SLACK_US, "the plan comes first"
    usage, bill = timed.response["usage"], timed.response["routing"]["usage"]
    assert usage["output_tokens"] <= bill["wafer"]["output_tokens"]
    assert bill["gpu"]["output_tokens"] > 0


# -- an engine that hangs: how long it holds the answer, and what is said of it -----------------


def silent(timed: Timed) -> list[str]:
    """Returns the backends that were given up, each once."""
    errors = timed.response["routing"].get("errors", [])
    assert all("silent for " in error for error in errors)
    return [error.split(":")[0].removeprefix("backend ") for error in errors]


def test_hedge_does_not_wait_for_a_deep_engine_that_hangs(fast: Timed) -> None:
    timed = timed_run("hedge", hangs={"gpu": 0}, hedge_after_ms="250")
    assert timed.first_us == about(250_000 + fast.first_us + leading_us(fast))
    assert timed.end_us == about(250_000 + fast.end_us)


def test_breadth_goes_on_without_variations_that_hang(deep: Timed) -> None:
    timed = timed_run("breadth", hangs={"wafer": 0}, n="3")
    assert timed.first_us == about(WAITED_FOR_US + deep.first_us)
    assert silent(timed) == ["wafer"]
    assert timed.states("vary") == ["failed"] * 3
    assert timed.response["routing"]["variations"] == {"asked": 3, "whole": 0}
