"""Tests strategies: order, phases, begins, cancels, degrading, and rules that hold for all."""

import random
from collections.abc import Callable

import msgspec
import pytest

from backends.contract import FinishReason
from router.strategies.actions import (
    DEEP,
    FAST,
    CancelBranch,
    EndRun,
    Forward,
    StartBranch,
    WakeAt,
)
from router.strategies.breadth import Breadth, Judge, Vary
from router.strategies.delegate import Delegate
from router.strategies.hedge import Hedge
from router.strategies.items import joined
from router.strategies.machine import PATIENCE_US, WAITED_FOR_US, Machine
from router.strategies.part_requests import WholeAnswer
from router.strategies.table import STRATEGIES as RECORDS
from router.strategies.tool_rounds import Converse
from tests.unit.router.strategies.plays import (
    CALL,
    ERROR,
    REASONING,
    REQUEST,
    STOP,
    TEXT,
    WAKE,
    A,
    C,
    Event,
    Row,
    check_forwards,
    delta,
    done,
    failed,
    in_short,
    machine_of,
    play,
    play_at_random,
)

HEDGE_ROWS: list[Row] = [
    (
        "deep begins in time: fast is never asked",
        [(DEEP, delta("x")), WAKE, (DEEP, delta("y")), (DEEP, done(2))],
        [(0, "x", A), (0, "y", A), (STOP, 2, 0)],
    ),
    (
        "deep is late: fast joins, and its first words win",
        [WAKE, (FAST, delta("a")), (DEEP, delta("x")), (FAST, delta("b")), (FAST, done(2))],
        [("begin", FAST, WholeAnswer()), ("cancel", DEEP), (0, "ab", A), (STOP, 2, 0)],
    ),
    (
        "the other is kept until the winner leads",
        [WAKE, (FAST, delta("a")), (FAST, delta("bcdefgh")), (FAST, delta("i")), (FAST, done(9))],
        [("begin", FAST, WholeAnswer()), ("cancel", DEEP), (0, "abcdefghi", A), (STOP, 9, 0)],
    ),
    (
        "deep is late, but first all the same",
        [WAKE, (DEEP, delta("x")), (FAST, delta("a")), (FAST, done(1)), (DEEP, done(3))],
        [("begin", FAST, WholeAnswer()), (0, "x", A), (STOP, 4, 0)],
    ),
    (
        "what deep reasons is shown, and is no words",
        [
            (DEEP, delta("hm", 0, REASONING)),
            WAKE,
            (FAST, delta("so", 0, REASONING)),
            (DEEP, delta("hm", 0, REASONING)),
            (FAST, delta("a", 1)),
            (FAST, done(2)),
        ],
        [
            (0, "hm", A),
            ("begin", FAST, WholeAnswer()),
            (0, "hm", A),
            ("cancel", DEEP),
            (1, "so", A),
            (2, "a", A),
            (STOP, 2, 0),
        ],
    ),
    (
        "who breaks off before it leads gives way to the other unseen",
        [WAKE, (FAST, delta("a")), (DEEP, delta("x")), (FAST, failed("fast")), (DEEP, done(1))],
        [("begin", FAST, WholeAnswer()), (0, "x", A), (STOP, 2, 1)],
    ),
    (
        "and so it does where that one has ended",
        [WAKE, (DEEP, delta("x")), (FAST, delta("a")), (FAST, done(1)), (DEEP, failed())],
        [("begin", FAST, WholeAnswer()), (0, "a", A), (STOP, 2, 1)],
    ),
    (
        "and where that one has said nothing yet",
        [WAKE, (FAST, delta("a")), (FAST, failed("fast")), (DEEP, delta("x")), (DEEP, done(1))],
        [("begin", FAST, WholeAnswer()), (0, "x", A), (STOP, 2, 1)],
    ),
    (
        "or the other way round",
        [WAKE, (DEEP, delta("x")), (DEEP, failed()), (FAST, delta("a")), (FAST, done(1))],
        [("begin", FAST, WholeAnswer()), (0, "a", A), (STOP, 2, 1)],
    ),
    (
        "behind its lead there is no other",
        [WAKE, (DEEP, delta("x")), (DEEP, delta("yyyyyyyy")), (DEEP, failed())],
        [
            ("begin", FAST, WholeAnswer()),
            ("cancel", FAST),
            (0, "xyyyyyyyy", A),
            (ERROR, 1, 1),
        ],
    ),
    (
        "who stalls before it leads gives way, too",
        [WAKE, (DEEP, delta("x")), (FAST, delta("a")), (DEEP, "stall"), (FAST, done(1))],
        [("begin", FAST, WholeAnswer()), ("cancel", DEEP), (0, "a", A), (STOP, 1, 0)],
    ),
    (
        "deep fails before the time: fast joins at once, and only once",
        [(DEEP, failed()), WAKE, (FAST, delta("a")), (FAST, done(1))],
        [("begin", FAST, WholeAnswer()), (0, "a", A), (STOP, 2, 1)],
    ),
    (
        "deep fails after fast joined: fast is alone",
        [WAKE, (DEEP, failed()), (FAST, delta("a")), (FAST, done(1))],
        [("begin", FAST, WholeAnswer()), (0, "a", A), (STOP, 2, 1)],
    ),
    (
        "fast joins and fails: deep is alone",
        [WAKE, (FAST, failed("fast")), (DEEP, delta("x")), (DEEP, done(1))],
        [("begin", FAST, WholeAnswer()), (0, "x", A), (STOP, 2, 1)],
    ),
    (
        "both fail",
        [(DEEP, failed()), (FAST, failed("fast"))],
        [("begin", FAST, WholeAnswer()), (ERROR, 2, 2)],
    ),
    (
        "the answer breaks off in the middle",
        [(DEEP, delta("x")), (DEEP, failed())],
        [(0, "x", A), (ERROR, 1, 1)],
    ),
    (
        "an empty answer is an answer",
        [WAKE, (DEEP, done(0))],
        [("begin", FAST, WholeAnswer()), ("cancel", FAST), (STOP, 0, 0)],
    ),
]

