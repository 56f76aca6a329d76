"""Tests delegation: rounds, sub-tasks, what the fast engine is told, and a client's steers."""

import msgspec
import pytest

from backends.contract import (
    FunctionCall,
    FunctionCallOutput,
    GenerateRequest,
    Item,
    Message,
    TextPart,
    ToolChoice,
)
from backends.delegation import DELEGATE, DELEGATE_TOOL
from backends.prompt import measure
from router.strategies.delegate import Delegate
from router.strategies.part_requests import WholeAnswer
from router.strategies.prelude import PRELUDE_TOKENS
from router.strategies.subtasks import Subtask
from router.strategies.tool_rounds import Converse
from tests.unit.router.strategies.plays import (
    CALL,
    ERROR,
    STOP,
    WAKE,
    A,
    C,
    Event,
    Row,
    delta,
    done,
    failed,
    handing,
    in_short,
    machine_of,
    play,
)

LONG = "w" * (PRELUDE_TOKENS + 1)  # a token for each letter
T, U = '{"task":"t"}', '{"task":"u"}'
WORKING = '{"status":"running","note":"Say now what needs no waiting for it."}'
NO_TASK = 'Not begun: "task" must say what to do, in at most 32,768 characters.'
SUB, BESIDE, LAST = 1, 2, 3  # branches where one sub-task begins: it, the round beside it, closing


def handed(*calls: tuple[int, str, str], said: str = "") -> tuple[Item, ...]:
    """Returns what a later round is told: words, calls (index, arguments, output), outputs."""
    words = (Message("assistant", (TextPart(text),)) for text in said.split("|") if text)
    made = (FunctionCall(f"call_{n}", DELEGATE_TOOL, arguments) for n, arguments, _ in calls)
    given = (FunctionCallOutput(f"call_{n}", (TextPart(out),)) for n, _, out in calls)
    return (*words, *made, *given)


def beside(*calls: tuple[int, str, str], said: str = "", branch: int = BESIDE) -> object:
    return ("begin", branch, Converse("meanwhile", handed(*calls, said=said)))


def closing(*calls: tuple[int, str, str], said: str = "", branch: int = LAST) -> object:
    return ("begin", branch, Converse("closing", handed(*calls, said=said)))


