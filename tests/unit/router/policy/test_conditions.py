"""Tests conditions: each test of the tree, the branches, the reasons given, and what they cost."""

from typing import Any

import msgspec
import pytest

from backends.contract import BackendStats
from router.agent_runs.run_state import RunState
from router.classify.agent import Agent
from router.classify.task import Hints
from router.policy.calendar_window import Window
from router.policy.conditions import Situation, When
from tests.unit.router.tasks import TOOL, backend, of_class, task

BUSY = (backend("wafer", "fast", running=10), backend("gpu", "deep", running=2))
REVIEW = Hints(agent=Agent(role="subagent", subagent="review", request_kind="turn"))
STUCK = RunState(stuck=True, strain=1.5, num_failed=2, num_repeated=1, dissatisfied=True)
STEADY = RunState(num_edits=2, tests_pass=True, calm_steps=4, answers_tools=True)
NOON_S = 1_768_478_400.0  # 2026-01-15, a Thursday, 12:00 UTC

# condition, the task's fields, whether it holds; every field of `When` both ways
HOLDS: list[tuple[When, dict[str, Any], bool]] = [
    (When(), {}, True),
    (When(tenants=("acme",)), {}, True),
    (When(tenants=("other",)), {}, False),
    (When(tiers=("pro",)), {}, True),
    (When(tiers=("free",)), {}, False),
    (When(models=("auto",)), {}, True),
    (When(models=("careful",)), {}, False),
    (When(metadata={"team": ("a", "b")}), {"hints": Hints(metadata={"team": "b"})}, True),
    (When(metadata={"team": ("a", "b")}), {"hints": Hints(metadata={"team": "c"})}, False),
    (When(metadata={"team": ("a",)}), {}, False),
    (When(labels=("deep",)), {}, False),
    (When(labels=("interactive",)), {}, True),
    (When(p_deep_from=0.1), {}, True),
    (When(p_deep_from=0.2), {}, False),
    (When(p_deep_below=0.2), {}, True),
    (When(p_deep_below=0.1), {}, False),
    (When(p_gain_from=0.0), {}, True),
    (When(p_gain_from=0.5), {}, False),
    (When(p_gain_below=0.5), {}, True),
    (When(p_gain_below=0.0), {}, False),
    (When(p_security_from=0.1), {}, True),
    (When(p_security_from=0.2), {}, False),
    (When(security_sensitive=False), {}, True),
    (When(security_sensitive=True), {}, False),
    (When(output_tokens_from=500), {}, True),
    (When(output_tokens_from=501), {}, False),
    (When(output_tokens_below=501), {}, True),
    (When(output_tokens_below=500), {}, False),
    (When(reasoning_effort=("high",)), {"hints": Hints(reasoning_effort="high")}, True),
    (When(reasoning_effort=("high",)), {}, False),
    (When(service_tier=("flex",)), {"hints": Hints(service_tier="flex")}, True),
    (When(service_tier=("flex",)), {}, False),
    (When(agent_role=("auxiliary",)), {"hints": REVIEW}, False),
    (When(agent_role=("main", "subagent")), {"hints": REVIEW}, True),
    (When(agent_role=("main",)), {}, False),
    (When(subagent=("review",)), {"hints": REVIEW}, True),
    (When(subagent=("compact",)), {"hints": REVIEW}, False),
    (When(request_kind=("turn",)), {"hints": REVIEW}, True),
    (When(request_kind=("prewarm",)), {"hints": REVIEW}, False),
    (When(kinds=("refactor", "fix")), {"ask": "Please refactor the parser."}, True),
    (When(kinds=("refactor",)), {"ask": "Explain this refactoring."}, False),
    (When(words=("kubernetes",)), {"ask": "Our Kubernetes pods restart."}, True),
    (When(words=("kubernetes",)), {"ask": "Our pods restart."}, False),
    (When(words=("pull request",)), {"ask": "Read the pull request."}, True),
    (When(words=("pull request",)), {"ask": "Request it and pull."}, False),
    (When(words=("terra*",)), {"ask": "Terraform is slow."}, True),
    (When(words=("terra*",)), {"ask": "The extraterrestrial."}, False),
    (When(ask_tokens_from=1), {}, True),
    (When(ask_tokens_from=2), {}, False),
    (When(ask_tokens_below=2), {}, True),
    (When(ask_tokens_below=1), {}, False),
    (When(context_tokens_from=100), {}, True),
    (When(context_tokens_from=101), {}, False),
    (When(context_tokens_below=101), {}, True),
    (When(context_tokens_below=100), {}, False),
    (When(turns_from=2), {"num_turns": 1}, False),
    (When(turns_from=2), {"num_turns": 2}, True),
    (When(turns_below=2), {"num_turns": 1}, True),
    (When(turns_below=2), {"num_turns": 2}, False),
    (When(deadline_ms_below=10), {}, False),
    (When(deadline_ms_below=10), {"hints": Hints(deadline_us=9_999)}, True),
    (When(deadline_ms_below=10), {"hints": Hints(deadline_us=10_000)}, False),
    (When(has_tools=True), {"tools": (TOOL,)}, True),
    (When(has_tools=True), {}, False),
    (When(has_images=True), {"has_images": True}, True),
    (When(has_images=True), {}, False),
    (When(run_stuck=True), {"run": STUCK}, True),
    (When(run_stuck=True), {}, False),
    (When(run_steady=True), {"run": STEADY}, True),
    (When(run_steady=True), {"run": STUCK}, False),
    (When(strain_from=1.5), {"run": STUCK}, True),
    (When(strain_from=1.6), {"run": STUCK}, False),
    (When(strain_below=1.6), {"run": STUCK}, True),
    (When(strain_below=1.5), {"run": STUCK}, False),
    (When(failed_results_from=2), {"run": STUCK}, True),
    (When(failed_results_from=2), {}, False),
    (When(failed_results_below=1), {}, True),
    (When(failed_results_below=1), {"run": STUCK}, False),
    (When(repeated_calls_from=1), {"run": STUCK}, True),
    (When(repeated_calls_from=1), {}, False),
    (When(repeated_calls_below=1), {}, True),
    (When(repeated_calls_below=1), {"run": STUCK}, False),
    (When(edits_from=2), {"run": STEADY}, True),
    (When(edits_from=3), {"run": STEADY}, False),
    (When(edits_below=3), {"run": STEADY}, True),
    (When(edits_below=2), {"run": STEADY}, False),
    (When(tests_pass=True), {"run": STEADY}, True),
    (When(tests_pass=True), {}, False),
    (When(tests_pass=False), {}, False),
    (When(dissatisfied=True), {"run": STUCK}, True),
    (When(dissatisfied=True), {}, False),
    (When(answers_tools=True), {"run": STEADY}, True),
    (When(answers_tools=True), {}, False),
    (When(fast_load_from=1.0), {}, True),
    (When(fast_load_from=1.1), {}, False),
    (When(fast_load_below=1.1), {}, True),
    (When(fast_load_below=1.0), {}, False),
    (When(deep_load_from=0.2), {}, True),
    (When(deep_load_from=0.3), {}, False),
    (When(deep_load_below=0.3), {}, True),
    (When(deep_load_below=0.2), {}, False),
    (When(time=Window(days=("thu",))), {"arrived_unix_s": NOON_S}, True),
    (When(time=Window(days=("fri",))), {"arrived_unix_s": NOON_S}, False),
    (When(tenants=("acme",), has_images=True), {}, False),
    (When(all=(When(tenants=("acme",)), When(has_images=False))), {}, True),
    (When(all=(When(tenants=("acme",)), When(has_images=True))), {}, False),
    (When(any=(When(tenants=("other",)), When(has_images=False))), {}, True),
    (When(any=(When(tenants=("other",)), When(has_images=True))), {}, False),
    (When(not_=When(tenants=("other",))), {}, True),
    (When(not_=When(tenants=("acme",))), {}, False),
    (When(not_=When(any=(When(not_=When()),))), {}, True),
]