JUDGE = 3  # the branch behind three variations
BREADTH_ROWS: list[Row] = [
    (
        "the first to speak streams, the others follow as they ended, then the judge",
        [
            (1, delta("b")),
            (0, delta("a")),
            (2, delta("c")),
            (2, delta("c")),
            (2, done(2)),
            (0, delta("a")),
            (1, delta("b")),
            (0, done(2)),
            (1, done(2)),
            (JUDGE, delta("j")),
            (JUDGE, done(1)),
        ],
        [
            (0, "b", C),
            (0, "b", C),
            (1, "cc", C),
            (2, "aa", C),
            ("begin", JUDGE, Judge(("aa", "bb", "cc"))),
            (3, "j", A),
            (STOP, 7, 0),
        ],
    ),
    (
        "after the speaker one that is under way streams on",
        [
            (0, delta("a")),
            (1, delta("b")),
            (0, done(1)),
            (1, delta("B")),
            (2, failed("fast")),
            (1, done(2)),
            (JUDGE, done(0)),
        ],
        [
            (0, "a", C),
            (1, "b", C),
            (1, "B", C),
            ("begin", JUDGE, Judge(("a", "bB"))),
            (STOP, 4, 1),
        ],
    ),
    (
        "one that fails in the middle is not judged, seen or not",
        [
            (0, delta("a")),
            (1, delta("b")),
            (1, failed("fast")),
            (0, failed("fast")),
            (2, delta("c")),
            (2, done(1)),
            (JUDGE, delta("j")),
            (JUDGE, done(1)),
        ],
        [
            (0, "a", C),
            (1, "c", C),
            ("begin", JUDGE, Judge(("c",))),
            (2, "j", A),
            (STOP, 4, 2),
        ],
    ),
    (
        "all fail: deep answers by itself",
        [(0, failed("fast")), (1, failed("fast")), (2, failed("fast")), (JUDGE, done(1))],
        [("begin", JUDGE, WholeAnswer()), (STOP, 4, 3)],
    ),
    (
        "one hangs: given up once all are silent",
        [(0, delta("a")), (1, delta("b")), (1, done(1)), (2, done(0)), WAKE, WAKE, (0, done(9))],
        [(0, "a", C), ("cancel", 0), (1, "b", C), ("begin", JUDGE, Judge(("b",)))],
    ),
    (
        "all hang",
        [WAKE, (JUDGE, done(1))],
        [
            ("cancel", 0),
            ("cancel", 1),
            ("cancel", 2),
            ("begin", JUDGE, WholeAnswer()),
            (STOP, 1, 0),
        ],
    ),
    (
        "the judge fails unheard: the first whole variation is the answer",
        [(0, delta("a")), (0, done(1)), (1, done(0)), (2, done(0)), (JUDGE, failed())],
        [(0, "a", C), ("begin", JUDGE, Judge(("a",))), (1, "a", A), (STOP, 2, 1)],
    ),
    (
        "the judge only reasons and fails: so it is, too",
        [
            (0, delta("a")),
            (0, done(1)),
            (1, done(0)),
            (2, done(0)),
            (JUDGE, delta("hm", 0, REASONING)),
            (JUDGE, failed()),
        ],
        [(0, "a", C), ("begin", JUDGE, Judge(("a",))), (1, "hm", A), (2, "a", A), (STOP, 2, 1)],
    ),
    (
        "the judge breaks off",
        [
            (0, delta("a")),
            (0, done(1)),
            (1, done(0)),
            (2, done(0)),
            (JUDGE, delta("j")),
            (JUDGE, failed()),
        ],
        [(0, "a", C), ("begin", JUDGE, Judge(("a",))), (1, "j", A), (ERROR, 2, 1)],
    ),
    (
        "variations call no tools, the judge may",
        [
            (0, delta("{}", 0, CALL)),
            (0, done(1)),
            (1, delta("b")),
            (1, done(1)),
            (2, done(0)),
            (JUDGE, delta("{}", 0, CALL)),
            (JUDGE, done(1)),
        ],
        [(0, "b", C), ("begin", JUDGE, Judge(("b",))), (1, "{}", A), (STOP, 3, 0)],
    ),
]

