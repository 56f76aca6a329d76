"""Tests rules: the first that holds, shares that never flip, and a reason for each other."""

import msgspec
import pytest

from router.classify.task import Route, Task
from router.policy.conditions import Situation, When
from router.policy.policy import Policy, Rule
from router.policy.rules import first_rule, trace_rules
from tests.unit.router.tasks import of_class, task

FAST = Route.FAST


def fired(policy: Policy, a_task: Task) -> str | None:
    here = Situation(a_task, of_class())
    rule, _ = first_rule(policy, here)
    traced = [trace.name for trace in trace_rules(policy, here) if trace.fired]
    assert traced == ([rule.name] if rule else []), "an explanation tells what happens"
    return rule.name if rule else None


def test_what_a_canary_leaves_is_its_control() -> None:
    """Its control has tasks that its rule would have taken, and no others."""
    canary = Rule(name="canary", route=FAST, percent=0, when=When(tenants=("acme",)))
    others = Rule(name="any", route=FAST)
    here = Situation(task(), of_class())
    assert first_rule(Policy(rules=(canary, others)), here) == (others, True)
    assert first_rule(Policy(rules=(canary,)), here) == (None, True)
    whole = msgspec.structs.replace(canary, percent=100)
    assert first_rule(Policy(rules=(whole, others)), here) == (whole, False)
    elsewhere = msgspec.structs.replace(canary, when=When(tenants=("other",)))
    assert first_rule(Policy(rules=(elsewhere, others)), here) == (others, False)


def test_the_first_that_holds_fires() -> None:
    rules = (
        Rule(name="off", route=FAST, enabled=False),
        Rule(name="other", route=FAST, when=When(tenants=("other",))),
        Rule(name="mine", route=FAST, when=When(tenants=("acme",))),
        Rule(name="any", route=FAST),
    )
    assert fired(Policy(rules=rules), task()) == "mine"
    why = [trace.why for trace in trace_rules(Policy(rules=rules), Situation(task(), of_class()))]
    assert why == [
        ("it is not enabled",),
        ("tenants = other (here acme)",),
        (),
        ("'mine' comes first",),
    ]
    assert fired(Policy(rules=rules[:2]), task()) is None


def test_a_canary_says_where_the_conversation_stands() -> None:
    policy = Policy(rules=(Rule(name="canary", route=FAST, percent=0),))
    (trace,) = trace_rules(policy, Situation(task(conversation="c"), of_class()))
    share = 100 * task(conversation="c").share("canary")
    assert trace.why == (f"percent 0 (this conversation is at {share:.2f})",)


@pytest.mark.parametrize("percent", [0.5, 10, 50])
def test_a_share_is_what_it_says(percent: float) -> None:
    policy = Policy(rules=(Rule(name="canary", route=FAST, percent=percent),))
    count = 20_000
    hits = sum(
        fired(policy, task(conversation=f"conversation {n}")) is not None for n in range(count)
    )
    expected = count * percent / 100
    assert abs(hits - expected) < 5 * expected**0.5, "five sigma; the hash has no chance in it"


def test_a_share_never_flips_and_only_grows() -> None:
    conversations = [task(conversation=f"c{n}") for n in range(500)]

    def taken(percent: float, seed: str | None = None) -> set[str]:
        rule = Rule(name="canary", route=FAST, percent=percent, seed=seed)
        policy = Policy(rules=(rule,))
        return {each.conversation for each in conversations if fired(policy, each)}

    assert taken(10) == taken(10)
    assert taken(10) < taken(30) < taken(100) == {each.conversation for each in conversations}
    assert taken(0) == set()
    assert taken(30, seed="other") != taken(30)


def test_the_share_depends_on_tenant_and_conversation_alone() -> None:
    first = task("Hello", conversation="c")
    later = task("And now?", conversation="c", num_turns=5, id="resp_2", arrived_us=9)
    assert first.share("s") == later.share("s")
    other = msgspec.structs.replace(first.tenant, id="other")
    assert first.share("s") != task(conversation="c", tenant=other).share("s")


def test_shares_are_the_same_for_ever() -> None:
    """Were the hash to change, an upgrade would flip every conversation of a canary."""
    assert task(conversation="c").share("canary") == SHARE


SHARE = 0.6236364918559868
