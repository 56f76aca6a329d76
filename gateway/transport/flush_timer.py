"""Flushes buffered text, with one timer for all connections of the process.

Events cost by their number, hardly by their length. So text is buffered between two flushes, and
the pause grows with the cost of a flush: a few milliseconds with few streams, at most `LONGEST_S`
with a thousand fast ones. A flush yields to other work every few milliseconds. Where no text came
for an interval, the next one passes without a flush: it would wait for nothing.

The events that open a response are held longer: a write costs a short task a thirtieth of its CPU,
and a quick answer takes them along. This is an edge.
"""

import asyncio
import math
from collections.abc import Iterator
from time import perf_counter
from typing import Protocol

from backends.drive.pacing import pause

INTERVAL_S = 0.008
LONGEST_S = 0.04  # between two flushes, unless the configured interval is longer
COST_RATIO = 9  # of the pause to the flush, which so takes at most a tenth of the time
SLICE_S = 0.004  # of a flush, before it yields
HELD_S = 0.025  # opening events wait so long for what follows, and at most twice as long
EARLY_S = 0.0005  # a timer may seem to come so early, as the loop's time is rounded


class Flushing(Protocol):
    """Has buffered text to flush."""

    def flush_due(self) -> None: ...

    def let_go(self, before_s: float) -> None:
        """Writes what it holds since that time of the loop, or longer, and holds the rest on."""
        return


class FlushTimer:
    """Calls `flush_due` of what was added, and `let_go` of what holds, on the callers' loop."""

    def __init__(self, interval_s: float = INTERVAL_S, longest_s: float = LONGEST_S) -> None:
        """Buffers text for at least `interval_s`, except a response's first."""
        self._interval_s = interval_s
        self._longest_s = max(interval_s, longest_s)
        self._hold_s = max(interval_s, HELD_S)
        self._holding: dict[Flushing, None] = {}
        self._waiting: dict[Flushing, None] = {}  # for the next flush
        self._rest: Iterator[Flushing] | None = None  # of the current flush
        self._is_scheduled = False
        # When text may pass without a flush. Where flushes follow at once it never may, so that
        # their cost alone decides how far apart they are.
        self._passes_s = 0.0 if interval_s else math.inf
        self._began_s = self._cost_s = 0.0  # of the current flush, or of the last
        self._next_s = 0.0  # the earliest time of the next

    def lets_pass(self) -> bool:
        """Says whether text may leave without a flush: none is scheduled, and none has left lately.

        If so, no other text passes for an interval.
        """
        now_s = perf_counter()
        if now_s < self._passes_s:
            return False
        self._passes_s = now_s + self._interval_s
        return True

    def put_off(self) -> None:
        """Notes that something leaves unasked; text that follows within an interval is buffered."""
        passes_s = perf_counter() + self._interval_s
        if passes_s > self._passes_s:
            self._passes_s = passes_s

    def add(self, flushing: Flushing) -> None:
        """Adds an object to the next flush; adding it twice is harmless."""
        self._waiting[flushing] = None
        if not self._is_scheduled:
            self._schedule(perf_counter())

    def _schedule(self, now_s: float) -> None:
        self._is_scheduled, self._passes_s = True, math.inf
        pause_s = max(self._interval_s, self._next_s - now_s)
        asyncio.get_running_loop().call_later(pause_s, self._flush)

    def hold(self, flushing: Flushing) -> None:
        """Calls its `let_go` when the time of what it holds now may be over."""
        if not self._holding:
            asyncio.get_running_loop().call_later(self._hold_s, self._let_go)
        self._holding[flushing] = None

    def _let_go(self) -> None:
        holding, self._holding = self._holding, {}
        before_s = asyncio.get_running_loop().time() - self._hold_s + EARLY_S
        for flushing in holding:
            flushing.let_go(before_s)

    def _flush(self) -> None:
        """Begins a flush, or goes on with the one that has yielded."""
        began_s = now_s = perf_counter()
        if self._rest is None:
            due, self._waiting = self._waiting, {}
            self._rest, self._began_s, self._cost_s = iter(due), began_s, 0.0
        for flushing in self._rest:
            try:
                flushing.flush_due()
            except Exception as error:  # the others' text is not to wait for ever
                context = {"message": "a connection's text was not flushed", "exception": error}
                asyncio.get_running_loop().call_exception_handler(context)
            now_s = perf_counter()
            if now_s - began_s >= SLICE_S:
                self._cost_s += now_s - began_s
                asyncio.get_running_loop().call_soon(self._flush)
                return
        self._rest = None
        cost_s = self._cost_s + now_s - began_s
        self._next_s = self._began_s + pause(
            cost_s, ratio=COST_RATIO, least=self._interval_s, most=self._longest_s
        )
        self._is_scheduled = False
        if self._waiting:  # it was added meanwhile
            self._schedule(now_s)
        elif self._interval_s:
            self._passes_s = self._next_s
