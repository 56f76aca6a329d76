"""Tests the way from tasks and outcomes to the facts of the next task."""

from collections.abc import Iterator

import msgspec
import pytest

from backends.contract import (
    ContextItem,
    FunctionCall,
    FunctionCallOutput,
    Message,
    Reasoning,
    TextFormat,
    TextPart,
)
from backends.prompt import measure, prompt_size
from router.agent_runs.run_state import NEW_RUN, read
from router.classify.classify import Band, classify, features
from router.classify.task import Task
from router.decide.weighing import weigh
from router.learn.experience import MAX_LEARNERS, MAX_TENANTS, STALE_US, Experience
from router.learn.learning import MIN_OUTCOMES
from router.learn.pending_outcomes import PendingOutcome
from router.policy.tradeoff import Tradeoff
from router.pools.pools import Balance
from tests.unit.router.tasks import backend, task

STATS = (backend("wafer", "fast"), backend("gpu", "deep"))
ASK = "Explain what this function does and why it takes two locks"


def message(role: str, text: str) -> ContextItem:
    return measure(Message(role, (TextPart(text),)))  # type: ignore[arg-type]


ANSWER = message("assistant", "It takes them in order.")


def answered(
    experience: Experience, prompt: str = ASK, response_id: str = "resp_1"
) -> PendingOutcome:
    first = task(prompt, id=response_id, items=(message("user", prompt),))
    return experience.note_answer(
        first,
        classify(features(first)),
        (ANSWER,),
        answered_by="fast",
        others=(),
        backend="wafer",
        pinned=False,
    )


def next_task(prompt: str) -> Task:
    items = (message("user", ASK), ANSWER, message("user", prompt))
    return task(prompt, id="resp_2", items=items, num_turns=2, run=read(NEW_RUN, items))


MOVES = (("Now write a test for it", "accepted", 1.0), (ASK, "retried", 0.0))


@pytest.mark.parametrize(("prompt", "source", "success"), MOVES)
def test_the_next_ask_teaches_once(prompt: str, source: str, success: float) -> None:
    experience = Experience()
    pending = answered(experience)
    assert experience.holder_of(next_task(prompt)) == "wafer"  # though the client named no parent
    experience.arrival(next_task(prompt), STATS)
    assert (pending.taught_by, pending.taught) == (source, {"fast": success})
    experience.arrival(next_task(prompt), STATS)  # a fork of the same conversation
    assert experience.num_outcomes == {source: 1}


def test_feedback_replaces_a_hint() -> None:
    experience = Experience()
    pending = answered(experience)
    experience.arrival(next_task("Now write a test for it"), STATS)
    assert experience.teach(pending, "feedback", {"fast": 0.0})
    known = experience.learner("acme").known["fast"]
    assert known.num_outcomes == pytest.approx(1.0)
    assert known.moment[0] < 0


def test_a_trial_of_another_version_teaches_nothing() -> None:
    experience = Experience()
    assert not experience.teach(
        PendingOutcome(tenant_id="acme", answered_by="fast", p_gain=0.1, traits=b"", version="old"),
        "feedback",
        {"fast": 1.0},
    )
    assert not experience.num_outcomes


def test_enough_outcomes_reach_the_next_decision() -> None:
    experience = Experience()
    asked = next_task("Rename it")
    seen = features(asked)
    task_class = classify(seen)

    def correction() -> float:
        course = experience.arrival(asked, STATS)
        return experience.facts(asked, task_class, seen.reading, course, 0).gain_correction

    for number in range(2 * MIN_OUTCOMES):
        assert number > MIN_OUTCOMES or correction() == 0
        pending = answered(experience, f"Rename {number} of them", f"resp_{number + 10}")
        experience.teach(pending, "feedback", {"fast": 1.0, "deep": 0.2})
    assert correction() < -0.2


def test_alarms_reach_the_next_decision_in_words() -> None:
    experience = Experience()
    odd = task("1, 2, 3, 4, 5, 6, 7, 8, 9, 10 ((((( ?")
    for number in range(300):
        answered(experience, odd.last_user_message, f"resp_{number}")
    seen = features(odd)
    task_class = classify(seen)
    facts = experience.facts(odd, task_class, seen.reading, experience.arrival(odd, STATS), 0)
    assert facts.alarms
    tradeoff = Tradeoff(widen_on_drift=True)
    weighed = weigh(tradeoff, Band(), odd, task_class, STATS, facts)
    assert weighed.cautious
    assert f"drift: {facts.alarms[0]}" in weighed.because
    assert "PSI" in weighed.because


