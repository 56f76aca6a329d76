"""When gathered text is flushed: for all connections of the process together.

Events cost by their number, hardly by their length. So text gathers between two flushes, and the
pause grows with what a flush costs: with few streams it is a few milliseconds, with a thousand
fast ones at most `LONGEST_S`. A flush lets other work run every few milliseconds.

An edge: it uses the event loop and the clock.
"""

import asyncio
from collections import deque
from time import perf_counter
from typing import Protocol

from backends.drive.pacing import pause

INTERVAL_S = 0.008
LONGEST_S = 0.04  # between two flushes, unless the configured interval is longer
COST_RATIO = 9  # of the pause to what a flush took: flushes take at most a tenth of the time
SLICE_S = 0.004  # of a flush, before other work has its turn


class Flushing(Protocol):
    """Something whose text waits to be flushed."""

    def flush_due(self) -> None: ...


class FlushTimer:
    """See the module. Works on the loop that `add` is called in."""

    def __init__(self, interval_s: float = INTERVAL_S, longest_s: float = LONGEST_S) -> None:
        """`interval_s`: how long text gathers at least, the first of a response excepted."""
        self._interval_s = interval_s
        self._longest_s = max(interval_s, longest_s)
        self._waiting: dict[Flushing, None] = {}  # for the next flush
        self._current: deque[Flushing] = deque()  # not reached by this one yet
        self._is_scheduled = False
        self._began_s = self._cost_s = 0.0  # of the last flush
        self._next_s = 0.0  # the earliest time of the next

    def add(self, flushing: Flushing) -> None:
        """Include it in the next flush; harmless if it is."""
        self._waiting[flushing] = None
        if not self._is_scheduled:
            self._schedule()

    def _schedule(self) -> None:
        self._is_scheduled = True
        pause_s = max(self._interval_s, self._next_s - perf_counter())
        asyncio.get_running_loop().call_later(pause_s, self._begin)

    def _begin(self) -> None:
        self._current.extend(self._waiting)
        self._waiting.clear()
        self._began_s, self._cost_s = perf_counter(), 0.0
        self._go_on()

    def _go_on(self) -> None:
        """A slice of the flush."""
        began_s = now_s = perf_counter()
        while self._current and now_s - began_s < SLICE_S:
            self._current.popleft().flush_due()
            now_s = perf_counter()
        self._cost_s += now_s - began_s
        if self._current:
            asyncio.get_running_loop().call_soon(self._go_on)
            return
        self._next_s = self._began_s + pause(
            self._cost_s, ratio=COST_RATIO, least=self._interval_s, most=self._longest_s
        )
        self._is_scheduled = False
        if self._waiting:
            self._schedule()
