"""The course of a conversation: what is read off its items."""

import pytest

from backends.contract import ContextItem, FunctionCall, FunctionCallOutput, Message, Role, TextPart
from router.decide.continuity import (
    DECISIVE,
    MAX_CHARS,
    MAX_HOLDING,
    NEW,
    ConversationState,
    conversation_state,
)

FAIL = "===== FAILURES =====\nFAILED tests/test_lock.py::test_order - AssertionError"
PASS = "===== 12 passed in 0.31s ====="


def says(role: Role, text: str, tokens: int = 10) -> ContextItem:
    return ContextItem(Message(role, (TextPart(text),)), tokens, hash(text))


def user(text: str) -> ContextItem:
    return says("user", text)


ANSWER = says("assistant", "Here is the patch.", 200)
CALL = ContextItem(FunctionCall("call_1", "run", "{}"), 20, 1)


def output(text: str, tokens: int = 50) -> ContextItem:
    return ContextItem(FunctionCallOutput("call_1", (TextPart(text),)), tokens, 2)


ASK = user("Fix the deadlock in the lock manager")


def test_a_first_ask_has_no_course() -> None:
    assert conversation_state((ASK,), 500, None) == NEW
    assert NEW.holding == 0


ROWS: tuple[tuple[str, tuple[ContextItem, ...], float], ...] = (
    ("a new prompt", (ASK, ANSWER, user("Now add a changelog entry for it")), 0.0),
    ("the same again", (ASK, ANSWER, user("fix the deadlock in the lock manager!")), 1.5),
    ("a complaint", (ASK, ANSWER, user("No, it is still broken on Windows")), 1.5),
    (
        "both",
        (ASK, ANSWER, user("Fix the deadlock in the lock manager it still fails")),
        1.5,  # the words differ by too many: a complaint alone
    ),
    ("go on, twice", (user("go on"), ANSWER, user("go on")), 0.0),
    ("a complaint at first", (user("It is still broken. Please fix it."),), 0.0),
    ("tests pass", (ASK, CALL, output(PASS)), 0.0),
    ("tests fail once", (ASK, CALL, output(FAIL)), 0.75),
    ("twice", (ASK, CALL, output(FAIL), CALL, output(FAIL)), 1.5),
    ("failed, then passed", (ASK, CALL, output(FAIL), CALL, output(PASS)), 0.0),
    ("only those of this prompt", (ASK, CALL, output(FAIL), ANSWER, user("Thank you")), 0.0),
    ("grown", (ASK, CALL, output("x", 30_000)), 0.5),
    (
        "at most four reports count",
        (ASK, *[entry for _ in range(9) for entry in (CALL, output(FAIL))]),
        3.0,
    ),
    ("the tail of a long report is read", (ASK, CALL, output("." * 99_999 + FAIL)), 0.75),
)


@pytest.mark.parametrize(("why", "items", "evidence"), ROWS, ids=[row[0] for row in ROWS])
def test_evidence(why: str, items: tuple[ContextItem, ...], evidence: float) -> None:
    conversation = conversation_state(items, 5_000, "fast")
    assert conversation.evidence == evidence, conversation.signs
    assert bool(conversation.signs) == (evidence > 0)


def test_two_failing_reports_or_one_complaint_decide() -> None:
    for items in (ROWS[2][1], ROWS[8][1]):
        assert conversation_state(items, 5_000, "fast").evidence >= DECISIVE


@pytest.mark.parametrize(
    ("ask", "goes_on"),
    [
        ("Go on.", True),
        ("Yes, please do!", True),
        ("continue", True),
        ("What is two plus two?", False),
    ],
)
def test_a_few_words_go_on_with_what_was_said(ask: str, *, goes_on: bool) -> None:
    assert conversation_state((ASK, ANSWER, user(ask)), 5_000, "deep").goes_on is goes_on
    assert not conversation_state((user(ask),), 5_000, "deep").goes_on, "with nothing before it"


def test_the_middle_of_a_long_item_is_not_read() -> None:
    hidden = "." * MAX_CHARS + FAIL + "." * MAX_CHARS
    assert conversation_state((ASK, CALL, output(hidden)), 5_000, "fast").evidence == 0


def test_what_the_client_brings_is_in_nobodys_cache() -> None:
    conversation = conversation_state((ASK, ANSWER, user("And now?")), 5_000, "deep")
    assert (conversation.held_tokens, conversation.answers_tools) == (4_990, False)
    conversation = conversation_state((ASK, CALL, output(PASS)), 5_000, "deep")
    assert (conversation.held_tokens, conversation.answers_tools) == (4_950, True)


def test_holding_grows_with_the_context_up_to_a_bound() -> None:
    held = [
        ConversationState(holder="fast", held_tokens=n).holding for n in (0, 1_024, 8_192, 10**7)
    ]
    assert held == sorted(held)
    assert held[0] == pytest.approx(0.3)
    assert held[1] == pytest.approx(0.55)
    assert held[-1] == MAX_HOLDING
    assert ConversationState(held_tokens=10**6).holding == 0
