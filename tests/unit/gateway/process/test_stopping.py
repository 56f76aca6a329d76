"""Tests how long all parts of a gateway together wait for a Redis that takes nothing."""

from contextlib import AsyncExitStack

from gateway.process.stopping import ATTEMPT_S, LAST_CALLS_S, LastCalls


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


class Waits:
    """Is a part that Redis takes nothing of: it waits as long as it may, up to its own bound."""

    def __init__(self, clock: Clock, most_s: float) -> None:
        self._clock = clock
        self._most_s = most_s

    async def close(self, within_s: float) -> None:
        self._clock.now_s += min(self._most_s, within_s)


async def test_what_one_part_waits_for_others_do_not_wait_for_again() -> None:
    clock = Clock()
    last_calls = LastCalls(clock)
    async with AsyncExitStack() as stack:
        for most_s in (3.0, 3.0, 5.0):
            last_calls.close(stack, Waits(clock, most_s))
        clock.now_s += 3_600.0  # it serves; the time begins when it stops
        began_s = clock.now_s
    assert clock.now_s - began_s == LAST_CALLS_S + 2 * ATTEMPT_S


async def test_a_part_that_ends_at_once_leaves_the_time_to_the_others() -> None:
    clock = Clock()
    last_calls = LastCalls(clock)
    assert last_calls.left_s() == LAST_CALLS_S
    clock.now_s += 1.0
    assert last_calls.left_s() == LAST_CALLS_S - 1.0
    clock.now_s += 60.0
    assert last_calls.left_s() == ATTEMPT_S
