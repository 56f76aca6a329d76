"""Runs an engine on asyncio: no other code in the data path waits for time to pass.

The driver sleeps until the engine has output, fetches all of it in one call and hands each sequence
its tokens, synchronously. It fetches first tokens and finishes as soon as they are due; the tokens
between them wait for the next tick. When a tick takes long because there are many streams, ticks
become rarer, down to one in `MAX_TICK_US`. An idle engine costs nothing. The driver wakes within
microseconds of an event where precise timers are cheap (`timers`), else within a millisecond.
This is an edge.
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

from backends.drive.pacing import pause
from backends.drive.timers import LoopTimer, Timer, make_timer
from wafer_engine.batching.engine import Engine
from wafer_engine.batching.sequence import Sequence

TICK_US = 4_000  # the shortest time between two ticks
MAX_TICK_US = 50_000  # the longest: bounds how late a token may be handed out
TICK_COST_RATIO = 4  # a tick comes no sooner than so many times the duration of the last one
MAX_REST_US = 1_000  # the longest pause between two wake-ups


class Receiver(Protocol):
    """Receives a sequence's tokens. Called from the event loop; may cancel any sequence."""

    def advance(self, num_tokens: int, at_us: int) -> None:
        """Takes more tokens; the last of them was generated at `at_us`."""
        ...

    def finish(self, at_us: int) -> None:
        """Says that all tokens were delivered; nothing follows."""
        ...

    def fail(self, message: str, at_us: int) -> None:
        """Says that the driver was closed, or that its engine failed; nothing follows."""
        ...


class Driver:
    """Runs one engine on the running event loop."""

    def __init__(self, engine: Engine, *, clock_us: Callable[[], int] | None = None) -> None:
        """Attaches to the running loop; the engine must be new.

        `clock_us` must never decrease; without it the driver uses the system's monotonic clock.
        With another clock it sleeps by the loop's own timers.
        """
        self._engine = engine
        self.stats = engine.stats  # the router asks for them at every task
        self._clock_us = clock_us or monotonic_us
        self._loop = asyncio.get_running_loop()
        self._receivers: dict[int, Receiver] = {}
        self._timer: Timer = LoopTimer(self._wake) if clock_us else make_timer(self._wake)
        self._timer_us: int | None = None
        self._next_tick_us = 0
        self._rested_us = 0  # the earliest time of the next wake-up
        self.is_open = True

    @property
    def num_waiting(self) -> int:
        return self._engine.num_waiting

    def now_us(self) -> int:
        return self._clock_us()

    def submit(self, sequence: Sequence, receiver: Receiver, arrived_us: int | None = None) -> None:
        """Starts a sequence that arrived at `arrived_us` by the driver's clock; None means now.

        The receiver is first called from the loop, never from here. No other call may have come
        since `arrived_us`. Raises ValueError if the sequence exceeds the engine's KV cache.
        """
        assert self.is_open, "the backend checks"
        self._engine.add(sequence, self._clock_us() if arrived_us is None else arrived_us)
        self._receivers[sequence.id] = receiver
        self._set_timer()

    def cancel(self, sequence_id: int) -> int:
        """Drops a sequence and returns its generated tokens; its receiver is not called again."""
        if self._receivers.pop(sequence_id, None) is None:
            return 0
        num_generated = self._engine.cancel(sequence_id, self._clock_us())
        self._set_timer()
        return num_generated

    def close(self, message: str) -> None:
        """Fails every sequence and stops; harmless when repeated."""
        self.is_open = False
        self._timer.close()
        self._fail_all(message)

    def _fail_all(self, message: str) -> None:
        now_us = self._clock_us()
        while self._receivers:
            sequence_id, receiver = self._receivers.popitem()
            for step in (
                partial(self._engine.cancel, sequence_id, now_us),
                partial(receiver.fail, message, now_us),
            ):
                try:
                    step()
                except Exception as error:  # a fault in one stream must not reach the others
                    self._report(error)

    def _wake(self) -> None:
        self._timer_us = None
        now_us = self._clock_us()
        is_tick = now_us >= self._next_tick_us
        try:
            output = self._engine.advance(now_us, progress=is_tick)
        except Exception as error:  # nobody is to wait for what does not come, nor later tasks
            self._report(error)
            self._fail_all("the engine failed")
            output = []
        for sequence_id, num_tokens, at_us, finished in output:
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
        if self.is_open:
            self._set_timer()

    def _report(self, error: Exception) -> None:
        self._loop.call_exception_handler(
            {"message": "an engine's sequence is dropped", "exception": error}
        )

    def _set_timer(self) -> None:
        """Sleeps until the engine's next event, or until a tick if tokens come before that."""
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
    """Returns the system's monotonic time in whole microseconds."""
    return time.monotonic_ns() // 1000
