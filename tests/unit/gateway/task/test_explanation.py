"""Tests an explanation but for its sentences, which the policy's end-to-end tests read."""

import msgspec
import pytest

from gateway.task.explanation import explain_task
from router.classify.task import Hints, Route
from router.policy.policy import parse_policy
from tests.unit.router.tasks import backend, task

POLICY = parse_policy(b"[strategies]\nhedge_after_ms = 100\nnum_variations = 3\n", "p")
STATS = [backend("wafer", "fast"), backend("gpu", "deep")]
OPTIONS = {
    "draft_ms": 4_000,
    "max_advices": 2,
    "advice_tokens": 2_048,
    "hedge_after_ms": 100,
    "num_answers": 3,
    "asks_verdict": True,
    "accept": "",
    "num_variations": 3,
    "judged": True,
    "max_delegations": 3,
}


@pytest.mark.parametrize(
    ("hints", "own"),
    [
        (Hints(), {}),
        (
            Hints(route=Route.PARALLEL, strategy="hedge", strategy_options={"hedge_after_ms": 70}),
            {"hedge_after_ms": 70},
        ),
        (
            Hints(route=Route.PARALLEL, strategy="verify", strategy_options={"num_answers": 2}),
            {"num_answers": 2},
        ),
    ],
)
def test_each_route_shows_the_options_of_all_strategies(hints: Hints, own: dict[str, int]) -> None:
    explanation = explain_task(POLICY, task("Reverse a string.", hints=hints), STATS)
    assert explanation.routes
    for route in explanation.routes:
        assert msgspec.to_builtins(route)["options"] == OPTIONS | own