def situation(stats: tuple[BackendStats, ...] = BUSY, **fields: Any) -> Situation:
    return Situation(task(**fields), of_class(), stats)


@pytest.mark.parametrize(("when", "fields", "expected"), HOLDS)
def test_conditions(when: When, fields: dict[str, Any], expected: bool) -> None:
    here = situation(**fields)
    assert when.holds(here) is expected
    assert bool(when.why_not(here)) is not expected, "a reason exactly where it does not hold"


def test_every_condition_is_tested_both_ways() -> None:
    def given(outcome: bool) -> set[str]:
        return {
            field
            for when, _, expected in HOLDS
            for field in When.__struct_fields__
            if expected is outcome and getattr(when, field) is not None
        }

    assert given(True) == given(False) == set(When.__struct_fields__)


def test_without_a_healthy_engine_no_bound_on_its_load_holds() -> None:
    nobody = situation((backend("wafer", "fast", healthy=False),))
    assert not When(fast_load_below=9.0).holds(nobody)
    assert not When(fast_load_from=0.0).holds(nobody)


REASONS: list[tuple[When, str]] = [
    (When(tenants=("beta", "gamma")), "tenants = beta, gamma (here acme)"),
    (When(p_deep_from=0.5), "p_deep >= 0.5 (here 0.10)"),
    (When(deadline_ms_below=500), "deadline_ms < 500 (here not given)"),
    (When(has_tools=True), "has_tools = true (here false)"),
    (When(words=("k8s",)), "words = k8s (none of them is in the ask)"),
    (
        When(any=(When(tenants=("beta",)), When(has_images=True))),
        "any (none holds: tenants = beta (here acme); has_images = true (here false))",
    ),
]


@pytest.mark.parametrize(("when", "words"), REASONS)
def test_reasons_in_words(when: When, words: str) -> None:
    assert when.why_not(situation()) == [words]


def test_the_size_of_a_tree() -> None:
    leaf = When(tenants=("a",), has_tools=True)
    tree = When(any=(leaf, When(all=(leaf,))), not_=leaf)
    assert leaf.size() == (1, 3)
    assert tree.size() == (3, 1 + 2 + 3 + (1 + 1 + 3) + 3)


def test_what_is_compiled_is_no_part_of_the_document() -> None:
    when = When(tenants=("acme",))
    assert when.holds(situation())
    assert when == When(tenants=("acme",))
    assert set(msgspec.to_builtins(when)) == set(msgspec.to_builtins(When()))
