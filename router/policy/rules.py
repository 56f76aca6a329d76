"""Finds the rule of a policy that takes a task, and why each other rule does not."""

from collections.abc import Iterator

import msgspec

from router.classify.task import Task
from router.policy.conditions import Situation
from router.policy.policy import Policy, Rule


class RuleTrace(msgspec.Struct, frozen=True):
    """Says whether one rule fired for a task, and if not, why."""

    name: str
    fired: bool
    why: tuple[str, ...] = ()  # empty if it fired


def first_rule(policy: Policy, situation: Situation) -> tuple[Rule | None, bool]:
    """Returns the first rule that takes the task; `policy` is `for_tenant` of its tenant.

    And whether the task is a canary's control: a rule before it would have taken the task, had its
    conversation been in that rule's share.
    """
    is_control = False
    for rule, tests in policy.enabled_rules:
        for test in tests:
            if not test.holds(situation):
                break
        else:
            if _takes_share(rule, situation.task):
                return rule, is_control
            is_control = True
    return None, is_control


def trace_rules(policy: Policy, situation: Situation) -> Iterator[RuleTrace]:
    """Yields a trace of every rule in order, with the reasons of those that do not fire."""
    taken_by: Rule | None = None
    for rule in policy.rules:
        why: list[str] = []
        if not rule.enabled:
            why.append("it is not enabled")
        why += rule.when.why_not(situation)
        if not _takes_share(rule, situation.task):
            share = 100 * situation.task.share(rule.seed or rule.name)
            why.append(f"percent {rule.percent:g} (this conversation is at {share:.2f})")
        if taken_by is not None:
            why.append(f"{taken_by.name!r} comes first")
        elif not why:
            taken_by = rule
        yield RuleTrace(rule.name, rule is taken_by, tuple(why))


def _takes_share(rule: Rule, task: Task) -> bool:
    """Returns whether a canary takes a task: one of a larger share only adds conversations."""
    return rule.percent is None or task.share(rule.seed or rule.name) * 100 < rule.percent


def shares_of(policy: Policy, task: Task) -> dict[str, float]:
    """Returns the shares that the policy's canaries compare, by seed, for the decision log."""
    return {seed: task.share(seed) for seed in policy.canary_seeds}
