"""Merging two backends' output: order, phases, cancelling, degrading, and the rules that hold."""

import random
from typing import Literal

import pytest

from backends.contract import BackendError, Delta, DeltaKind, Finish, FinishReason, Usage
from router.race import DEEP, FAST, Action, Brief, Cancel, End, Forward, Merge, Race, joined, merge

TEXT, REASONING, CALL = DeltaKind.TEXT, DeltaKind.REASONING, DeltaKind.FUNCTION_CALL


def delta(text: str, index: int = 0, kind: DeltaKind = TEXT, at_us: int = 1) -> Delta:
    return Delta(index, kind, text, len(text), at_us)


def done(tokens: int = 1, reason: FinishReason = FinishReason.STOP) -> Finish:
    return Finish(reason, Usage(num_input_tokens=10, num_output_tokens=tokens), 100 + tokens)


def failed(backend: str = "deep") -> Finish:
    error = BackendError(backend, "server_error", "it broke", retryable=True)
    return Finish(FinishReason.ERROR, Usage(num_output_tokens=1), 50, error)


Event = tuple[int, Delta | Finish]


def play(merging: Merge, events: list[Event]) -> list[Action]:
    actions: list[Action] = []
    for backend, event in events:
        if isinstance(event, Finish):
            actions += merging.on_finish(backend, event)
        else:
            actions += merging.on_delta(backend, event)
    return actions


def told(actions: list[Action]) -> list[object]:
    """Actions in short: (index, text, phase), ("cancel", b), (reason, output tokens, #errors)."""
    short: list[object] = []
    for action in actions:
        if isinstance(action, Forward):
            short.append((action.delta.index, action.delta.text, action.phase))
        elif isinstance(action, Cancel):
            short.append(("cancel", action.backend))
        else:
            usage = action.finish.usage
            short.append((action.finish.reason, usage.num_output_tokens, len(action.errors)))
    return short


C: Literal["commentary"] = "commentary"
A: Literal["final_answer"] = "final_answer"
STOP, LENGTH, ERROR = FinishReason.STOP, FinishReason.LENGTH, FinishReason.ERROR

BRIEF_ROWS: list[tuple[str, list[Event], list[object]]] = [
    (
        "fast first, then deep",
        [
            (FAST, delta("a")),
            (FAST, done(1)),
            (DEEP, delta("b")),
            (DEEP, delta("c")),
            (DEEP, done(2)),
        ],
        [(0, "a", C), (1, "b", A), (1, "c", A), (STOP, 3, 0)],
    ),
    (
        "deep deltas wait for the fast end and go out joined",
        [
            (FAST, delta("a")),
            (DEEP, delta("x")),
            (DEEP, delta("y")),
            (FAST, delta("b")),
            (FAST, done(2)),
            (DEEP, delta("z")),
            (DEEP, done(3)),
        ],
        [(0, "a", C), (0, "b", C), (1, "xy", A), (1, "z", A), (STOP, 5, 0)],
    ),
    (
        "deep complete before fast: the rest follows",
        [
            (FAST, delta("a")),
            (DEEP, delta("r", 0, REASONING)),
            (DEEP, delta("x", 1)),
            (DEEP, delta("f", 2, CALL)),
            (DEEP, done(3)),
            (FAST, delta("b")),
            (FAST, done(2)),
        ],
        [
            (0, "a", C),
            (0, "b", C),
            (1, "r", None),
            (2, "x", A),
            (3, "f", None),
            (STOP, 5, 0),
        ],
    ),
    (
        "deep complete before fast said anything: fast is cancelled",
        [(DEEP, delta("x")), (DEEP, done(1)), (FAST, delta("late")), (FAST, done(9))],
        [("cancel", FAST), (0, "x", A), (STOP, 1, 0)],
    ),
    (
        "fast fails at once: deep alone is the final answer",
        [(FAST, failed("fast")), (DEEP, delta("x")), (DEEP, done(1))],
        [(0, "x", A), (STOP, 2, 1)],
    ),
    (
        "fast fails in the middle: what was held follows",
        [(FAST, delta("a")), (DEEP, delta("x")), (FAST, failed("fast")), (DEEP, done(1))],
        [(0, "a", C), (1, "x", A), (STOP, 2, 1)],
    ),
    (
        "deep fails before fast speaks: fast is the final answer",
        [(DEEP, failed()), (FAST, delta("a")), (FAST, done(1))],
        [(0, "a", A), (STOP, 2, 1)],
    ),
    (
        "deep fails while fast speaks: the item keeps its phase, the next one is final",
        [
            (FAST, delta("a")),
            (DEEP, delta("x")),
            (DEEP, failed()),
            (FAST, delta("b")),
            (FAST, delta("c", 1)),
            (FAST, done(3, LENGTH)),
        ],
        [(0, "a", C), (0, "b", C), (1, "c", A), (LENGTH, 4, 1)],
    ),
    (
        "deep fails after fast ended, unheard: the commentary stands",
        [(FAST, delta("a")), (FAST, done(1)), (DEEP, failed())],
        [(0, "a", C), (STOP, 2, 1)],
    ),
    (
        "deep fails in the middle of its answer: the response fails",
        [(FAST, delta("a")), (FAST, done(1)), (DEEP, delta("x")), (DEEP, failed())],
        [(0, "a", C), (1, "x", A), (ERROR, 2, 1)],
    ),
    ("both fail", [(FAST, failed("fast")), (DEEP, failed())], [(ERROR, 2, 2)]),
    ("both fail, deep first", [(DEEP, failed()), (FAST, failed("fast"))], [(ERROR, 2, 2)]),
    (
        "commentary calls no tools",
        [(FAST, delta("a")), (FAST, delta("{}", 1, CALL)), (FAST, done(2)), (DEEP, done(1))],
        [(0, "a", C), (STOP, 3, 0)],
    ),
]

