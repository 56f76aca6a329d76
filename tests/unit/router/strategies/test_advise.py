"""Tests advice: when it is asked for, what it is made from, and what comes of it."""

import msgspec
import pytest

from backends.contract import (
    Delta,
    FunctionCall,
    FunctionCallOutput,
    FunctionTool,
    Item,
    Message,
    TextFormat,
    TextPart,
    ToolChoice,
)
from backends.delegation import ADVISE, ADVISE_TOOL
from router.strategies.advise import NO_ADVICE, GiveAdvice
from router.strategies.part_requests import WholeAnswer
from router.strategies.tool_rounds import Converse
from tests.unit.router.strategies import plays
from tests.unit.router.strategies.plays import (
    CALL,
    ERROR,
    STOP,
    WAKE,
    A,
    C,
    Row,
    delta,
    done,
    failed,
    handing,
    in_short,
    machine_of,
    play,
)

REQUEST = msgspec.structs.replace(plays.REQUEST, max_output_tokens=100)
Q = '{"question":"How?"}'


def asking(index: int = 0) -> Delta:
    return handing(Q, index, ADVISE_TOOL)


def told(text: str, said: str = "") -> tuple[Item, ...]:
    words = (Message("assistant", (TextPart(said),)),) if said else ()
    call = FunctionCall("call_1" if said else "call_0", ADVISE_TOOL, Q)
    return (*words, call, FunctionCallOutput(call.call_id, (TextPart(text),)))


def next_round(branch: int, behind: tuple[Item, ...], kind: str = "opening") -> object:
    return ("begin", branch, Converse(kind, behind, ADVISE))  # type: ignore[arg-type]


ASKED = ("begin", 1, GiveAdvice("How?", 2_048))
ROWS: list[Row] = [
    (
        "it answers by itself",
        [(0, delta("a")), (0, delta("{}", 1, CALL)), (0, done(2))],
        [(0, "a", A), (1, "{}", A), (STOP, 2, 0)],
    ),
    (
        "it asks, and answers by the plan",
        [
            (0, delta("Hm.")),
            (0, asking(1)),
            (0, done(2)),
            (1, delta("plan")),
            (1, done(3)),
            (2, delta("a")),
            (2, delta("{}", 1, CALL)),
            (2, done(4)),
        ],
        [
            (0, "Hm.", C),
            ("begin", 1, GiveAdvice("How?", 2_048, told("", "Hm.")[:1])),
            (1, "plan", C),
            next_round(2, told("plan", "Hm.")),
            (2, "a", A),
            (3, "{}", A),
            (STOP, 9, 0),
        ],
    ),
    (
        "advice that fails is none",
        [(0, asking()), (0, done(1)), (1, delta("half")), (1, failed()), (2, delta("a"))],
        [ASKED, (0, "half", C), next_round(2, told(NO_ADVICE))],
    ),
    (
        "nor is advice that falls silent",
        [(0, asking()), (0, done(1)), WAKE, (2, done(1))],
        [ASKED, ("cancel", 1), next_round(2, told(NO_ADVICE)), (STOP, 2, 0)],
    ),
    (
        "the fast engine fails unheard: the deep one answers",
        [(0, delta("a")), (0, failed("fast")), (1, delta("x")), (1, done(1))],
        [("begin", 1, WholeAnswer()), (0, "x", A), (STOP, 2, 1)],
    ),
    (
        "and where it fails within or behind its call",
        [
            (0, delta("Hm.")),
            (0, asking(1)),
            (0, failed("fast")),
            (1, delta("x")),
            (1, done(1)),
        ],
        [(0, "Hm.", C), ("begin", 1, WholeAnswer()), (1, "x", A), (STOP, 2, 1)],
    ),
    (
        "and where it falls silent there",
        [(0, asking()), WAKE, WAKE, (1, delta("x")), (1, done(1))],
        [("cancel", 0), ("begin", 1, WholeAnswer()), (0, "x", A), (STOP, 1, 0)],
    ),
    (
        "and so it does after advice",
        [(0, asking()), (0, done(1)), (1, done(0)), (2, failed("fast")), (3, failed())],
        [ASKED, next_round(2, told(NO_ADVICE)), ("begin", 3, WholeAnswer()), (ERROR, 3, 2)],
    ),
    (
        "and where it says nothing at all",
        [WAKE, WAKE, (0, delta("late")), (1, delta("x")), (1, done(1))],
        [("cancel", 0), ("begin", 1, WholeAnswer()), (0, "x", A), (STOP, 1, 0)],
    ),
    (
        "nor is it given up once it was heard",
        [WAKE, (0, delta("a")), WAKE, (0, done(1))],
        [(0, "a", A), (STOP, 1, 0)],
    ),
    (
        "a question beside a call of the client's is dropped",
        [(0, asking()), (0, delta("{}", 1, CALL)), (0, done(1))],
        [(0, "{}", A), (STOP, 1, 0)],
    ),
]


@pytest.mark.parametrize("row", [row[0] for row in ROWS])
def test_rows(row: str) -> None:
    ((_, events, expected),) = (found for found in ROWS if found[0] == row)
    opening = ("begin", 0, Converse("opening", (), ADVISE))
    assert in_short(play(machine_of("advise", REQUEST), events)) == [opening, *expected]


def test_it_asks_as_often_as_it_may() -> None:
    machine = machine_of("advise", REQUEST, max_advices=1)
    actions = play(
        machine, [(0, asking()), (0, done(1)), (1, done(0)), (2, asking()), (2, done(1))]
    )
    closing = next_round(2, told(NO_ADVICE), "closing")
    assert in_short(actions)[2:] == [closing, ("begin", 3, WholeAnswer())], "deep answers"
    assert in_short(machine.on_delta(3, delta("x"))) == [(0, "x", A)]


def test_advice_is_done_without_and_rounds_are_not() -> None:
    machine = machine_of("advise", REQUEST)
    play(machine, [(0, asking()), (0, done(1))])
    assert [machine.does_without(branch) for branch in range(3)] == [False, True, False]
    machine.on_finish(1, done(0), 1)
    assert not machine.does_without(1), "it is over"


def test_words_beside_one_call_too_many_are_the_answer() -> None:
    machine = machine_of("advise", REQUEST, max_advices=1)
    long = "these are words enough to be an answer by themselves, and no preamble of a call"
    actions = play(
        machine,
        [
            *((0, asking()), (0, done(1)), (1, done(0))),
            *((2, delta(long)), (2, asking(1)), (2, done(1))),
        ],
    )
    assert in_short(actions)[3:] == [(0, long, A), (STOP, 2, 0)]


@pytest.mark.parametrize(
    "fields",
    [
        {"tool_choice": ToolChoice("none")},
        {"text_format": TextFormat("json_object")},
        {"tools": (FunctionTool(ADVISE_TOOL),)},
    ],
)
def test_the_tool_is_not_offered_everywhere(fields: dict[str, object]) -> None:
    request = msgspec.structs.replace(REQUEST, **fields)
    assert in_short(machine_of("advise", request).start(0)) == [("begin", 0, WholeAnswer())]


def test_advice_is_short_and_has_no_tools() -> None:
    request = msgspec.structs.replace(REQUEST, tools=(FunctionTool("f"),), reasoning_effort="high")
    made = GiveAdvice("How?", 300).request(request)
    assert (made.tools, made.max_output_tokens, made.reasoning_effort) == ((), 300, "high")
    last = made.items[-1].item
    assert isinstance(last, Message)
    assert last.role == "user"
    assert "How?" in str(last.content)
