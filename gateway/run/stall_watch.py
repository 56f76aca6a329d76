"""Notices streams that have fallen silent amid their words, or do not come to a first one.

The limit is the stream's own (`router.decide.failover.stall_us`). It holds between words of a
message: an engine that reasons, or that writes a call's arguments, has its own time limits. So has
one that says nothing at all, unless it is known by when it should have (`silence_us`).
This is an edge.
"""

import asyncio
from collections.abc import Callable

import msgspec

from backends.contract import DeltaKind
from gateway.run.branch import Branch, Branches
from router.decide.failover import MIN_STALL_US, stall_us

LATE_US = 500_000  # a look that comes so late says that this process was busy, not the engine
AGAIN_US = 1_000_000  # until the next look at a stalled stream that nobody could go on with


class StallWatch(msgspec.Struct, eq=False):
    """Looks at a run's streams whenever the first of them could have stalled."""

    _branches: Branches
    _clock_us: Callable[[], int]
    # Is called with a branch, its silence and the time past its limit; false: it stays. None once
    # the watch is over.
    _on_stall: Callable[[Branch, int, int], bool] | None
    _silence_us: Callable[[Branch], int | None]  # how long a branch may say nothing at all
    _timer: asyncio.TimerHandle | None = None
    _heard_us: int = 0  # nothing before counts as silence
    _is_paused: bool = False

    def begin(self, now_us: int, delay_us: int | None = None) -> None:
        """Starts with the first streams; from then on it looks by itself."""
        delay_us = MIN_STALL_US if delay_us is None else delay_us
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(delay_us / 1e6, self._look, now_us + delay_us)

    def pause(self) -> None:
        """Waits while the streams are paused by us."""
        self._is_paused = True

    def resume(self) -> None:
        """Begins anew: what was silent was so for our sake."""
        self._is_paused = False
        self._heard_us = self._clock_us()

    def close(self) -> None:
        """Ends the watch for good."""
        self._on_stall = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, planned_us: int) -> None:
        now_us = self._clock_us()
        if self._is_paused or now_us - planned_us > LATE_US:
            self._heard_us = now_us
        next_us = now_us + MIN_STALL_US
        for branch in list(self._branches.values()):
            heard_us, limit_us = self._heard(branch), self._limit_us(branch)
            if heard_us is None or limit_us is None:
                continue
            due_us = heard_us + limit_us
            if due_us <= now_us and self._on_stall is not None:
                stays = not self._on_stall(branch, now_us - heard_us, now_us - due_us)
                due_us = now_us + (AGAIN_US if stays else MIN_STALL_US)
            next_us = min(next_us, due_us)
        self._timer = None
        if self._on_stall is not None:
            self.begin(now_us, next_us - now_us)

    def _heard(self, branch: Branch) -> int | None:
        """Returns when the branch was heard last, or began; None: it may be silent."""
        if branch.usage is not None:
            return None
        if branch.times is None:
            return max(self._heard_us, branch.started_us)
        if branch.times.last.kind is not DeltaKind.TEXT:
            return None
        return max(self._heard_us, branch.last_at_us)

    def _limit_us(self, branch: Branch) -> int | None:
        times = branch.times
        if times is None:
            if branch.num_tokens_before:
                return stall_us(0, 0)
            return None if branch.generation is None else self._silence_us(branch)
        # Our own count of a text's tokens may be twice its server's.
        num_tokens = max(branch.num_pieces, branch.num_streamed_tokens // 2)
        return stall_us(num_tokens, branch.last_at_us - times.first_at_us)