RACE_ROWS: list[tuple[str, list[Event], list[object]]] = [
    (
        "the first complete answer wins, whole",
        [
            (FAST, delta("a")),
            (DEEP, delta("x")),
            (FAST, delta("b")),
            (FAST, done(2)),
            (DEEP, delta("y")),
            (DEEP, done(9)),
        ],
        [("cancel", DEEP), (0, "ab", A), (STOP, 2, 0)],
    ),
    (
        "deep wins",
        [
            (FAST, delta("a")),
            (DEEP, delta("r", 0, REASONING)),
            (DEEP, delta("x", 1)),
            (DEEP, done()),
        ],
        [("cancel", FAST), (0, "r", None), (1, "x", A), (STOP, 1, 0)],
    ),
    (
        "one fails: the other streams from there",
        [
            (FAST, delta("a")),
            (DEEP, delta("x")),
            (FAST, failed("fast")),
            (DEEP, delta("y")),
            (DEEP, done(2)),
        ],
        [(0, "x", A), (0, "y", A), (STOP, 3, 1)],
    ),
    (
        "one fails, then the other",
        [(DEEP, failed()), (FAST, delta("a")), (FAST, failed("fast"))],
        [(0, "a", A), (ERROR, 2, 2)],
    ),
    ("an empty answer is an answer", [(FAST, done(0))], [("cancel", DEEP), (STOP, 0, 0)]),
]


@pytest.mark.parametrize(
    ("events", "expected"), [row[1:] for row in BRIEF_ROWS], ids=[row[0] for row in BRIEF_ROWS]
)
def test_brief(events: list[Event], expected: list[object]) -> None:
    assert told(play(Brief(), events)) == expected


@pytest.mark.parametrize(
    ("events", "expected"), [row[1:] for row in RACE_ROWS], ids=[row[0] for row in RACE_ROWS]
)
def test_race(events: list[Event], expected: list[object]) -> None:
    assert told(play(Race(), events)) == expected


def test_single_passes_everything_through_untouched() -> None:
    merging = merge(None)
    piece = delta("a", 3, CALL)
    (forwarded,) = merging.on_delta(0, piece)
    assert isinstance(forwarded, Forward)
    assert forwarded.delta is piece
    assert forwarded.phase is None
    (end,) = merging.on_finish(0, failed())
    assert isinstance(end, End)
    assert end.finish.error is end.errors[0]


def test_failure_of_both_reports_the_deep_error() -> None:
    end = play(merge("brief"), [(FAST, failed("fast")), (DEEP, failed("deep"))])[-1]
    assert isinstance(end, End)
    assert end.finish.error is not None
    assert end.finish.error.backend == "deep"
    assert [error.backend for error in end.errors] == ["fast", "deep"]


def test_joined_keeps_text_tokens_and_last_time() -> None:
    pieces = [delta("ab", 0, TEXT, 5), delta("c", 0, TEXT, 7), delta("d", 2, CALL, 9)]
    assert joined(pieces) == [delta("abc", 0, TEXT, 7), delta("d", 2, CALL, 9)]
    assert joined([]) == []


def random_side(chance: random.Random, backend: int) -> list[Event]:
    """A well-formed generation: indexes never fall, one kind per item, then a finish."""
    events: list[Event] = []
    index = 0
    kind = chance.choice([TEXT, REASONING, CALL])
    for number in range(chance.randrange(8)):
        if chance.random() < 0.3:
            index += 1
            kind = chance.choice([TEXT, REASONING, CALL])
        events.append((backend, delta(f"{backend}:{index}:{number};", index, kind)))
    finish = failed(str(backend)) if chance.random() < 0.25 else done(len(events))
    return [*events, (backend, finish)]


@pytest.mark.parametrize("kind", [Brief, Race])
def test_rules_hold_for_any_interleaving(kind: type[Brief] | type[Race]) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    for _ in range(2_000):
        sides = [random_side(chance, FAST), random_side(chance, DEEP)]
        merging = kind()
        actions: list[Action] = []
        cancelled: set[int] = set()
        while any(sides):
            backend = chance.choice([b for b in (FAST, DEEP) if sides[b]])
            _, event = sides[backend].pop(0)
            if backend in cancelled and chance.random() < 0.5:
                continue  # a cancelled backend mostly falls silent; what still comes is not heard
            new = play(merging, [(backend, event)])
            actions += new
            cancelled |= {a.backend for a in new if isinstance(a, Cancel)}
        assert sum(isinstance(a, End) for a in actions) == 1
        assert isinstance(actions[-1], End)
        check_items([a for a in actions if isinstance(a, Forward)])


def check_items(forwards: list[Forward]) -> None:
    """Indexes rise by one from 0; an item has one backend, one own index, kind and phase."""
    expected = -1
    item: tuple[object, ...] | None = None
    texts: list[str] = []
    for forward in forwards:
        own = tuple(forward.delta.text.split(";")[0].split(":")[:2])
        if forward.delta.index != expected:
            expected += 1
            assert forward.delta.index == expected
            item = (*own, forward.delta.kind, forward.phase)
        assert item == (*own, forward.delta.kind, forward.phase)
        assert (forward.phase is None) == (forward.delta.kind is not TEXT)
        texts += [piece for piece in forward.delta.text.split(";") if piece]
    for backend in ("0", "1"):  # each backend's own words stay in their order
        own_texts = [t for t in texts if t.startswith(backend + ":")]
        assert own_texts == sorted(own_texts, key=lambda t: [int(n) for n in t.split(":")])