UNJUDGED_ROWS: list[Row] = [
    (
        "each is a final answer",
        [(0, delta("a")), (1, delta("b")), (1, done(1)), (0, done(1)), (2, failed("fast"))],
        [(0, "a", A), (1, "b", A), (STOP, 3, 1)],
    ),
    (
        "where one is cut the response is",
        [
            (0, delta("a")),
            (0, done(1)),
            (1, delta("b")),
            (1, done(1, FinishReason.LENGTH)),
            (2, failed("fast")),
        ],
        [(0, "a", A), (1, "b", A), (FinishReason.LENGTH, 3, 1)],
    ),
    (
        "all fail: deep answers after all",
        [(0, failed("fast")), (1, failed("fast")), (2, failed("fast")), (JUDGE, failed())],
        [("begin", JUDGE, WholeAnswer()), (ERROR, 4, 4)],
    ),
]

VARIATIONS: list[object] = [("begin", number, Vary(number)) for number in range(3)]
SHARING: list[object] = [("begin", number, Vary(number, 3)) for number in range(3)]

# how a strategy is made, what it begins with, its rows
STRATEGIES: dict[str, tuple[Callable[[], Machine], list[object], list[Row]]] = {
    "hedge": (lambda: Hedge(1_000), [("begin", DEEP, WholeAnswer())], HEDGE_ROWS),
    "breadth": (lambda: Breadth(3, judged=True), VARIATIONS, BREADTH_ROWS),
    "delegate": (lambda: Delegate(2), [("begin", 0, Converse("opening"))], []),
    "unjudged": (lambda: Breadth(3, judged=False), SHARING, UNJUDGED_ROWS),
}
ROWS = [(name, row[0]) for name, (_, _, rows) in STRATEGIES.items() for row in rows]


@pytest.mark.parametrize(("strategy", "row"), ROWS)
def test_rows(strategy: str, row: str) -> None:
    make, start, rows = STRATEGIES[strategy]
    ((_, events, expected),) = (found for found in rows if found[0] == row)
    assert in_short(play(make(), events)) == start + expected


@pytest.mark.parametrize(
    ("make", "branches"),
    [
        (lambda: Hedge(1_000), [DEEP]),
        (lambda: Breadth(2, judged=True), [0, 1, 2]),
        (lambda: Breadth(2, judged=False), [0, 1]),
        (lambda: Delegate(2), [0]),
    ],
)
def test_the_stop_sequence_that_ended_the_answer_is_told(
    make: Callable[[], Machine], branches: list[int]
) -> None:
    ended = msgspec.structs.replace(done(), stop_sequence="END")
    events: list[Event] = []
    for branch in branches:
        events += [(branch, delta("a")), (branch, ended)]
    end = play(make(), events)[-1]
    assert isinstance(end, EndRun)
    assert end.finish.stop_sequence == "END"


def test_single_passes_everything_through_untouched() -> None:
    machine = machine_of(None, REQUEST)
    piece = delta("a", 3, CALL)
    (forwarded,) = machine.on_delta(0, piece)
    assert isinstance(forwarded, Forward)
    assert forwarded.delta is piece
    assert forwarded.phase is None
    (end,) = machine.on_finish(0, failed(), 1)
    assert isinstance(end, EndRun)
    assert end.finish.error is end.errors[0]


