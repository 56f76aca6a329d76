"""Rounds: who waited has its turn, dear rounds move apart, and other work comes in between."""

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
