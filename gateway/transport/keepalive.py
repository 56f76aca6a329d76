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
        self._number = 0  # of the slot whose turn is next
        self._turn_s = 0.0  # when the turn of the slot before it was
        self._added: asyncio.Future[None] | None = None  # while empty slots are passed over

    def add(self, socket: Pinged) -> set[Pinged]:
        """Puts a socket into a slot; discard it from the slot to remove it."""
        slot = self._chaos.choice(self._slots)
        slot.add(socket)
        if self._added is not None and not self._added.done():
            self._added.set_result(None)
        return slot

    async def run(self) -> None:
        """Turns the wheel until cancelled; it wakes for slots that have a socket, and no others."""
        self._turn_s = time.monotonic()
        while True:
            num_empty = self._num_empty()
            if num_empty:
                await self._pass_over(num_empty)
                continue
            await asyncio.sleep(self._turn_s + self._pause_s - time.monotonic())
            for socket in tuple(self._slots[self._number]):
                socket.keep_alive()
            self._number = (self._number + 1) % NUM_SLOTS
            # Not when it was due: after a hold-up no slot may have its turn before a pong can come.
            self._turn_s = time.monotonic()

    def _num_empty(self) -> int:
        """Returns how many slots have no socket before the next one that has."""
        for number in range(NUM_SLOTS):
            if self._slots[(self._number + number) % NUM_SLOTS]:
                return number
        return NUM_SLOTS

    async def _pass_over(self, num_empty: int) -> None:
        """Waits for as long as the turns of so many slots take, or until a socket comes."""
        self._added = asyncio.get_running_loop().create_future()
        left_s = self._turn_s + num_empty * self._pause_s - time.monotonic()
        await asyncio.wait((self._added,), timeout=None if num_empty == NUM_SLOTS else left_s)
        self._added = None
        now_s, num_passed = time.monotonic(), num_empty
        if self._pause_s:
            num_passed = min(num_empty, int((now_s - self._turn_s) / self._pause_s))
        self._number = (self._number + num_passed) % NUM_SLOTS
        self._turn_s += num_passed * self._pause_s
        if now_s - self._turn_s > self._pause_s:  # held up: pongs are to be read before the next
            self._turn_s = now_s


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
