"""Tests `verify`: what goes out, when the others are asked, and what is charged."""

from typing import Any

import msgspec
import pytest

from backends.contract import Delta, FinishReason, FunctionTool, GenerateRequest, TextFormat, Usage
from router.strategies.actions import FAST, StartBranch
from router.strategies.machine import Machine
from router.strategies.part_requests import WholeAnswer
from router.strategies.verify import RECORD, AskVerdict, OneOfMany, VerifyOptions
from tests.unit.router.strategies.plays import (
    CALL,
    LENGTH,
    REASONING,
    REQUEST,
    STOP,
    WAKE,
    A,
    Event,
    delta,
    done,
    failed,
    in_short,
    play,
)

JSON = msgspec.structs.replace(REQUEST, text_format=TextFormat("json_object"))
VERDICT, DEEP = 3, 4  # branches
STARTS = [("begin", number, OneOfMany(number)) for number in range(3)]
WHOLE = ("begin", DEEP, WholeAnswer())


def weighed(
    p_gain: float, request: GenerateRequest = REQUEST, fast_price: float = 0.0, **options: Any
) -> Machine:
    assert RECORD.weighed is not None
    made = RECORD.weighed(VerifyOptions(**options), p_gain, 0.25, fast_price)
    return RECORD.machine(made, request)


def said(branch: int, text: str) -> list[Event]:
    return [(branch, delta(text)), (branch, done(branch + 1))]


def played(machine: Machine, *events: list[Event]) -> list[object]:
    return in_short(play(machine, [event for some in events for event in some]))[3:]


def test_nothing_is_shown_before_it_is_accepted_and_then_all_at_once() -> None:
    machine = weighed(0.05)
    held: list[Event] = [(0, delta("4")), (1, delta("4")), (2, delta("5"))]
    assert played(machine, held, [(0, delta(".")), (0, done(1))]) == []
    assert machine.explanation == ""
    assert in_short(machine.on_finish(1, done(2), 1)) == [
        ("cancel", 2),
        (0, "4.", A),
        (STOP, 3, 0),
    ]
    assert "1 of 1 others agree" in machine.explanation
    assert machine.explanation.endswith("accepted.")


def test_the_answer_that_most_agree_with_goes_out() -> None:
    actions = played(weighed(0.2, asks_verdict=False), said(0, "5"), said(2, "4"), said(1, "4"))
    assert actions == [(0, "4", A), (STOP, 6, 0)]


def test_answers_that_differ_go_deep_which_streams() -> None:
    machine = weighed(0.4)
    deep: list[Event] = [(DEEP, delta("7"))]
    assert played(machine, said(0, "4"), said(1, "5"), said(2, "6"), deep) == [WHOLE, (0, "7", A)]
    assert in_short(machine.on_finish(DEEP, done(9), 2)) == [(STOP, 15, 0)]
    assert "0 of 2 others agree" in machine.explanation
    assert machine.explanation.endswith("went to deep.")


def test_a_task_that_no_agreement_can_save_any_more_goes_deep_at_once() -> None:
    actions = played(weighed(0.6), said(0, "4"), said(1, "5"))
    assert actions == [("cancel", 2), WHOLE]


def test_a_task_that_no_check_could_save_asks_no_fast_engine() -> None:
    machine = weighed(0.95)
    assert in_short(machine.start(0)) == [WHOLE]
    assert "could have accepted it" in machine.explanation
    assert in_short(machine.on_delta(DEEP, delta("x"))) == [(0, "x", A)]
    assert in_short(machine.on_finish(DEEP, done(3), 1)) == [(STOP, 3, 0)]


def test_a_task_that_no_check_could_condemn_asks_one_fast_engine() -> None:
    machine = weighed(0.01)
    assert in_short(machine.start(0)) == STARTS[:1]
    assert machine.on_delta(0, delta("4")) == [], "a certain fault could still be found"
    assert in_short(machine.on_finish(0, done(1), 1)) == [(0, "4", A), (STOP, 1, 0)]


@pytest.mark.parametrize(
    ("words", "accepted"),
    [(["yes"], True), ([" Y", "es."], True), (["**No**"], False), (["perhaps"], None)],
)
def test_where_it_is_open_deep_gives_a_verdict_of_one_word(
    words: list[str], accepted: bool | None
) -> None:
    machine = weighed(0.25)
    verdict: list[Event] = [(VERDICT, delta(word)) for word in words]
    actions = played(machine, said(0, "4"), said(1, "4"), said(2, "6"), verdict)
    assert actions[0] == ("begin", VERDICT, AskVerdict("4"))
    if accepted is None:
        assert actions[1:] == []
        assert in_short(machine.on_finish(VERDICT, done(16, LENGTH), 3)) == [WHOLE]
    elif accepted:
        assert actions[1:] == [("cancel", VERDICT), (0, "4", A), (STOP, 6, 0)]
        assert "deep said yes" in machine.explanation
    else:
        assert actions[1:] == [("cancel", VERDICT), WHOLE]


def test_a_verdict_that_fails_leaves_the_other_evidence() -> None:
    three = [*said(0, "4"), *said(1, "4"), *said(2, "4")]
    actions = played(weighed(0.3), three, [(VERDICT, failed())])
    assert actions[1:] == [(0, "4", A), (STOP, 7, 1)]


