"""Tests kinds of work by words: what people would expect, and what looks alike and is not."""

import pytest

from router.classify.kinds import KINDS, kind_of
from router.classify.text_features import read

CASES: list[tuple[str, str | None]] = [
    ("Refactor the billing module into smaller classes.", "refactor"),
    ("Please rename getCwd to getCurrentWorkingDirectory across the repo", "refactor"),
    ("Can you clean up this function?", "refactor"),
    ("The parser is a mess. Simplify it, and add tests.", "refactor"),
    ("Fix the failing tests", "fix"),
    ("There is a bug in the scheduler", "fix"),
    ("Our worker crashes after an hour", "fix"),
    ("Add unit tests for the lexer", "test"),
    ("Write tests for the refactored module", "test"),
    ("Explain what refactoring means", "explain"),
    ("Why is this slow?", "explain"),
    ("Review my pull request", "review"),
    ("Write a docstring for this function", "document"),
    ("Update the README", "document"),
    ("Implement a function to translate roman numerals", "implement"),
    ("Create an endpoint for refunds", "implement"),
    ("Write a design for multi-region failover", "design"),
    ("Plan the sharding", "design"),
    ("Optimize the query", "optimise"),
    ("Make it faster", "optimise"),
    ("Migrate us from Flask to FastAPI", "migrate"),
    ("Port it to Rust", "migrate"),
    ("Translate this into French", "translate"),
    ("Summarize the thread", "summarise"),
    ("Which port does Redis listen on?", None),
    ("The address of the portal", None),
    ("Additionally, planes carry fixtures.", None),
    ("Hello!", None),
    ("", None),
]


@pytest.mark.parametrize(("prompt", "kind"), CASES)
def test_kinds(prompt: str, kind: str | None) -> None:
    assert kind_of(read(prompt).words) == kind


def test_each_kind_is_found() -> None:
    assert {kind for _, kind in CASES} - {None} == set(KINDS)
