"""Tests docs/policies.md: its examples are valid, and no field or condition is missing."""

import re
from pathlib import Path

import pytest

from router.classify.kinds import KINDS
from router.policy.conditions import When
from router.policy.policy import Choice, Policy, Rule, TenantPolicy, parse_policy

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "policies.md").read_text()
README = (ROOT / "README.md").read_text()
EXAMPLES = [
    *re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL),
    *re.findall(r"```toml\n(# policy.toml\n.*?)```", README, re.DOTALL),
    (ROOT / "deploy" / "policy.toml").read_text(),
]


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_are_valid(example: str) -> None:
    assert parse_policy(example.encode()) != Policy()


def test_the_examples_are_found() -> None:
    assert len(EXAMPLES) >= 4


def test_everything_is_named() -> None:
    kinds = (When, Choice, Rule, Policy, TenantPolicy)
    names = {name for kind in kinds for name in kind.__struct_encode_fields__} | set(KINDS)
    prose = re.sub(r"```.*?```", "", TEXT, flags=re.DOTALL)
    named = set(re.findall(r"[a-z_]+", " ".join(re.findall(r"`([^`]+)`", prose))))
    assert names <= named, sorted(names - named)
