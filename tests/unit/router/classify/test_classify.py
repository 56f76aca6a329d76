"""Tests the classifier: labels, signals in words, bounded reading, determinism."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from router.classify import signals
from router.classify.classify import Band, classify, features, features_of_text
from router.classify.task import Hints, TaskClass
from tests.unit.router.tasks import task

ROOT = Path(__file__).parents[4]
SIGNAL = re.compile(r"(.+) ([+-][\d.]+) \((\d+) %\)")


@pytest.mark.parametrize(
    ("prompt", "label"),
    [
        ("fix the typo in the README heading", "interactive"),
        ("How do I parse an ISO date in JavaScript?", "interactive"),
        ("Why does my loop never end?", "interactive"),
        ("thanks!", "interactive"),
        ("", "interactive"),
        ("Prove that the scheduler is starvation free or give a counterexample trace", "deep"),
        (
            "Design a multi-tenant architecture for our billing platform: services, data model, "
            "isolation strategy, migration plan and rollout",
            "deep",
        ),
        ("Refactor the storage engine across the entire codebase", "deep"),
        ("Write an SQL parser in Python", "uncertain"),
    ],
)
def test_label(prompt: str, label: str) -> None:
    assert classify(features(task(prompt))).label == label


@pytest.mark.parametrize(
    ("prompt", "sensitive"),
    [
        ("Our JWT verification accepts alg=none, please fix", True),
        ("Review our login flow for vulnerabilities", True),
        ("Patch the path traversal in the file download handler", True),
        ("Explain the term exploit in reinforcement learning", False),
        ("Write an attack animation for the player sprite in Pygame", False),
        ("Count vowels in a string and inject the count into the template", False),
        ("Which tokens does the tokenizer split at a comma?", False),
        ("Explain what a JWT is", False),
        ("What does XSS mean?", False),
        ("Fix the spelling of 'vulnerable' in the docs", False),
        ("What is the vulnerability in our login?", True),
        ("Explain the XSS in this page", True),
        ("Set the saw for a mitre joint", False),
        ("Write a short poem about the Trojan horse", False),
        ("How many syllables are in phishing?", False),
        ("We got a phishing mail from our own domain, who else got it?", True),
        ("An attacker can guess the reset token", True),
    ],
)
def test_security(prompt: str, sensitive: bool) -> None:
    assert classify(features(task(prompt))).security_sensitive is sensitive


@pytest.mark.parametrize(
    "text",
    [
        " ".join(f"word{number}" for number in range(60)),
        "server " + " ".join(f"tok{number}" for number in range(100)),
        "file line error " + " ".join(map(str, range(200))),
    ],
)
def test_numbers_alone_are_no_security(text: str) -> None:
    """The shape of such a text would speak for it, and hardly a word does."""
    assert not classify(features_of_text(text)).security_sensitive


def test_hints_shift_and_are_named() -> None:
    def of(hints: Hints) -> TaskClass:
        return classify(features(task("Add caching to the client", hints=hints)))

    plain = of(Hints())
    high = of(Hints(reasoning_effort="high"))
    hurried = of(Hints(service_tier="priority"))
    assert hurried.p_deep < plain.p_deep < high.p_deep
    assert any(signal.startswith("reasoning effort high +1.2 (") for signal in high.signals)
    assert any(signal.startswith("service tier priority -0.7 (") for signal in hurried.signals)


def test_unknown_hints_count_for_nothing() -> None:
    odd = Hints(reasoning_effort="cosmic", service_tier="default")
    assert classify(features(task("Hi", hints=odd))) == classify(features(task("Hi")))


def test_a_trivial_ask_in_front_of_a_long_context_stays_trivial() -> None:
    assert classify(features(task("fix the typo", prompt_tokens=100_000))).label == "interactive"


def test_signals_come_strongest_first_with_their_share() -> None:
    prompt = "Prove the theorem, then refactor the scheduler"
    task_class = classify(features(task(prompt, hints=Hints(reasoning_effort="low"))))
    found = [SIGNAL.fullmatch(signal) for signal in task_class.signals]
    sizes = [abs(float(match[2])) for match in found if match]
    assert len(sizes) == len(task_class.signals) == 5
    assert sizes == sorted(sizes, reverse=True)
    assert sum(float(match[3]) for match in found if match) <= 101
    assert any('"refactor"' in signal for signal in task_class.signals)


def test_the_band_decides_the_label() -> None:
    found = features(task("Implement a small cache, the tests and the docs"))
    assert classify(found, Band(low=0.0, high=0.0)).label == "deep"
    assert classify(found, Band(low=1.0, high=1.0)).label == "interactive"
    assert classify(found, Band(security=0.0)).security_sensitive


def test_head_tail_and_windows_of_a_long_text_are_read() -> None:
    filler = "x " * 400_000
    tail = classify(features(task(f"{filler}\n\nprove the theorem")))
    assert '"prove"' in " ".join(tail.signals)
    half = "We drew pictures of the sea. " * 20_000
    leak = "An attacker can read other users' passwords through the SQL injection. " * 8
    assert not classify(features(task(half * 2))).security_sensitive
    assert classify(features(task(half + leak + half))).security_sensitive


def test_features_hold_what_the_request_says_besides_the_ask() -> None:
    hints = Hints(reasoning_effort="low", service_tier="flex")
    found = features(task("Fix a", prompt_tokens=900, hints=hints))
    assert found.num_context_tokens == 900
    assert (found.reasoning_effort, found.service_tier) == ("low", "flex")
    assert found.reading.words == [b"fix", b"a"]


def test_expected_output_grows_with_depth_and_shrinks_when_asked_to_be_brief() -> None:
    small = classify(features(task("fix the typo"))).expected_output_tokens
    deep = classify(features(task("Refactor the entire codebase"))).expected_output_tokens
    brief = classify(features(task("Refactor the entire codebase, briefly"))).expected_output_tokens
    assert small < brief < deep <= 2 * signals.DEEP_OUTPUT_TOKENS


def test_the_same_in_every_process() -> None:
    """Sets of strings iterate differently from process to process; the result must not."""
    program = (
        "from tests.unit.router.tasks import task\n"
        "from router.classify.classify import classify, features\n"
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


@pytest.mark.parametrize("term", sorted(signals.STRONG_SECURITY_TERMS))
def test_strong_terms_can_be_found(term: str) -> None:
    """A term the reader could never produce would be a silent typo."""
    task_class = classify(features(task(f"now {term} here")))
    assert task_class.p_security >= signals.STRONG_SECURITY
    assert f'security: "{term}"' in task_class.signals


def test_whether_a_query_is_injectable_is_about_security() -> None:
    asked = "Is this SQL injectable? SELECT * FROM users WHERE id = ' + id"
    assert classify(features(task(asked))).security_sensitive
    other = "Register an injectable logger in the container"
    assert not classify(features(task(other))).security_sensitive


@pytest.mark.parametrize(
    ("ask", "is_sensitive"),
    [
        ("What is a vulnerability?", False),
        ("¿Qué es una vulnerabilidad?", False),
        ("Was ist eine Sicherheitslücke?", False),
        ("O que é ransomware?", False),
        ("Что такое уязвимость?", False),
        ("什么是漏洞？", False),
        ("¿Qué vulnerabilidad hay en nuestro login?", True),
        ("Was ist die Sicherheitslücke in unserem Login?", True),
        ("Что за уязвимость в нашем модуле?", True),
        ("这段代码有什么漏洞？", True),
    ],
)
def test_what_a_term_means_is_no_security_work(ask: str, is_sensitive: bool) -> None:
    assert classify(features(task(ask))).security_sensitive is is_sensitive


@pytest.mark.parametrize(
    "ask",
    [
        "如何防止这个接口的远程代码执行？",
        "给这个函数加SQL注入的测试",
        "Escribe una prueba de este desbordamiento de búfer",
        "Закрой дыру в безопасности",
    ],
)
def test_a_term_of_several_words_is_found_as_a_whole(ask: str) -> None:
    assert classify(features(task(ask))).security_sensitive


@pytest.mark.parametrize(
    "ask", ["解释一下SQL注释的写法", "远程执行代码审查会议的通知", "Закрой дыру"]
)
def test_parts_of_a_term_are_none(ask: str) -> None:
    assert not classify(features(task(ask))).security_sensitive
