"""Tests outcomes: what clients show of answers, what answers say of each other, and bounds."""

import numpy as np
import pytest

from backends.contract import Message, TextPart
from backends.prompt import measure
from router.decide.continuity import ConversationState
from router.learn.learning import NUM_TRAITS
from router.learn.pending_outcomes import (
    WEIGHTS,
    PendingOutcome,
    PendingOutcomes,
    pack_traits,
    shown,
)
from tests.unit.router.tasks import task


def pending(**fields: object) -> PendingOutcome:
    plain = {
        "tenant_id": "acme",
        "answered_by": "fast",
        "p_gain": 0.2,
        "traits": pack_traits(np.linspace(-3, 3, NUM_TRAITS)),
    }
    return PendingOutcome(**(plain | fields))  # type: ignore[arg-type]


AGAIN = ConversationState(holder="fast", dissatisfied=True)
ROWS = (
    ("it goes on", pending(), ConversationState(holder="fast"), False, ("accepted", 1.0)),
    ("it asks again", pending(), AGAIN, False, ("retried", 0.0)),
    ("and asks the deep engine", pending(), AGAIN, True, ("escalated", 0.0)),
    ("which had answered", pending(answered_by="deep"), AGAIN, True, ("retried", 0.0)),
    ("fast was its own choice", pending(pinned=True), AGAIN, True, ("retried", 0.0)),
    (
        "new work for the deep engine",
        pending(),
        ConversationState(holder="fast"),
        True,
        ("accepted", 1.0),
    ),
    (
        "a tool's output",
        pending(),
        ConversationState(holder="fast", answers_tools=True),
        False,
        None,
    ),
)


@pytest.mark.parametrize(("why", "before", "course", "wants_deep", "expected"), ROWS)
def test_what_the_next_task_shows(
    why: str, before: PendingOutcome, course: ConversationState, wants_deep: bool, expected: object
) -> None:
    assert shown(before, task(num_turns=2), course, wants_deep=wants_deep) == expected, why


def test_a_first_ask_shows_nothing() -> None:
    assert shown(pending(), task(num_turns=1), ConversationState(), wants_deep=False) is None


def test_a_lesson_is_the_trial_and_no_more_sure_than_its_source() -> None:
    observation = pending().observation("accepted", {"fast": 1.0})
    np.testing.assert_allclose(observation.traits, np.linspace(-3, 3, NUM_TRAITS), atol=2e-3)
    assert observation.weight == WEIGHTS["accepted"] < WEIGHTS["retried"] < WEIGHTS["feedback"]
    assert not pending(version="other").usable
    assert not pending(traits=b"").usable


def answer(text: str, **fields: str) -> Message:
    return Message("assistant", (TextPart(text),), **fields)


def test_a_resent_context_is_known_by_its_last_answer() -> None:
    trials = PendingOutcomes()
    said = measure(answer("Done.", id="msg_1"))
    trials.add("resp_1", pending(), said.digest)
    prompt = measure(Message("user", (TextPart("And now?"),)))
    follows = task(items=(measure(answer("Done.")), prompt))
    assert trials.before(follows) is trials.get("acme", "resp_1")
    assert trials.before(task(items=(measure(answer("Other.")), prompt))) is None
    assert trials.before(task()) is None
    assert trials.get("someone-else", "resp_1") is None


def test_the_oldest_go() -> None:
    trials = PendingOutcomes(max_pending=3)
    for number in range(10):
        trials.add(f"resp_{number}", pending(), number)
    assert [trials.get("acme", f"resp_{n}") is None for n in range(10)] == [True] * 7 + [False] * 3


def test_packed_traits_are_numpys_half_floats() -> None:
    traits = np.random.default_rng(5).uniform(-3, 3, NUM_TRAITS)
    assert pack_traits(traits.tolist()) == traits.astype("<f2").tobytes()
