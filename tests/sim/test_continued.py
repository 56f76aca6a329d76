"""Tests answers that break off or stall, in their engines' own time: how long nothing is heard."""

import random

import pytest

from backends.drive.driver import TICK_US
from router.decide.failover import MIN_STALL_US
from tests.sim.timed_runs import Timed, timed_run

SEED = 1122
GOES_ON_US = 2_000_000  # behind a break, or behind a stream's limit
RUNS: list[tuple[str | None, dict[str, str]]] = [
    (None, {"route": "fast"}),
    (None, {"route": "deep"}),
    ("hedge", {}),
    ("hedge", {"hedge_after_ms": "0"}),
    ("breadth", {"n": "3"}),
    ("delegate", {}),
    ("advise", {}),
    ("verify", {}),
    ("draft", {}),
]


def texts(timed: Timed) -> list[str]:
    return [item["content"][0]["text"] for item in timed.response["output"]]


@pytest.mark.parametrize("breaks", [True, False], ids=["breaks", "stalls"])
@pytest.mark.parametrize("name", ["wafer", "gpu"])
@pytest.mark.parametrize(("strategy", "metadata"), RUNS, ids=str)
def test_the_answer_goes_on_in_time_and_ends_whole(
    strategy: str | None, metadata: dict[str, str], name: str, breaks: bool
) -> None:
    whole = timed_run(strategy, **metadata)
    chance = random.Random(f"{SEED}-{strategy}-{metadata}-{name}-{breaks}")
    for num_deltas in (1, *(chance.randrange(2, 60) for _ in range(2))):
        timed = timed_run(strategy, hangs={name: num_deltas}, breaks=breaks, **metadata)
        limit_us = GOES_ON_US if breaks else MIN_STALL_US + GOES_ON_US
        assert timed.silent_us <= max(limit_us, whole.silent_us + TICK_US), num_deltas
        assert [len(text.split()) for text in texts(timed)] == [
            len(text.split()) for text in texts(whole)
        ], num_deltas
        if strategy is None:
            assert texts(timed) == texts(whole), "both engines have the same script"