@pytest.mark.parametrize(("judged", "number"), [(False, 3), (True, 4)])
def test_each_of_several_final_answers_has_a_token_of_the_limit(judged: bool, number: int) -> None:
    short = msgspec.structs.replace(REQUEST, max_output_tokens=3)
    breadth = machine_of("breadth", short, num_variations=4, judged=judged)
    assert len(in_short(breadth.start(0))) == number


def test_options_reach_their_strategy() -> None:
    assert WakeAt(1_000 + 7_000) in machine_of("hedge", REQUEST, hedge_after_ms=7).start(1_000)
    long = msgspec.structs.replace(REQUEST, max_output_tokens=40)
    breadth = machine_of("breadth", long, num_variations=4, judged=False)
    assert len(in_short(breadth.start(0))) == 4
    for number in range(4):
        breadth.on_delta(number, delta("a"))
    ends = [breadth.on_finish(number, done(), 1) for number in range(4)]
    assert isinstance(ends[-1][-1], EndRun), "nobody judges"


def test_helpers_that_speak_are_waited_for() -> None:
    machine = STRATEGIES["breadth"][0]()
    assert machine.start(5)[-1] == WakeAt(5 + WAITED_FOR_US), "for a first word"
    for at_us in (7, PATIENCE_US, 2 * PATIENCE_US - 1):
        machine.on_delta(FAST, delta("a", at_us=at_us))
        assert machine.on_time(at_us + 5) == [WakeAt(at_us + PATIENCE_US)], "from the last word"
    assert CancelBranch(FAST, is_silent=True) in machine.on_time(3 * PATIENCE_US - 1)


def test_variations_that_are_the_answer_have_more_time() -> None:
    assert Breadth(3, judged=False).start(5)[-1] == WakeAt(5 + PATIENCE_US)


def test_an_answer_waits_a_second_for_a_silent_helper() -> None:
    breadth = Breadth(3, judged=True)
    breadth.start(0)
    breadth.on_delta(0, delta("a", at_us=1_000))
    assert breadth.on_finish(0, done(), 1)[-1] == WakeAt(1_000 + WAITED_FOR_US)
    actions = breadth.on_time(1_000 + WAITED_FOR_US)
    assert actions == [
        CancelBranch(1, is_silent=True),
        CancelBranch(2, is_silent=True),
        StartBranch(3, DEEP, Judge(("a",))),
    ]


def test_variations_that_wait_for_their_pools_are_not_silent() -> None:
    """They are given up when they have been silent for a whole look after they began."""
    breadth = Breadth(3, judged=True)
    breadth.start(0)
    looks = [WAITED_FOR_US * number for number in range(1, 6)]
    first = breadth.on_time(looks[0], frozenset({1, 2}))
    assert first == [CancelBranch(0, is_silent=True), WakeAt(looks[1])]
    assert breadth.on_time(looks[1], frozenset({2})) == [WakeAt(looks[2])], "1 has just begun"
    assert breadth.on_time(looks[2], frozenset({2})) == [
        CancelBranch(1, is_silent=True),
        WakeAt(looks[3]),
    ]
    assert breadth.on_time(looks[3]) == [WakeAt(looks[4])]
    breadth.on_delta(2, delta("a"))
    assert breadth.on_finish(2, done(), 5) == [StartBranch(3, DEEP, Judge(("a",)))]


def test_joined_keeps_text_tokens_and_last_time() -> None:
    pieces = [delta("ab", 0, TEXT, 5), delta("c", 0, TEXT, 7), delta("d", 2, CALL, 9)]
    assert joined(pieces) == [delta("abc", 0, TEXT, 7), delta("d", 2, CALL, 9)]
    assert joined([]) == []


@pytest.mark.parametrize("strategy", dict.fromkeys([*STRATEGIES, *RECORDS]))
def test_rules_hold_for_any_interleaving(strategy: str) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    make = (
        STRATEGIES[strategy][0] if strategy in STRATEGIES else lambda: machine_of(strategy, REQUEST)
    )
    for _ in range(1_000):
        actions = play_at_random(make(), chance)
        ends = [number for number, action in enumerate(actions) if isinstance(action, EndRun)]
        assert len(ends) == 1
        assert all(isinstance(action, WakeAt) for action in actions[ends[0] + 1 :])
        forwards = [a for a in actions if isinstance(a, Forward)]
        check_forwards(forwards)
