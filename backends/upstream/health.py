"""Decides whether an upstream is used now, with how many slots, and whether a retry is allowed.

An upstream is up, or out until a time (ejected for consecutive failures, or because it asked for a
pause); besides, its last probe succeeded or failed. One that comes back starts slowly.
"""

import msgspec

from backends.contract import OutFor
from backends.upstream.options import UpstreamOptions

MAX_EJECTIONS = 10  # ejections grow no longer beyond this; Envoy's outlier detection does the same
SLOW_START_SHARE = 0.1  # of the slots, at first

# The pause of one that says that it is limited, and not for how long: limits are per second at
# the shortest, and each pause costs the next one's first tasks an answer of 429.
UNSAID_PAUSE_US = 1_000_000

# A retry costs the upstream as much as a request. This many requests earn one (20 %), so that an
# upstream in trouble is not hit three times as hard; a few are there to begin with.
RETRY_EARNED = 0.2
MAX_RETRY_BALANCE = 10.0


class HealthState(msgspec.Struct, frozen=True, gc=False):
    """Says what the methods of `Health` of these names say at one moment."""

    healthy: bool
    room: int
    out_for: OutFor
    out_us: int


class Health:
    """Tracks one upstream's health."""

    def __init__(self, options: UpstreamOptions) -> None:
        self._options = options
        self._alive = options.probe_path is None  # as the last probe found
        self._was_alive = self._alive
        self._num_failures = 0  # in a row
        self._num_ejections = 0
        self._out_until_us = 0
        self._ejected_until_us = 0
        self._back_us: int | None = None  # when its slow start began
        self._retry_balance = MAX_RETRY_BALANCE
        room = options.max_num_seqs
        self._well = HealthState(healthy=True, room=room, out_for="", out_us=0)
        # What `state` says whenever it is asked, until a call here changes it; None: that depends.
        self.steady: HealthState | None = None

    def state(self, now_us: int) -> HealthState:
        """Returns all of it: the router asks for it of every backend at every task."""
        if self._alive and self._back_us is None and now_us >= self._out_until_us:
            self.steady = self._well
            return self._well
        return HealthState(
            healthy=self.healthy(now_us),
            room=self.room(now_us),
            out_for=self.out_for(now_us),
            out_us=self.out_us(now_us),
        )

    def healthy(self, now_us: int) -> bool:
        return self._alive and now_us >= self._out_until_us

    def out_for(self, now_us: int) -> OutFor:
        """Returns why it is out until a time; of two reasons the graver one."""
        if now_us < self._ejected_until_us:
            return "failures"
        return "limit" if self._alive and now_us < self._out_until_us else ""

    def out_us(self, now_us: int) -> int:
        """Returns the longest time until it is tried again; 0: it is up, or was never up."""
        left_us = max(0, self._out_until_us - now_us)
        if not self._alive and self._was_alive:
            return max(left_us, int(self._options.probe_interval_s * 1e6))
        return left_us

    def room(self, now_us: int) -> int:
        """Returns how many generations it may run at once: fewer while it starts slowly."""
        if not self.healthy(now_us):
            return 0
        slots = self._options.max_num_seqs
        if self._back_us is None:
            return slots
        slow_start_us = self._options.slow_start_s * 1e6
        if now_us - self._back_us >= slow_start_us:
            return slots
        share = max(SLOW_START_SHARE, (now_us - self._back_us) / slow_start_us)
        return max(1, int(slots * share))

    def on_request(self) -> None:
        if self._retry_balance < MAX_RETRY_BALANCE:
            self._retry_balance = min(self._retry_balance + RETRY_EARNED, MAX_RETRY_BALANCE)

    def take_retry(self) -> bool:
        if self._retry_balance < 1:
            return False
        self._retry_balance -= 1
        return True

    def on_success(self, now_us: int) -> None:
        self._num_failures = 0
        was_out = self._num_ejections > 0 or self._back_us is not None
        if was_out and self.room(now_us) == self._options.max_num_seqs:
            self._num_ejections = 0
            self._back_us = None  # its slow start is over

    def on_failure(self, now_us: int) -> None:
        """Counts a failure, unless it is of what had begun before an ejection that goes on."""
        if now_us < self._ejected_until_us:
            return
        self._num_failures += 1
        if self._num_failures >= self._options.eject_after:
            self._num_failures = 0
            self._num_ejections = min(self._num_ejections + 1, MAX_EJECTIONS)
            duration_us = int(self._options.ejection_s * 1e6) * self._num_ejections
            self._ejected_until_us = now_us + duration_us
            self._out_until_us = max(self._out_until_us, now_us + duration_us)
            self._back_us = self._out_until_us
            self.steady = None

    def on_limit(self, now_us: int, retry_after_us: int | None) -> None:
        """Pauses its use for as long as it asked, but no longer than the longest ejection."""
        longest_us = int(self._options.ejection_s * 1e6) * MAX_EJECTIONS
        pause_us = UNSAID_PAUSE_US if retry_after_us is None else retry_after_us
        self._out_until_us = max(self._out_until_us, now_us + min(pause_us, longest_us))
        self.steady = None

    def on_probe(self, alive: bool, now_us: int) -> None:
        if alive and not self._alive and self._was_alive:
            self._back_us = max(now_us, self._out_until_us)
        self._alive = alive
        self.steady = None
        self._was_alive = self._was_alive or alive
