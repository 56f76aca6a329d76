"""Decides by a circuit breaker whether calls go to Redis, from the outcomes of calls and probes.

- **closed**: every call goes out. `MAX_FAILED_ROUNDS` failed rounds in a row, or more than a fifth
  of a second's rounds, open it.
- **open**: no call goes out; the edge probes every `PROBE_PAUSE_US`. One good probe half-opens it.
- **half open**: still no call. A second good probe says that the edge may bring Redis up to date
  and then `close` it; a bad one opens it again.

A round is all calls that were in flight together: they share one connection, so a failure of a
hundred of them counts once.
"""

from typing import Literal

MAX_FAILED_ROUNDS = 3  # in a row
MIN_ROUNDS = 5  # in a window, before its share of failures means anything
MAX_FAILED_SHARE = 0.2
WINDOW_US = 1_000_000
PROBE_PAUSE_US = 250_000  # while something is wrong: back within two of them, and a look
CHECK_PAUSE_US = 1_000_000  # while nothing is

BreakerState = Literal["closed", "open", "half_open"]


class Breaker:
    """Tracks rounds and probes; it begins closed."""

    def __init__(self) -> None:
        self.state: BreakerState = "closed"
        self.is_closed = True  # whether calls go out: the state of that name, which each call asks
        self.seen = False  # whether Redis has ever answered
        self._failed_in_row = 0
        self._failed_us = -1  # when the last counted failure ended
        self._good_us = -1  # when the last counted success ended
        self._window_us = 0  # where the current window began
        self._window_good = 0
        self._window_failed = 0

    @property
    def pause_us(self) -> int:
        """Returns how long until the next probe."""
        return CHECK_PAUSE_US if self.is_closed and not self._failed_in_row else PROBE_PAUSE_US

    def succeeded(self, started_us: int, now_us: int) -> None:
        """Counts a call that began at `started_us` and got a reply."""
        self.seen = True
        if not self.is_closed:
            return  # it was sent before
        self._failed_in_row = 0
        if started_us >= self._good_us:
            self._good_us = now_us
            if now_us - self._window_us >= WINDOW_US:
                self._begin_window(now_us)
            self._window_good += 1

    def failed(self, started_us: int, now_us: int) -> bool:
        """Counts a call that began at `started_us` and timed out; returns whether it opened."""
        if not self.is_closed or started_us < self._failed_us:
            return False
        self._failed_us = now_us
        self._failed_in_row += 1
        if now_us - self._window_us >= WINDOW_US:
            self._begin_window(now_us)
        self._window_failed += 1
        num_rounds = self._window_good + self._window_failed
        if self._failed_in_row >= MAX_FAILED_ROUNDS or (
            num_rounds >= MIN_ROUNDS and self._window_failed > MAX_FAILED_SHARE * num_rounds
        ):
            self.trip()
            return True
        return False

    def trip(self) -> None:
        """Opens the breaker, whatever was counted."""
        self.state = "open"
        self.is_closed = False

    def probed(self, *, good: bool) -> bool:
        """Counts a probe while it is not closed; returns whether two in a row were good."""
        if not good:
            self.state = "open"
            return False
        self.seen = True
        if self.state == "half_open":
            return True
        self.state = "half_open"
        return False

    def close(self) -> None:
        """Closes the breaker and resets all counts."""
        self.state = "closed"
        self.is_closed = True
        self._failed_in_row = 0
        self._window_good = self._window_failed = 0

    def _begin_window(self, now_us: int) -> None:
        self._window_us = now_us
        self._window_good = self._window_failed = 0
