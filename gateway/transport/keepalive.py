"""Pings all sockets of a process with one timer, and paces accepts and closes in a storm.

A timer for each of ten thousand sockets costs memory, and after a storm of reconnects all of them
fire together. Here each socket has a random slot on a timer wheel instead.

To accept a socket takes half a millisecond, and to close it not much less. A thousand of them in
one turn of the event loop would block every stream; so they queue, and each turn takes only a few.
This is an edge.
"""

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

NUM_SLOTS = 200  # on the wheel; a tenth of a second apart if a round takes 20 s
TURN_S = 0.001  # for queued calls, per turn of the event loop


class Pinged(Protocol):
    """Is a socket that the wheel pings."""

    def keep_alive(self) -> None:
        """Sends a ping, or closes the socket if the last ping has no pong."""


class KeepAlive:
    """Calls each socket's `keep_alive` once per round."""

    def __init__(self, round_s: float) -> None:
        self._slots: list[set[Pinged]] = [set() for _ in range(NUM_SLOTS)]
        self._pause_s = round_s / NUM_SLOTS
        self._chaos = random.Random()

    def add(self, socket: Pinged) -> set[Pinged]:
        """Puts a socket into a slot; discard it from the slot to remove it."""
        slot = self._chaos.choice(self._slots)
        slot.add(socket)
        return slot

    async def run(self) -> None:
        """Turns the wheel until cancelled."""
        while True:
            for slot in self._slots:
                await asyncio.sleep(self._pause_s)
                for socket in tuple(slot):
                    socket.keep_alive()


class AcceptQueue:
    """Runs queued calls in order, for `turn_s` per turn of the event loop.

    The queue is bounded by the sockets: each joins once to open and once to close, and has one
    place in it while there is more to read of it.
    """

    def __init__(
        self, turn_s: float = TURN_S, clock_s: Callable[[], float] = time.perf_counter
    ) -> None:
        self._turn_s = turn_s
        self._clock_s = clock_s
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_moving = False

    def join(self, call: Callable[[], None]) -> None:
        """Queues a call for this turn of the loop or a later one."""
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
