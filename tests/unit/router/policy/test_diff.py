"""Tests differences of policies: by what they decide, not by how they are written."""

import msgspec

from router.policy.diff import policy_changes
from router.policy.policy import DEFAULT_POLICY, parse_policy

OLD = b"""
strategy = "breadth"
[[rules]]
name = "a"
when = { tenants = ["x"] }
route = "fast"
[[rules]]
name = "b"
route = "deep"
"""
NEW = b"""
# The same strategy, and a comment.
strategy = "breadth"
[[rules]]
name = "b"
route = "deep"
percent = 10
[[rules]]
name = "c"
route = "fast"
"""


def test_every_field_that_differs_is_told_once() -> None:
    changes = policy_changes(parse_policy(OLD), parse_policy(NEW))
    told = {change.path: (change.from_, change.to) for change in changes}
    assert len(told) == len(changes)
    assert told['rules["b"].place'] == (2, 1)
    assert told['rules["b"].percent'] == (None, 10.0)
    assert told['rules["a"].when.tenants'] == (("x",), None)
    assert told['rules["c"].route'] == (None, "fast")
    assert "strategy" not in told
    assert not any('"b"].route' in path for path in told)


def test_the_format_makes_no_difference() -> None:
    policy = parse_policy(OLD)
    as_json = msgspec.json.encode(policy)
    assert policy_changes(policy, parse_policy(as_json)) == []
    assert policy_changes(DEFAULT_POLICY, parse_policy(b"")) == []