ROWS: list[Row] = [
    (
        "nothing is handed on: the opening is the answer",
        [(0, delta("a")), (0, delta("{}", 1, CALL)), (0, done(2))],
        [(0, "a", A), (1, "{}", A), (STOP, 2, 0)],
    ),
    (
        "words of some length are an answer, whatever comes behind them",
        [(0, delta(LONG)), (0, delta("a")), (0, handing(T, 1)), (0, done(2))],
        [
            (0, f"{LONG}", A),
            (0, "a", A),
            ("begin", SUB, Subtask("t")),
            beside((1, T, WORKING), said=f"{LONG}a"),
        ],
    ),
    (
        "an opening that breaks off before its words are known for an answer was not heard",
        [(0, delta("a")), (0, failed("fast")), (1, delta("x")), (1, done(1))],
        [("begin", 1, WholeAnswer()), (0, "x", A), (STOP, 2, 1)],
    ),
    (
        "the fast answer goes on beside the sub-task, which waits; then it closes",
        [
            (0, delta("a")),
            (0, handing('{"task":', 1)),
            (0, handing('"t"}', 1)),
            (0, done(2)),
            (SUB, delta("x")),
            (BESIDE, delta("b")),
            (SUB, delta("y")),
            (BESIDE, done(1)),
            (SUB, delta("z")),
            (SUB, done(3)),
            (LAST, delta("c")),
            (LAST, done(1)),
        ],
        [
            (0, "a", C),
            ("begin", SUB, Subtask("t")),
            beside((1, T, WORKING), said="a"),
            (1, "b", C),
            (2, "xy", C),
            (2, "z", C),
            closing((1, T, "xyz"), said="a|b"),
            (3, "c", A),
            (STOP, 7, 0),
        ],
    ),
    (
        "a sub-task begins when its call is complete, not when the round is",
        [(0, handing(T, 0)), (0, handing(U, 1)), (0, delta("a", 2))],
        [("begin", 1, Subtask("t")), ("begin", 2, Subtask("u")), (0, "a", C)],
    ),
    (
        "no more of them than allowed, and none without a task",
        [(0, handing("{", 0)), (0, handing(T, 1)), (0, handing(U, 2)), (0, done(1))],
        [
            ("begin", 1, Subtask("t")),
            beside(
                (0, "{", NO_TASK),
                (1, T, WORKING),
                (2, U, "Not begun: one answer may have 2 sub-tasks."),
            ),
        ],
    ),
    (
        "none could begin: it closes at once",
        [(0, handing("{}", 0)), (0, done(1)), (1, delta("c")), (1, done(1))],
        [closing((0, "{}", NO_TASK), branch=1), (0, "c", A), (STOP, 2, 0)],
    ),
    (
        "a sub-task fails: the fast engine is in_short",
        [
            (0, handing(T)),
            (0, done(1)),
            (SUB, delta("x")),
            (SUB, failed()),
            (BESIDE, done(0)),
            (LAST, delta("c")),
            (LAST, done(1)),
        ],
        [
            ("begin", SUB, Subtask("t")),
            beside((0, T, WORKING)),
            closing((0, T, "The sub-task failed: it broke. Before that, it said:\n\nx")),
            (0, "c", A),
            (STOP, 3, 1),
        ],
    ),
    (
        "two sub-tasks: the first to speak streams, the other follows whole",
        [
            (0, handing(T, 0)),
            (0, handing(U, 1)),
            (0, done(1)),
            (3, done(0)),
            (2, delta("y")),
            (1, delta("x")),
            (1, done(1)),
            (2, delta("Y")),
            (2, done(2)),
        ],
        [
            ("begin", 1, Subtask("t")),
            ("begin", 2, Subtask("u")),
            beside((0, T, WORKING), (1, U, WORKING), branch=3),
            (0, "y", C),
            (0, "Y", C),
            (1, "x", C),
            closing((0, T, "x"), (1, U, "yY"), branch=4),
        ],
    ),
    (
        "the fast engine falls silent beside it",
        [
            (0, handing(T)),
            (0, done(1)),
            (SUB, delta("x")),
            WAKE,
            (BESIDE, delta("late")),
            (SUB, done(1)),
            (LAST, delta("z")),
            (LAST, done(1)),
        ],
        [
            ("begin", SUB, Subtask("t")),
            beside((0, T, WORKING)),
            ("cancel", BESIDE),
            (0, "x", C),
            closing((0, T, "x")),
            (1, "z", A),
            (STOP, 3, 0),
        ],
    ),
    (
        "in the end it calls the tool once more and says nothing: the sub-task is the answer",
        [
            (0, handing(T)),
            (0, done(1)),
            (BESIDE, done(0)),
            (SUB, delta("x")),
            (SUB, done(1)),
            (LAST, handing(T)),
            (LAST, done(1)),
        ],
        [
            ("begin", SUB, Subtask("t")),
            beside((0, T, WORKING)),
            (0, "x", C),
            closing((0, T, "x")),
            (1, "x", A),
            (STOP, 3, 0),
        ],
    ),
    (
        "the fast engine fails unheard: the deep one answers",
        [(0, failed("fast")), (1, delta("x")), (1, done(1))],
        [("begin", 1, WholeAnswer()), (0, "x", A), (STOP, 2, 1)],
    ),
    (
        "it fails behind its call: sub-tasks end with it, and deep answers",
        [
            (0, delta("a")),
            (0, handing(T, 1)),
            (0, delta("b", 2)),
            (0, failed("fast")),
            (2, delta("z")),
            (2, done(1)),
        ],
        [
            (0, "a", C),
            ("begin", 1, Subtask("t")),
            (1, "b", C),
            ("cancel", 1),
            ("begin", 2, WholeAnswer()),
            (2, "z", A),
            (STOP, 2, 1),
        ],
    ),
    (
        "it fails unheard at the close: what came of the sub-task stands",
        [
            (0, handing(T)),
            (0, done(1)),
            (BESIDE, failed("fast")),
            (SUB, delta("x")),
            (SUB, done(1)),
            (LAST, failed("fast")),
        ],
        [
            ("begin", SUB, Subtask("t")),
            beside((0, T, WORKING)),
            (0, "x", C),
            closing((0, T, "x")),
            (1, "x", A),
            (STOP, 4, 2),
        ],
    ),
    (
        "a call of the client's own tool ends the response once the sub-task is done",
        [
            (0, handing(T)),
            (0, delta("{}", 1, CALL)),
            (0, done(2)),
            (1, delta("x")),
            (1, done(1)),
        ],
        [("begin", 1, Subtask("t")), (0, "{}", A), (1, "x", C), (STOP, 3, 0)],
    ),
    (
        "an opening that says nothing at all: the deep one answers",
        [WAKE, WAKE, (1, delta("x")), (1, done(1))],
        [("cancel", 0), ("begin", 1, WholeAnswer()), (0, "x", A), (STOP, 1, 0)],
    ),
    (
        "a closing that says nothing: what the sub-task said is the answer",
        [
            (0, handing(T)),
            (0, done(1)),
            (BESIDE, done(1)),
            (SUB, delta("x")),
            (SUB, done(1)),
            WAKE,
            WAKE,
        ],
        [
            ("begin", SUB, Subtask("t")),
            beside((0, T, WORKING)),
            (0, "x", C),
            closing((0, T, "x")),
            ("cancel", LAST),
            (1, "x", A),
            (STOP, 3, 0),
        ],
    ),
    (
        "and without that the deep one answers",
        [
            (0, handing(T)),
            (0, done(1)),
            (BESIDE, done(1)),
            (SUB, failed()),
            (LAST, failed("fast")),
            (4, delta("x")),
            (4, done(1)),
        ],
        [
            ("begin", SUB, Subtask("t")),
            beside((0, T, WORKING)),
            closing((0, T, "The sub-task failed: it broke.")),
            ("begin", 4, WholeAnswer()),
            (0, "x", A),
            (STOP, 5, 2),
        ],
    ),
    (
        "both fail",
        [(0, failed("fast")), (1, failed())],
        [("begin", 1, WholeAnswer()), (ERROR, 2, 2)],
    ),
]


