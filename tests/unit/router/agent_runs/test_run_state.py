"""Tests how a run goes, item by item: what strains it, what eases it, what starts afresh."""

import pytest

from backends.contract import (
    ContextItem,
    CustomToolCall,
    CustomToolCallOutput,
    FunctionCall,
    FunctionCallOutput,
    Message,
    Role,
    TextPart,
)
from backends.prompt import measure
from router.agent_runs.run_state import (
    CALM_STEPS,
    MAX_ASKS,
    MAX_CALLS,
    MAX_FAILURES,
    MAX_SIGNS,
    MAX_STRAIN,
    NEW_RUN,
    STUCK,
    RunState,
    read,
)

FAIL = "E   AssertionError: 3 != 4\nFAILED tests/test_lock.py::test_order\n1 failed in 0.31s"
OTHER_FAIL = "E   KeyError: 'lock'\nFAILED tests/test_lock.py::test_keys\n1 failed in 0.42s"
PASS = "12 passed in 0.31s"
ASK = "Fix the deadlock in the lock manager"
Items = list[ContextItem]


def says(role: Role, text: str) -> Items:
    return [measure(Message(role, (TextPart(text),)))]


def call(output: str, command: str = "pytest -q") -> Items:
    call.number += 1  # type: ignore[attr-defined]
    call_id = f"call_{call.number}"  # type: ignore[attr-defined]
    made = FunctionCall(call_id, "shell", f'{{"command": "{command}"}}')
    result = FunctionCallOutput(call_id, (TextPart(output),))
    return [measure(made), measure(result)]


call.number = 0  # type: ignore[attr-defined]


def edit() -> Items:
    return call("Done.", f"sed -i s/a/b{call.number}/ lock.py")  # type: ignore[attr-defined]


ASKED = says("user", ASK)
ANSWERED = says("assistant", "Here is the patch.")

# why, items, strain, stuck
ROWS: list[tuple[str, Items, float, bool]] = [
    ("a first ask", ASKED, 0, False),
    ("one failure", ASKED + call(FAIL), 0.5, False),
    ("the same call fails again", ASKED + call(FAIL) + call(FAIL), 2.0, True),
    (
        "another call fails with the same error",
        ASKED + call(FAIL) + call(FAIL, "tox"),
        2.0,
        True,
    ),
    ("an edit changed nothing", ASKED + call(FAIL) + edit() + call(FAIL), 1.5, True),
    ("another failure is progress", ASKED + call(FAIL) + edit() + call(OTHER_FAIL), 0.5, False),
    ("tests pass after an edit", ASKED + call(FAIL) + edit() + call(PASS), 0, False),
    ("tests pass twice", ASKED + call(PASS) + call(PASS), 0, False),
    (
        "the same to the same end",
        ASKED + call("no page", "ask") + call("no page", "ask"),
        1.5,
        True,
    ),
    ("the same to another end", ASKED + call("page 1", "ask") + call("page 2", "ask"), 0, False),
    ("an edit came between", ASKED + call("7", "ask") + edit() + call("7", "ask"), 0, False),
    ("read again", ASKED + call("text", "cat a") + call("text", "cat a"), 0.75, False),
    (
        "and again",
        ASKED + call("text", "cat a") + call("text", "cat a") + call("text", "cat a"),
        1.5,
        True,
    ),
    ("a wait", ASKED + call("running", "sleep 9") + call("running", "sleep 9"), 0, False),
    ("an error flag", ASKED + call("Error: nothing", "frob"), 0.5, False),
    ("a complaint", ASKED + ANSWERED + says("user", "No, it is still broken here"), 1.5, True),
    ("the same ask", ASKED + ANSWERED + says("user", f"{ASK}!"), 1.5, True),
    ("a new ask", ASKED + call(FAIL) + ANSWERED + says("user", "Now add a changelog"), 0, False),
    ("an ask in two messages", ASKED + says("user", "It is still broken on Windows"), 0, False),
    ("go on", ASKED + call(FAIL) + ANSWERED + says("user", "Go on."), 0.5, False),
    ("go on, twice", ASKED + ANSWERED + 2 * (says("user", "go on") + ANSWERED), 0, False),
    ("a Chinese ask again", 2 * (says("user", "请修复锁管理器中的死锁") + ANSWERED), 1.5, True),
    ("without its call", ASKED + call(FAIL)[1:], 0.5, False),
]


@pytest.mark.parametrize(("why", "items", "strain", "stuck"), ROWS, ids=[row[0] for row in ROWS])
def test_strain(why: str, items: Items, strain: float, stuck: bool) -> None:
    run = read(NEW_RUN, items)
    assert (run.strain, run.stuck) == (strain, stuck), run.signs
    assert bool(run.signs) == (strain > 0)


