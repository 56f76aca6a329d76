"""Tests `draft`: when deep begins, what it is given, and what stands if an engine fails."""

import msgspec
import pytest

from backends.contract import FinishReason
from router.strategies.actions import DEEP, FAST, CancelBranch, StartBranch, WakeAt
from router.strategies.draft import STAND_IN, Draft, Drafting, Predicted
from router.strategies.machine import WAITED_FOR_US
from router.strategies.part_requests import WholeAnswer
from router.strategies.table import STRATEGIES
from tests.unit.router.strategies.plays import (
    CALL,
    ERROR,
    REASONING,
    REQUEST,
    STOP,
    WAKE,
    A,
    Row,
    delta,
    done,
    failed,
    in_short,
    play,
)

DRAFT_US = 4_000_000
BEGUN = ("begin", FAST, Draft())
FILTERED = done(1, FinishReason.CONTENT_FILTER)

ROWS: list[Row] = [
    (
        "the draft is not shown, and predicts the answer",
        [(FAST, delta("ab")), (FAST, delta("c")), (FAST, done(3)), (DEEP, delta("x")),
         (DEEP, done(2))],
        [BEGUN, ("begin", DEEP, Predicted("abc")), (0, "x", A), (STOP, 5, 0)],
    ),
    (
        "deep begins with what there is when the time is up, and the draft is given up",
        [(FAST, delta("ab")), WAKE, WAKE, (FAST, delta("c")), (DEEP, done(2))],
        [BEGUN, ("cancel", FAST), ("begin", DEEP, Predicted("ab")), (STOP, 2, 0)],
    ),
    (
        "a silent fast engine is waited for a second",
        [WAKE, (DEEP, delta("x")), (DEEP, done(2))],
        [BEGUN, ("cancel", FAST), ("begin", DEEP, WholeAnswer()), (0, "x", A), (STOP, 2, 0)],
    ),
    (
        "a draft that breaks off predicts as far as it came",
        [(FAST, delta("ab")), (FAST, failed("fast")), (DEEP, delta("x")), (DEEP, done(2))],
        [BEGUN, ("begin", DEEP, Predicted("ab")), (0, "x", A), (STOP, 3, 1)],
    ),
    (
        "the fast engine fails at once",
        [(FAST, failed("fast")), (DEEP, delta("x")), (DEEP, done(2))],
        [BEGUN, ("begin", DEEP, WholeAnswer()), (0, "x", A), (STOP, 3, 1)],
    ),
    (
        "what was filtered is no prediction",
        [(FAST, delta("ab")), (FAST, FILTERED), (DEEP, done(2))],
        [BEGUN, ("begin", DEEP, WholeAnswer()), (STOP, 3, 0)],
    ),
    (
        "a call ends the draft, and its reasoning is none of it",
        [(FAST, delta("hm", 0, REASONING)), (FAST, delta("a", 1)), (FAST, delta("{", 2, CALL)),
         (DEEP, done(2))],
        [BEGUN, ("cancel", FAST), ("begin", DEEP, Predicted("a")), (STOP, 2, 0)],
    ),
    (
        "deep fails unheard: a whole draft stands",
        [(FAST, delta("a")), (FAST, delta("b")), (FAST, done(2)), (DEEP, failed())],
        [BEGUN, ("begin", DEEP, Predicted("ab")), (0, "ab", A), (STOP, 3, 1)],
    ),
    (
        "deep only reasons and fails: a whole draft stands",
        [(FAST, delta("a")), (FAST, done(1)), (DEEP, delta("hm", 0, REASONING)), (DEEP, failed())],
        [BEGUN, ("begin", DEEP, Predicted("a")), (0, "hm", A), (1, "a", A), (STOP, 2, 1)],
    ),
    (
        "deep fails unheard, and the draft was cut short: fast answers anew",
        [(FAST, delta("a")), WAKE, WAKE, (DEEP, failed()), (STAND_IN, delta("z")),
         (STAND_IN, done(2))],
        [BEGUN, ("cancel", FAST), ("begin", DEEP, Predicted("a")),
         ("begin", STAND_IN, WholeAnswer()), (0, "z", A), (STOP, 3, 1)],
    ),
    (
        "both fail",
        [(FAST, failed("fast")), (DEEP, failed())],
        [BEGUN, ("begin", DEEP, WholeAnswer()), (ERROR, 2, 2)],
    ),
    (
        "deep fails, and fast was silent before",
        [WAKE, (DEEP, failed())],
        [BEGUN, ("cancel", FAST), ("begin", DEEP, WholeAnswer()), (ERROR, 1, 1)],
    ),
    (
        "the answer breaks off in the middle: half of it is no whole one",
        [(FAST, delta("a")), (FAST, done(1)), (DEEP, delta("x")), (DEEP, failed())],
        [BEGUN, ("begin", DEEP, Predicted("a")), (0, "x", A), (ERROR, 2, 1)],
    ),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_draft(row: Row) -> None:
    _, events, expected = row
    machine = Drafting(DRAFT_US, is_predicted=False)
    assert in_short(play(machine, events)) == expected


def test_it_looks_for_silence_and_when_the_time_is_up() -> None:
    machine = Drafting(DRAFT_US, is_predicted=False)
    assert machine.start(7) == [StartBranch(FAST, FAST, Draft()), WakeAt(7 + WAITED_FOR_US)]
    machine.on_delta(FAST, delta("a", at_us=9))
    assert machine.on_time(7 + WAITED_FOR_US) == [WakeAt(9 + WAITED_FOR_US)]
    machine.on_delta(FAST, delta("b", at_us=DRAFT_US))
    assert machine.on_time(9 + WAITED_FOR_US) == [WakeAt(7 + DRAFT_US)]
    began = [CancelBranch(FAST), StartBranch(DEEP, DEEP, Predicted("ab"))]
    assert machine.on_time(7 + DRAFT_US) == began
    short = Drafting(1_000, is_predicted=False)
    assert short.start(7)[1] == WakeAt(1_007), "never longer than it may take"


def test_silence_is_a_failure_and_lateness_is_none() -> None:
    silent = Drafting(DRAFT_US, is_predicted=False)
    silent.start(0)
    assert silent.on_time(WAITED_FOR_US)[0] == CancelBranch(FAST, is_silent=True)
    stalled = Drafting(DRAFT_US, is_predicted=False)
    stalled.start(0)
    stalled.on_delta(FAST, delta("a", at_us=5))
    begun = [CancelBranch(FAST, is_silent=True), StartBranch(DEEP, DEEP, Predicted("a"))]
    assert stalled.on_time(5 + WAITED_FOR_US) == begun


def test_a_clients_own_prediction_needs_no_draft() -> None:
    record = STRATEGIES["draft"]
    known = msgspec.structs.replace(REQUEST, prediction="a b c")
    machine = record.machine(record.options(), known)
    assert machine.start(0) == [StartBranch(DEEP, DEEP)]
    assert not machine.may_start(FAST)
    assert not machine.may_start(DEEP)


def test_the_group_of_the_draft_is_free_once_it_ended() -> None:
    machine = Drafting(DRAFT_US, is_predicted=False)
    machine.start(0)
    assert machine.may_start(DEEP)
    machine.on_finish(FAST, done(), 1)
    assert not machine.may_start(FAST)
    assert not machine.may_start(DEEP), "it has begun"


def test_a_draft_is_asked_without_reasoning_and_the_answer_with_the_draft() -> None:
    asked = msgspec.structs.replace(REQUEST, reasoning_effort="high", reasoning_summary="auto")
    drafted = Draft().request(asked)
    assert (drafted.reasoning_effort, drafted.reasoning_summary) == (None, None)
    assert Predicted("a b").request(asked) == msgspec.structs.replace(asked, prediction="a b")