@pytest.mark.parametrize("row", [row[0] for row in ROWS])
def test_rows(row: str) -> None:
    ((_, events, expected),) = (found for found in ROWS if found[0] == row)
    opening: list[object] = [("begin", 0, Converse("opening"))]
    assert in_short(play(Delegate(2), events)) == opening + expected


def handed_over() -> Delegate:
    """Returns one sub-task under way, with the fast engine silent, and one word of it said."""
    machine = Delegate(2)
    play(machine, [(0, handing(T)), (0, done(1)), (BESIDE, done(0)), (SUB, delta("x"))])
    return machine


def test_a_client_steers_one_sub_task() -> None:
    machine = handed_over()
    steer = measure(Message("user", (TextPart("Shorter."),)))
    said = (Message("assistant", (TextPart("x"),)), steer.item)
    assert in_short(machine.redirect(1, (steer,))) == [
        ("cancel", SUB),
        ("begin", 3, Subtask("t", said)),
    ]
    assert machine.on_delta(SUB, delta("tail")) == [], "nothing of what was abandoned is heard"
    assert in_short(machine.on_delta(3, delta("y"))) == [(1, "y", C)]
    assert in_short(machine.on_finish(3, done(1), 1)) == [closing((0, T, "x\n\ny"), branch=4)]
    assert machine.redirect(1, (steer,)) == [], "it is over"


def test_sub_tasks_are_done_without_and_rounds_are_not() -> None:
    machine = handed_over()
    assert [machine.does_without(branch) for branch in range(3)] == [False, True, False]
    machine.redirect(1, None)
    assert not machine.does_without(SUB), "it is over"


def test_a_client_cancels_one_sub_task() -> None:
    machine = handed_over()
    note = "The user cancelled this sub-task. Before that, it said:\n\nx"
    assert in_short(machine.redirect(1, None)) == [("cancel", SUB), closing((0, T, note))]
    assert [d.state for d in machine.delegations] == ["cancelled"]
    assert machine.redirect(1, None) == machine.redirect(9, None) == []
    assert in_short(machine.on_delta(LAST, delta("z"))) == [(1, "z", A)]
    assert in_short(machine.on_finish(LAST, done(1), 1)) == [(STOP, 2, 0)]


def test_the_tool_is_not_offered_where_the_client_forces_or_forbids_calls() -> None:
    request = GenerateRequest(
        id="resp_1", model="auto", items=(), num_prompt_tokens=0, prefix=(), max_output_tokens=1
    )
    parts: dict[str, object] = {
        "auto": Converse("opening"),
        "none": WholeAnswer(),
        "required": WholeAnswer(),
    }
    for mode, part in parts.items():
        choice = msgspec.structs.replace(request, tool_choice=ToolChoice(mode))  # type: ignore[arg-type]
        start = machine_of("delegate", choice).start(0)
        assert in_short(start) == [("begin", 0, part)]


def test_a_tool_of_the_clients_with_the_same_name_is_the_clients() -> None:
    request = GenerateRequest(
        id="resp_1",
        model="auto",
        items=(),
        num_prompt_tokens=0,
        prefix=(),
        max_output_tokens=1,
        tools=(DELEGATE,),
    )
    machine = machine_of("delegate", request)
    events: list[Event] = [(0, handing('{"task":"Prove it."}')), (0, done(1))]
    assert in_short(play(machine, events)) == [
        ("begin", 0, WholeAnswer()),
        (0, '{"task":"Prove it."}', A),
        (STOP, 1, 0),
    ]
