"""Offers an event loop that never waits."""

import asyncio
import math
import random
import selectors


class Punctual(random.Random):
    """Wakes nobody late."""

    def randint(self, a: int, b: int) -> int:
        return a


class SleepingLoop(asyncio.SelectorEventLoop):
    """Is an event loop that never waits: a sleep moves its clock, and up to 3 ms further."""

    def __init__(self, chance: random.Random) -> None:
        self.now_us = 0
        self.chance = chance
        super().__init__(_Selector(self))

    def time(self) -> float:
        return self.now_us / 1e6


class _Selector(selectors.SelectSelector):
    def __init__(self, loop: SleepingLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "nothing is due, and nothing outside can wake this loop"
        if timeout > 0:
            self._loop.now_us += math.ceil(timeout * 1e6) + self._loop.chance.randint(0, 3_000)
        return super().select(0)
