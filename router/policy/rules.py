"""Which rule of a policy takes a task, and for each other one why it does not."""

import hashlib
from collections.abc import Iterator

import msgspec

from router.classify.task import Task
from router.policy.conditions import Situation
from router.policy.policy import Policy, Rule


class RuleTrace(msgspec.Struct, frozen=True):
    """What became of one rule for one task."""

    name: str
    fired: bool
    why: tuple[str, ...] = ()  # what kept it from firing, in words


def first_rule(policy: Policy, situation: Situation) -> Rule | None:
    """The first rule that takes the task, of a policy as it is for the task's tenant."""
    for rule in policy.rules:
        if rule.enabled and rule.when.holds(situation) and _takes_share(rule, situation.task):
            return rule
    return None


def trace_rules(policy: Policy, situation: Situation) -> Iterator[RuleTrace]:
    """Every rule in order: the one that fires, and the reasons of the others."""
    taken_by: Rule | None = None
    for rule in policy.rules:
        why: list[str] = []
        if not rule.enabled:
            why.append("it is not enabled")
        why += rule.when.why_not(situation)
        if not _takes_share(rule, situation.task):
            share = 100 * share_of(rule.seed or rule.name, situation.task)
            why.append(f"percent {rule.percent:g} (this conversation is at {share:.2f})")
        if taken_by is not None:
            why.append(f"{taken_by.name!r} comes first")
        elif not why:
            taken_by = rule
        yield RuleTrace(rule.name, rule is taken_by, tuple(why))


def _takes_share(rule: Rule, task: Task) -> bool:
    return rule.percent is None or share_of(rule.seed or rule.name, task) * 100 < rule.percent


def share_of(seed: str, task: Task) -> float:
    """Where a conversation stands between 0 and 1: always the same place for the same seed.

    A canary takes those below its percentage, so a larger one takes all that a smaller one took.
    """
    key = f"{seed}\0{task.tenant.id}\0{task.conversation}".encode()
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest()) / 2**64
