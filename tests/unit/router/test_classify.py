"""The classifier: labels, signals in words, bounded reading, determinism."""

import subprocess
import sys
from pathlib import Path

import pytest

from router import signals
from router.classify import Band, classify, features
from router.task import Hints, TaskClass
from tests.unit.router.tasks import TOOL, task

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("ask", "label"),
    [
        ("fix the typo in the README heading", "interactive"),
        ("How do I parse an ISO date in JavaScript?", "interactive"),
        ("Rename class HttpClient to HTTPClient across the file", "interactive"),
        ("thanks!", "interactive"),
        ("", "interactive"),
        ("Prove that the scheduler is starvation free or give a counterexample trace", "deep"),
        (
            "Design a multi-tenant architecture for our billing platform: services, data model, "
            "isolation strategy, migration plan and rollout",
            "deep",
        ),
        ("Refactor the storage engine across the entire codebase", "deep"),
        ("Implement a small cache, the tests and the docs", "uncertain"),
    ],
)
def test_label(ask: str, label: str) -> None:
    assert classify(features(task(ask))).label == label


@pytest.mark.parametrize(
    ("ask", "sensitive"),
    [
        ("Our JWT verification accepts alg=none, please fix", True),
        ("Review our login flow for vulnerabilities", True),
        ("Patch the path traversal in the file download handler", True),
        ("Explain the term exploit in reinforcement learning", False),
        ("Write an attack animation for the player sprite in Pygame", False),
        ("Count vowels in a string and inject the count into the template", False),
        ("How are tokens split by the tokenizer?", False),
    ],
)
def test_security(ask: str, sensitive: bool) -> None:
    assert classify(features(task(ask))).security_sensitive is sensitive


def test_hints_shift_and_are_named() -> None:
    def of(hints: Hints) -> TaskClass:
        return classify(features(task("Add caching to the client", hints=hints)))

    plain = of(Hints())
    high = of(Hints(reasoning_effort="high"))
    hurried = of(Hints(service_tier="priority"))
    assert hurried.p_deep < plain.p_deep < high.p_deep
    assert any("reasoning effort high (+1.2)" in signal for signal in high.signals)
    assert any("service tier priority (-0.7)" in signal for signal in hurried.signals)


def test_unknown_hints_count_for_nothing() -> None:
    odd = Hints(reasoning_effort="cosmic", service_tier="default")
    assert classify(features(task("Hi", hints=odd))) == classify(features(task("Hi")))


def test_a_trivial_ask_in_front_of_a_long_context_stays_trivial() -> None:
    assert classify(features(task("fix the typo", prompt_tokens=100_000))).label == "interactive"


def test_signals_come_strongest_first_and_name_the_words() -> None:
    task_class = classify(features(task("Quickly prove the theorem, then derive the bound")))
    assert task_class.signals[0].startswith('words "prove", "theorem", "derive"')
    assert task_class.signals[1].startswith('words "quickly" (-1.2)')


def test_the_band_decides_the_label() -> None:
    found = features(task("Implement a small cache, the tests and the docs"))
    assert classify(found, Band(low=0.0, high=0.0)).label == "deep"
    assert classify(found, Band(low=1.0, high=1.0)).label == "interactive"
    assert classify(found, Band(security=0.0)).security_sensitive


def test_only_head_and_tail_are_read() -> None:
    filler = "x " * 400_000
    middle = classify(features(task(f"fix the typo {filler} prove the theorem {filler} thanks")))
    head = classify(features(task(f"prove the theorem {filler}")))
    tail = classify(features(task(f"{filler} prove the theorem")))
    assert not any("prove" in signal for signal in middle.signals)
    assert any("typo" in signal and "thanks" in signal for signal in middle.signals)
    assert any("prove" in signal for signal in head.signals)
    assert any("prove" in signal for signal in tail.signals)


def test_features_count_what_they_say() -> None:
    found = features(
        task(
            "Why? Fix a, b; c and d.\n```py\nx\n```",
            prompt_tokens=900,
            tools=(TOOL, TOOL),
            num_turns=3,
            has_images=True,
        )
    )
    assert (found.num_questions, found.num_parts, found.num_code_fences) == (1, 3, 2)
    assert (found.num_context_tokens, found.num_tools, found.num_turns) == (900, 2, 3)
    assert found.has_images
    assert found.fast_terms == ("fix",)


def test_expected_output_grows_with_depth_and_shrinks_when_asked_to_be_brief() -> None:
    small = classify(features(task("fix the typo"))).expected_output_tokens
    deep = classify(features(task("Refactor the entire codebase"))).expected_output_tokens
    brief = classify(features(task("Refactor the entire codebase, briefly"))).expected_output_tokens
    assert small < brief < deep <= 2 * signals.DEEP_OUTPUT_TOKENS


def test_the_same_in_every_process() -> None:
    """Sets of strings iterate differently from process to process; the result must not."""
    program = (
        "from tests.unit.router.tasks import task\n"
        "from router.classify import classify, features\n"
        "ask = 'refactor, migrate, redesign and prove the protocol; fix the docs, the readme'\n"
        "print(features(task(ask)), classify(features(task(ask))))\n"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1


@pytest.mark.parametrize("table", [signals.DEEP_TERMS, signals.FAST_TERMS, signals.SECURITY_TERMS])
def test_terms_can_be_found(table: dict[str, float]) -> None:
    """A term the reader could never produce would be a silent typo."""
    for term, weight in table.items():
        found = features(task(term))
        everything = found.deep_terms + found.fast_terms + found.security_terms
        assert term in everything, term
        assert weight > 0, term