def test_a_verdict_that_is_silent_is_given_up() -> None:
    three = [*said(0, "4"), *said(1, "4"), *said(2, "6")]
    actions = played(weighed(0.25), three, [WAKE, WAKE])
    assert actions[1:] == [("cancel", VERDICT), WHOLE]


def test_an_answer_with_a_fault_never_goes_out() -> None:
    machine = weighed(0.05, JSON)
    broken = [*said(0, "{"), *said(1, "{"), *said(2, "{")]
    assert played(machine, broken) == [WHOLE]
    assert in_short(machine.on_finish(DEEP, failed(), 2)) == [(FinishReason.ERROR, 7, 1)]
    assert "it is no JSON" in machine.explanation
    whole = [*said(0, "{"), *said(1, "{}"), *said(2, "{}")]
    assert played(weighed(0.05, JSON), whole) == [(0, "{}", A), (STOP, 6, 0)]
    machine = weighed(0.01, JSON)
    assert in_short(play(machine, said(0, "{")))[1:] == [WHOLE], "even the only one"


def test_the_clients_pattern_decides_what_may_go_out() -> None:
    machine = weighed(0.05, accept="[ABCD]")
    actions = played(machine, said(0, "It is B."), said(2, "C"), said(1, "C"))
    assert actions == [(0, "C", A), (STOP, 6, 0)]


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        ('{"a":1}', [(0, '{"a": 1}', A), (STOP, 2, 0)]),
        ('{"a":2}', [("begin", 3, WholeAnswer())]),
    ],
)
def test_calls_are_compared_but_not_judged_by_words(second: str, expected: list[object]) -> None:
    request = msgspec.structs.replace(REQUEST, tools=(FunctionTool("f"),))
    machine = weighed(0.25, request, num_answers=2)
    texts = ['{"a": 1}', second]
    calls = [Delta(0, CALL, text, 1, 1, "call_1", "f") for text in texts]
    events: list[Event] = [(0, calls[0]), (1, calls[1]), (0, done(1)), (1, done(1))]
    assert in_short(play(machine, events))[2:] == expected


def test_those_that_are_late_or_fail_are_left_out() -> None:
    machine = weighed(0.24, asks_verdict=False)
    actions = played(machine, said(1, "4"), [WAKE])
    assert actions == [("cancel", 0), ("cancel", 2), (0, "4", A), (STOP, 2, 0)]
    actions = played(
        weighed(0.24, asks_verdict=False), said(1, "4"), [(0, failed()), (2, failed())]
    )
    assert actions == [(0, "4", A), (STOP, 4, 2)]


def test_without_any_answer_deep_answers() -> None:
    assert played(weighed(0.1), [(n, failed()) for n in range(3)]) == [WHOLE]
    silent = [("cancel", number) for number in range(3)]
    assert played(weighed(0.1), [WAKE]) == [*silent, WHOLE]


def test_if_deep_has_no_word_the_best_fast_answer_stands() -> None:
    events = [*said(0, "4"), *said(1, "5"), *said(2, "5")]
    actions = played(weighed(0.6), events[:2], [(DEEP, failed())])
    assert actions[-2:] == [(0, "4", A), (STOP, 2, 1)]
    reasoned = [(DEEP, delta("hm", 0, REASONING)), (DEEP, failed())]
    assert played(weighed(0.6), events[:2], reasoned)[-2:] == [(1, "4", A), (STOP, 2, 1)]
    actions = played(weighed(0.6), events[:2], [(DEEP, delta("x")), (DEEP, failed())])
    assert actions[-1] == (FinishReason.ERROR, 2, 1), "what has begun is not passed off as an end"


def test_deep_is_done_without_where_a_fast_answer_stands() -> None:
    for events, stands in (([*said(0, "4"), *said(1, "5")], True), ([], False)):
        machine = weighed(0.6)
        played(machine, events, [(n, failed()) for n in range(3)], [WAKE])
        assert machine.does_without(DEEP) is stands
        assert not machine.does_without(0)


def test_every_generation_but_the_first_asks_the_pools_for_itself() -> None:
    actions = play(weighed(0.25), [*said(0, "4"), *said(1, "4"), *said(2, "6")])
    own = {a.branch: a.own_reservation for a in actions if isinstance(a, StartBranch)}
    assert own == {0: False, 1: True, 2: True, VERDICT: True}
    assert RECORD.usage(VerifyOptions(), Usage(1, 0, 2)) == {"fast": Usage(1, 0, 2)}


def test_the_verdict_reads_the_answer_and_may_say_little() -> None:
    request = AskVerdict("4").request(JSON)
    assert [type(entry.item).__name__ for entry in request.items] == ["Message", "Message"]
    assert [entry.item.role for entry in request.items] == ["assistant", "user"]  # type: ignore[union-attr]
    assert request.max_output_tokens <= 16
    assert request.text_format.type == "text"


@pytest.mark.parametrize(("fast_price", "num_answers"), [(0.01, 3), (0.07, 1), (0.2, 0)])
def test_it_asks_for_as_many_answers_as_they_are_worth(fast_price: float, num_answers: int) -> None:
    begun = weighed(0.2, fast_price=fast_price).start(0)
    asked = [each for each in begun if isinstance(each, StartBranch) and each.backend_index == FAST]
    assert len(asked) == num_answers
    assert num_answers or begun == [StartBranch(DEEP, 1, own_reservation=True)]
