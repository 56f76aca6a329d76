"""Tests rounds: who waited has a turn, dear rounds move apart, other work comes between."""

import asyncio
from itertools import pairwise
from time import perf_counter

import pytest

from backends.drive.pacing import pause
from gateway.transport.flush_timer import FlushTimer
from tests.patience import until


@pytest.mark.parametrize(
    ("cost", "expected"),
    [
        (0, 8),
        (0.5, 8),  # cheap ones come as often as they may
        (1, 9),
        (4, 36),  # so that flush_timer take a tenth of the time
        (5.5, 49.5),
        (80, 50),  # text does not wait for ever
    ],
)
def test_dear_rounds_move_apart(cost: float, expected: float) -> None:
    assert pause(cost, ratio=9, least=8, most=50) == expected


class Clock:
    """Stands in for `perf_counter`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        monkeypatch.setattr("gateway.transport.flush_timer.perf_counter", lambda: self.now_s)


class Dear:
    """Takes so long by the clock."""

    def __init__(self, clock: Clock, cost_s: float) -> None:
        self._clock = clock
        self._cost_s = cost_s
        self.num_flushes = 0

    def flush_due(self) -> None:
        self._clock.now_s += self._cost_s
        self.num_flushes += 1


class Ripened:
    """Notes when its round came; each takes so long."""

    def __init__(self, cost_s: float = 0.0) -> None:
        self._cost_s = cost_s
        self.flush_timer: list[float] = []

    def flush_due(self) -> None:
        began_s = perf_counter()
        self.flush_timer.append(began_s)
        while perf_counter() < began_s + self._cost_s:
            pass


async def test_everybody_who_waited_has_one_turn() -> None:
    flush_timer, waiting = FlushTimer(0.001), [Ripened() for _ in range(100)]
    for one in waiting:
        flush_timer.add(one)
        flush_timer.add(one)
    await until(lambda: all(one.flush_timer for one in waiting))
    await asyncio.sleep(0.005)
    assert [len(one.flush_timer) for one in waiting] == [1] * 100, "nothing comes unasked"
    flush_timer.add(waiting[0])
    await until(lambda: len(waiting[0].flush_timer) == 2)


class Broken:
    """Fails as its round comes."""

    def flush_due(self) -> None:
        raise ZeroDivisionError


async def test_a_fault_of_one_ends_no_round() -> None:
    faults: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: faults.append(type(context["exception"])))
    flush_timer, waiting = FlushTimer(0.001), Ripened()
    flush_timer.add(Broken())
    flush_timer.add(waiting)
    await until(lambda: len(waiting.flush_timer) == 1)
    flush_timer.add(waiting)
    await until(lambda: len(waiting.flush_timer) == 2)
    assert faults == [ZeroDivisionError]


async def test_a_long_round_gives_way_and_the_next_waits_for_it() -> None:
    flush_timer, waiting = FlushTimer(0.001, 0.03), [Ripened(0.0041) for _ in range(5)]
    for one in waiting:
        flush_timer.add(one)
    turns: list[float] = []
    while not waiting[-1].flush_timer:
        turns.append(perf_counter())
        flush_timer.add(waiting[0])  # for the next round, also while this one goes on
        await asyncio.sleep(0)
    between = [one.flush_timer[0] for one in waiting]
    for earlier, later in pairwise(between):
        assert any(earlier < turn < later for turn in turns), "other work had its turn"
    await until(lambda: len(waiting[0].flush_timer) == 2)
    pause_s = waiting[0].flush_timer[1] - waiting[0].flush_timer[0]
    assert pause_s >= 0.03 - 0.002, "a round of 20 ms is followed by the longest pause"


def test_text_passes_once_in_an_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, flush_timer = Clock(monkeypatch), FlushTimer(0.25)
    passed = []
    for _ in range(9):
        passed.append(flush_timer.lets_pass())
        clock.now_s += 0.125
    assert passed == [True, False] * 4 + [True]
    flush_timer.put_off()
    clock.now_s += 0.125
    assert not flush_timer.lets_pass(), "other text has just left"


def test_without_an_interval_no_text_passes() -> None:
    flush_timer = FlushTimer(0.0)
    flush_timer.put_off()
    assert not flush_timer.lets_pass()


async def test_text_passes_neither_beside_a_round_nor_soon_behind_a_dear_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, flush_timer = Clock(monkeypatch), FlushTimer(0.001)
    dear = Dear(clock, cost_s=0.003)
    flush_timer.add(dear)
    clock.now_s += 60
    assert not flush_timer.lets_pass(), "a round is about to come"
    began_s = clock.now_s
    await until(lambda: dear.num_flushes == 1)
    flush_timer.put_off()
    clock.now_s = began_s + 0.026
    assert not flush_timer.lets_pass(), "a round takes a tenth of the time at most"
    clock.now_s = began_s + 0.028
    assert flush_timer.lets_pass()