def balances(remaining: int) -> Iterator[Balance]:
    for unit, left in (("requests", 90), ("tokens", remaining)):
        yield Balance(group="deep", unit=unit, limit=100, remaining=left, reset_us=0)  # type: ignore[arg-type]


def test_what_is_left_is_the_tightest_pools_share_and_grows_stale() -> None:
    experience = Experience()
    asked = task()
    seen = features(asked)

    def left(now_us: int) -> dict[str, float]:
        course = experience.arrival(asked, STATS)
        facts = experience.facts(asked, classify(seen), seen.reading, course, now_us)
        return dict(facts.shares_left)

    assert left(0) == {}
    experience.note_balances("acme", balances(10), 1_000)
    assert left(2_000) == {"deep": 0.1}
    assert left(1_000 + STALE_US) == {}


def test_what_is_remembered_is_bounded() -> None:
    experience = Experience()
    for number in range(MAX_TENANTS + 10):
        experience.note_balances(f"t-{number}", balances(10), 0)
    for number in range(MAX_LEARNERS + 10):
        experience.learner(f"t-{number}")
    assert len(experience.learners) == MAX_LEARNERS
    assert len(experience._left) == MAX_TENANTS


def test_who_held_a_context_before_is_known_by_its_prompt() -> None:
    experience = Experience()
    first = task(prompt_tokens=3_000)
    request = msgspec.structs.replace(first.request, prefix=((1, 100), (2, 3_000)))
    first = msgspec.structs.replace(first, request=request)
    experience.note_held(first, "wafer")
    grown = msgspec.structs.replace(request, prefix=((1, 100), (2, 3_000), (3, 4_000)))
    later = msgspec.structs.replace(first, request=grown, last_backend="gpu")
    experience.note_warm(later, "gpu")
    assert experience.also_held(later) == {"wafer": 3_000}
    experience.erase("acme")
    assert experience.also_held(later) == {}


def whole(*items: ContextItem, instructions: str | None = None, tenant_salt: int = 0) -> Task:
    """Returns a request that sends all of its context."""
    num_tokens, prefix = prompt_size(instructions, (), TextFormat(), items, tenant_salt)
    plain = task(items=items, prompt_tokens=num_tokens)
    request = msgspec.structs.replace(plain.request, prefix=prefix, instructions=instructions)
    return msgspec.structs.replace(plain, request=request)


def call(number: int) -> ContextItem:
    return measure(FunctionCall(f"call_{number}", "edit", "{}"))


def result(number: int) -> ContextItem:
    return measure(FunctionCallOutput(f"call_{number}", (TextPart("Success."),)))


ASKED = message("user", ASK)
THOUGHT = ContextItem(Reasoning(()), 0, 0)


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ((ASKED, call(1), result(1)), "gpu"),
        ((ASKED, THOUGHT, call(1), result(1)), "gpu"),
        ((ASKED, ANSWER, call(1), call(2), result(1), result(2)), "gpu"),
        ((ASKED, ANSWER, message("user", "Go on.")), "gpu"),
        ((ASKED,), None),  # the same ask, of another conversation maybe
        ((ASKED, message("user", "Go on.")), None),  # nobody answered it
        ((ASKED, result(1)), None),
        ((message("user", "Another"), call(1), result(1)), None),
    ],
)
@pytest.mark.parametrize("instructions", [None, "Be brief."])
def test_who_holds_a_context_that_is_sent_whole_is_known_whatever_it_ends_in(
    items: tuple[ContextItem, ...], expected: str | None, instructions: str | None
) -> None:
    experience = Experience()
    experience.note_held(whole(ASKED, instructions=instructions), "gpu")
    assert experience.holder_of(whole(*items, instructions=instructions)) == expected
    others = whole(*items, instructions=instructions, tenant_salt=7)
    assert experience.holder_of(others) is None, "another tenant's prompts have other hashes"


def test_of_a_run_that_moved_the_newest_holder_is_known() -> None:
    experience = Experience()
    experience.note_held(whole(ASKED), "gpu")
    first = (ASKED, call(1), result(1))
    experience.note_held(whole(*first), "wafer")
    assert experience.holder_of(whole(*first, call(2), result(2))) == "wafer"
    many = [item for number in range(2, 400) for item in (call(number), result(number))]
    assert experience.holder_of(whole(*first, *many)) is None, "too long ago"
