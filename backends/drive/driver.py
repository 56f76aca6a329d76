"""Runs an engine on asyncio: no other code in the data path waits for time to pass.

The driver sleeps until the engine has output, fetches all of it in one call and hands each sequence
its tokens, synchronously. First tokens and finishes are fetched as soon as they are due; the tokens
between them wait for the next tick and are handed out together. When that takes long because there
are many streams, ticks become rarer, down to one in `MAX_TICK_US`. An idle engine costs nothing.
The driver wakes within microseconds of an event where waking is cheap (`timers`), and within a
millisecond where it is not.

An edge: it uses the event loop and the clock.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from backends.drive.pacing import pause
from backends.drive.timers import LoopTimer, Timer, make_timer
from wafer_engine.batching.engine import Engine, EngineStats
from wafer_engine.batching.sequence import Sequence

TICK_US = 4_000  # between two looks at all sequences, while there is load to spare
MAX_TICK_US = 50_000  # and at most; the bound on how late a token may be handed out
TICK_COST_RATIO = 4  # a tick is at least so many times what the last one took to hand out
MAX_REST_US = 1_000  # between two wakings, however much they cost


class Receiver(Protocol):
    """Takes a sequence's tokens. Called from the event loop; may cancel any sequence."""

    def advance(self, num_tokens: int, at_us: int) -> None:
        """Take more tokens, the last of them from that time."""
        ...

    def finish(self, at_us: int) -> None:
        """Take note that all tokens have come out; nothing follows."""
        ...

    def fail(self, message: str, at_us: int) -> None:
        """Take note that the driver was closed before the sequence was done; nothing follows."""
        ...


class Driver:
    """One engine on the running event loop."""

    def __init__(self, engine: Engine, *, clock_us: Callable[[], int] | None = None) -> None:
        """Attach to the running loop; the engine must be new.

        A clock gives whole microseconds that never decrease; without one, it is the system's
        monotonic clock. The loop's own timers sleep for another clock.
        """
        self._engine = engine
        self._clock_us = clock_us or monotonic_us
        self._loop = asyncio.get_running_loop()
        self._receivers: dict[int, Receiver] = {}
        self._timer: Timer = LoopTimer(self._wake) if clock_us else make_timer(self._wake)
        self._timer_us: int | None = None  # when it is set for
        self._next_tick_us = 0
        self._rested_us = 0  # the earliest time of the next waking
        self._is_open = True

    @property
    def is_open(self) -> bool:
        return self._is_open

    @property
    def num_waiting(self) -> int:
        return self._engine.num_waiting

    def stats(self) -> EngineStats:
        return self._engine.stats()

    def now_us(self) -> int:
        """The time by its clock."""
        return self._clock_us()

    def submit(self, sequence: Sequence, receiver: Receiver, arrived_us: int | None = None) -> None:
        """Start a sequence; the receiver is first called from the loop, never from here.

        It came at `arrived_us` by the driver's clock, with no other call since; now if None.

        Raises:
            ValueError: The engine can never hold it.
        """
        assert self._is_open, "the backend checks"
        self._engine.add(sequence, self._clock_us() if arrived_us is None else arrived_us)
        self._receivers[sequence.id] = receiver
        self._set_timer()

    def cancel(self, sequence_id: int) -> int:
        """Drop a sequence; its receiver is not called again. Returns the tokens it generated."""
        if self._receivers.pop(sequence_id, None) is None:
            return 0
        num_generated = self._engine.cancel(sequence_id, self._clock_us())
        self._set_timer()
        return num_generated

    def close(self, message: str) -> None:
        """Fail every sequence and stop; harmless when repeated."""
        self._is_open = False
        self._timer.close()
        now_us = self._clock_us()
        while self._receivers:
            sequence_id, receiver = self._receivers.popitem()
            self._engine.cancel(sequence_id, now_us)
            try:
                receiver.fail(message, now_us)
            except Exception as error:
                self._report(error)

    def _wake(self) -> None:
        self._timer_us = None
        now_us = self._clock_us()
        is_tick = now_us >= self._next_tick_us
        output = self._engine.advance(now_us, progress=is_tick)
        rows = zip(
            output.sequence_ids, output.num_tokens, output.at_us, output.finished, strict=True
        )
        for sequence_id, num_tokens, at_us, finished in rows:
            receiver = self._receivers.get(sequence_id)
            if receiver is None:
                continue  # cancelled by a receiver called just before
            try:
                receiver.advance(num_tokens, at_us)
                if finished and self._receivers.pop(sequence_id, None) is not None:
                    receiver.finish(at_us)
            except Exception as error:  # a fault in one stream must not reach the others
                self.cancel(sequence_id)
                self._report(error)
        end_us = self._clock_us()
        cost_us = end_us - now_us
        self._rested_us = end_us + int(
            pause(cost_us, ratio=TICK_COST_RATIO, least=0, most=MAX_REST_US)
        )
        if is_tick:
            self._next_tick_us = end_us + int(
                pause(cost_us, ratio=TICK_COST_RATIO, least=TICK_US, most=MAX_TICK_US)
            )
        if self._is_open:
            self._set_timer()

    def _report(self, error: Exception) -> None:
        self._loop.call_exception_handler(
            {"message": "a receiver raised; its sequence is dropped", "exception": error}
        )

    def _set_timer(self) -> None:
        """Sleep until the engine's next event, or the next tick if tokens come before that."""
        wake_us = self._engine.next_event_us()
        token_us = self._engine.next_token_us()
        if wake_us is not None and token_us is not None:
            wake_us = min(wake_us, max(token_us, self._next_tick_us))
        if wake_us == self._timer_us:
            return
        self._timer_us = wake_us
        if wake_us is None:
            self._timer.clear()
        else:
            self._timer.set(max(wake_us, self._rested_us) - self._clock_us())


def monotonic_us() -> int:
    """The system's monotonic clock in whole microseconds."""
    return time.monotonic_ns() // 1000