@pytest.mark.parametrize(("why", "items", "strain", "stuck"), ROWS, ids=[row[0] for row in ROWS])
def test_it_does_not_matter_how_the_items_come(
    why: str, items: Items, strain: float, stuck: bool
) -> None:
    run = NEW_RUN
    for item in items:
        run = read(run, [item])
    assert run == read(NEW_RUN, items)


def test_custom_tools_are_read_as_functions_are() -> None:
    items = list(ASKED)
    for number in range(2):
        items.append(measure(CustomToolCall(f"c{number}", "exec", "pytest -q")))
        items.append(measure(CustomToolCallOutput(f"c{number}", (TextPart(FAIL),))))
    assert read(NEW_RUN, items).stuck


def test_what_was_stuck_stays_so_until_enough_has_gone_well() -> None:
    run = read(NEW_RUN, ASKED + call(FAIL) + call(FAIL))
    for _ in range(CALM_STEPS):
        assert run.stuck
        run = read(run, edit())
    assert (run.stuck, run.strain) == (False, 0), "once, and that is over"
    run = read(run, call(FAIL))
    assert run.stuck, "the same failure is no new one"
    for _ in range(2 * CALM_STEPS):
        assert run.stuck
        run = read(run, edit())
    assert not run.stuck, "twice as many the second time"


def test_a_run_goes_well_by_what_it_has_done() -> None:
    looked = read(NEW_RUN, ASKED + [item for n in range(9) for item in call("x", f"cat {n}")])
    assert (looked.calm_steps, looked.steady) == (9, False), "reading alone does nothing"
    edited = read(NEW_RUN, ASKED + edit() + edit() + call(PASS))
    assert (edited.num_edits, edited.tests_pass, edited.steady) == (2, True, True)
    assert not read(edited, call(FAIL)).steady
    assert read(edited, call(FAIL)).tests_pass is False


def test_a_new_ask_starts_afresh_and_a_complaint_remembers_that_it_was_stuck() -> None:
    stuck = read(NEW_RUN, ASKED + call(FAIL) + call(FAIL) + ANSWERED)
    fresh = read(stuck, says("user", "Write the release notes of it"))
    assert fresh == RunState(asks=(ASK, "Write the release notes of it"))
    assert read(stuck, says("user", "It still fails on my machine")).num_stuck == 2


def test_everything_is_bounded() -> None:
    run = NEW_RUN
    for number in range(100):
        run = read(run, says("user", f"Another ask of {number} and its words" * 200) + ANSWERED)
        run = read(run, call(f"E   Error: {number}", f"x {number}") + call(FAIL))
    assert len(run.asks) == MAX_ASKS
    assert max(map(len, run.asks)) <= 400
    for number in range(100):
        run = read(run, call(f"KeyError: {number * 'k'}", f"x {number}") + call(FAIL))
    assert len(run.calls) == MAX_CALLS
    assert len(run.failures) == MAX_FAILURES
    assert len(run.signs) <= MAX_SIGNS
    assert run.strain == MAX_STRAIN
    assert STUCK <= MAX_STRAIN


@pytest.mark.parametrize(
    ("answer", "is_complaint"),
    [("I renamed it in utils.py.", True), ("Shall I rename it in the tests, too?", False)],
)
def test_a_no_complains_where_nothing_was_asked(answer: str, is_complaint: bool) -> None:
    asked = [*says("user", ASK), *says("assistant", answer)]
    run = read(NEW_RUN, [*asked, *says("user", "Nope.")])
    assert (run.dissatisfied, run.stuck, run.goes_on) == (
        is_complaint,
        is_complaint,
        not is_complaint,
    )
    worked = [*asked, *call(PASS), *says("user", "Nope.")]
    assert read(NEW_RUN, worked).dissatisfied, "the question is behind it"


@pytest.mark.parametrize(
    ("ask", "wants_more", "gives_thanks"),
    [
        ("please continue with the next step", True, False),
        ("Thank you very much for the help!", False, True),
        ("why?", False, False),
    ],
)
def test_who_only_asks_for_more_goes_on_with_the_run(
    ask: str, wants_more: bool, gives_thanks: bool
) -> None:
    run = read(NEW_RUN, [*ASKED, *call(FAIL), *ANSWERED, *says("user", ask)])
    assert (run.goes_on, run.wants_more, run.gives_thanks) == (True, wants_more, gives_thanks)
    assert run.strain == 0.5, "what happened before still counts"
    again = read(run, [*ANSWERED, *says("user", ask)])
    assert not again.dissatisfied, "it may be said twice"
    assert read(again, [*ANSWERED, *says("user", ASK + " in the other service")]).goes_on is False
