"""Tests the rules of a published router, by examples worked out from its source."""

import pytest

from router.record.rule_router import rule_score


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("Hello there, how is it going with everything today, I wonder, my friend?", -0.05),
        ("Hi", -0.15),
        ("Write a python function that takes the list and gives back its largest item", 0.30),
        ("Our capital letters and terrorism laws are classical matters for historians here", 0.0),
        ("Think carefully about this, and then weigh the options of which there are four", 1.25),
        ("latency and throughput are what I care about in the new system of ours, mostly", 0.125),
        ("a " * 1_000, 0.10),
    ],
)
def test_a_prompts_score(prompt: str, expected: float) -> None:
    assert rule_score(prompt) == pytest.approx(expected)
