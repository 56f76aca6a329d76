"""What all sockets of a process share: one timer that pings them, and turns in a storm.

A timer of its own for each of ten thousand sockets costs memory, and after a storm of reconnects
all of them fire together. Here each socket has a slot on a wheel instead, chosen at random.

To let a socket in costs half a millisecond, and to see it off not much less. A thousand of them in
one turn of the event loop would hold up every stream for that long; so they wait in line, and each
turn takes only so many that streams hardly notice.

An edge: it uses the event loop, chance and the clock.
"""

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

NUM_SLOTS = 200  # on the wheel: at 20 s for a round, a tenth of a second apart
TURN_S = 0.001  # for what waits in line, per turn of the event loop


class Pinged(Protocol):
    """A socket as the wheel sees it."""

    def keep_alive(self) -> None:
        """Ping, or give up where the last ping has no answer."""


class KeepAlive:
    """Calls `keep_alive` of each socket once per round."""

    def __init__(self, round_s: float) -> None:
        self._slots: list[set[Pinged]] = [set() for _ in range(NUM_SLOTS)]
        self._pause_s = round_s / NUM_SLOTS
        self._chaos = random.Random()

    def add(self, socket: Pinged) -> set[Pinged]:
        """Put a socket into a slot; who discards it there takes it off the wheel."""
        slot = self._chaos.choice(self._slots)
        slot.add(socket)
        return slot

    async def run(self) -> None:
        """Turn for ever; cancel it to stop."""
        while True:
            for slot in self._slots:
                await asyncio.sleep(self._pause_s)
                for socket in tuple(slot):
                    socket.keep_alive()


class AcceptQueue:
    """Calls that wait their turn: first come, first served, `turn_s` per turn of the event loop.

    It is bounded by who joins: a socket does once when it comes and once when it goes.
    """

    def __init__(
        self, turn_s: float = TURN_S, clock_s: Callable[[], float] = time.perf_counter
    ) -> None:
        self._turn_s = turn_s
        self._clock_s = clock_s
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_moving = False

    def join(self, call: Callable[[], None]) -> None:
        """Have it called in this turn of the loop, or in one of the next."""
        self._waiting.append(call)
        if not self._is_moving:
            self._is_moving = True
            asyncio.get_running_loop().call_soon(self._move)

    def _move(self) -> None:
        loop = asyncio.get_running_loop()
        until_s = self._clock_s() + self._turn_s
        while self._waiting and self._clock_s() < until_s:
            try:
                self._waiting.popleft()()
            except Exception as error:
                loop.call_exception_handler(
                    {"message": "a call that waited in line failed", "exception": error}
                )
        if self._waiting:
            loop.call_soon(self._move)
        else:
            self._is_moving = False
