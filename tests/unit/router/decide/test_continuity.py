"""Tests the state of a conversation: what is read off its items, its run and who held it."""

import pytest

from backends.contract import ContextItem, FunctionCall, FunctionCallOutput, Message, Role, TextPart
from router.agent_runs.run_state import NEW_RUN, RunState, read
from router.classify.task import Task
from router.decide.continuity import (
    GROWN_TOKENS,
    MAX_HOLDING,
    NEW,
    ConversationState,
    conversation_state,
    may_move,
)
from tests.unit.router.tasks import backend, task

STATS = (backend("wafer", "fast"), backend("gpu", "deep"))


def says(role: Role, text: str, tokens: int = 10) -> ContextItem:
    return ContextItem(Message(role, (TextPart(text),)), tokens, hash(text))


ASK = says("user", "Fix the deadlock in the lock manager")
ANSWER = says("assistant", "Here is the patch.", 200)
CALL = ContextItem(FunctionCall("call_1", "run", "{}"), 20, 1)
OUTPUT = ContextItem(FunctionCallOutput("call_1", (TextPart("12 passed"),)), 50, 2)


def following(*items: ContextItem, holder: str | None = "gpu", **fields: object) -> Task:
    run = read(NEW_RUN, items)
    return task(items=items, prompt_tokens=5_000, last_backend=holder, **({"run": run} | fields))


def test_a_first_ask_has_no_state() -> None:
    assert conversation_state(following(ASK, holder=None), STATS) == NEW
    assert NEW.holding == 0


def test_it_tells_what_the_run_tells() -> None:
    run = RunState(strain=1.5, signs=("the same ask again",), dissatisfied=True, goes_on=True)
    found = conversation_state(following(ASK, ANSWER, ASK, run=run), STATS)
    assert (found.evidence, found.signs) == (1.5, run.signs)
    assert (found.dissatisfied, found.goes_on, found.answers_tools) == (True, True, False)
    amid = RunState(goes_on=True, answers_tools=True)
    found = conversation_state(following(ASK, CALL, OUTPUT, run=amid), STATS)
    assert (found.goes_on, found.answers_tools) == (False, True)


def test_much_output_since_the_ask_is_a_sign_of_more_work() -> None:
    run = RunState(answers_tools=True, num_tokens=GROWN_TOKENS)
    found = conversation_state(following(ASK, CALL, OUTPUT, run=run), STATS)
    assert (found.evidence, found.signs) == (0.5, ("24000 tokens since the ask",))


def test_what_the_client_brings_is_in_nobodys_cache() -> None:
    conversation = conversation_state(following(ASK, ANSWER, says("user", "And now?")), STATS)
    assert (conversation.held_tokens, conversation.answers_tools) == (4_990, False)
    conversation = conversation_state(following(ASK, CALL, OUTPUT), STATS)
    assert (conversation.held_tokens, conversation.answers_tools) == (4_950, True)


def test_what_a_fast_engine_held_before_counts() -> None:
    held = {"wafer": 3_000, "gpu": 4_000, "gone": 9_000}
    found = conversation_state(following(ASK, CALL, OUTPUT, also_held=held), STATS)
    assert (found.holder, found.fast_tokens) == ("deep", 3_000)
    assert conversation_state(following(ASK, CALL, OUTPUT), STATS).fast_tokens == 0


def test_other_engines_prefixes_matter_where_a_move_may_be_due() -> None:
    assert not may_move(NEW_RUN)
    assert may_move(RunState(stuck=True))
    assert may_move(RunState(goes_on=True, gives_thanks=True))
    assert not may_move(RunState(goes_on=True, gives_thanks=True, answers_tools=True))
    assert may_move(RunState(answers_tools=True, calm_steps=3))
    assert not may_move(RunState(answers_tools=True, calm_steps=2))
    assert not may_move(RunState(calm_steps=3))


def test_more_is_asked_of_whoever_answered_before_the_thanks() -> None:
    thanked = (ASK, ANSWER, says("user", "thanks!", 3), says("assistant", "You're welcome.", 5))
    items = (*thanked, says("user", "weiter", 2))
    # The deep engine held the ask and all before it, 5,000 tokens less those that came since.
    held = {"gpu": 5_000 - 210}
    found = conversation_state(following(*items, holder="wafer", also_held=held), STATS)
    assert (found.holder, found.wants_more) == ("deep", True)
    for other in ({}, {"gpu": 5_000 - 221}, {"gone": 5_000}):  # of an earlier ask, or away
        found = conversation_state(following(*items, holder="wafer", also_held=other), STATS)
        assert found.holder == "fast"
    between = (ASK, ANSWER, says("user", "Mutex?", 3), says("assistant", "A lock.", 5))
    for after in (items[-1:], items[2:]):
        asked = (*between, *after)
        found = conversation_state(following(*asked, holder="wafer", also_held=held), STATS)
        assert found.holder == "fast"  # which answered what came between
    asked = (*thanked, says("user", "Now explain how a mutex works in general", 9))
    found = conversation_state(following(*asked, holder="wafer", also_held=held), STATS)
    assert found.holder == "fast"
    assert may_move(RunState(goes_on=True, wants_more=True, was_thanked=True))
    assert not may_move(RunState(goes_on=True, wants_more=True))


def test_holding_grows_with_the_context_up_to_a_bound() -> None:
    held = [
        ConversationState(holder="fast", held_tokens=n).holding for n in (0, 1_024, 8_192, 10**7)
    ]
    assert held == sorted(held)
    assert held[0] == pytest.approx(0.3)
    assert held[1] == pytest.approx(0.55)
    assert held[-1] == MAX_HOLDING
    assert ConversationState(held_tokens=10**6).holding == 0
