"""Decides whether a failed attempt at an upstream is retried, and after which pause.

After a first token there is no retry: the client may have seen it. Pauses double, with jitter from
the caller's generator, so that many gateways do not retry in step. A server's `retry-after` is
obeyed; if it is too long, there is no retry, and another backend gets the task. So it does at once
where the server refuses this gateway, as with a wrong key, or limits it without saying for how long
while another stands by. A stale socket is nobody's fault: another one is tried at once, but only
once.
"""

import msgspec

from backends.upstream.answer.errors import Failure
from backends.upstream.options import UpstreamOptions

MAX_PAUSE_S = 10.0
MIN_JITTER = 0.5  # of a pause


class Attempts(msgspec.Struct):
    """Counts one generation's attempts."""

    options: UpstreamOptions
    has_spare: bool = False  # another backend can take the task now
    _num_retries: int = 0
    _was_stale: bool = False

    def pause_s(self, failure: Failure, *, has_tokens: bool, chance: float) -> float | None:
        """Returns how long to wait before the next attempt; None if there is none.

        `failure` is of the last attempt, `chance` from 0 to 1, drawn for this pause.
        """
        options = self.options
        if has_tokens or failure.refused or not failure.error.retryable:
            return None
        if failure.blame == "nobody" and not self._was_stale:
            self._was_stale = True
            return 0.0
        if self.has_spare and failure.blame == "limit" and failure.error.retry_after_us is None:
            return None
        if self._num_retries >= options.max_retries:
            return None
        pause_s: float = min(MAX_PAUSE_S, options.retry_pause_s * 2**self._num_retries)
        pause_s *= MIN_JITTER + (1 - MIN_JITTER) * chance
        if failure.error.retry_after_us is not None:
            pause_s = max(pause_s, failure.error.retry_after_us / 1e6)
            if pause_s > options.max_retry_after_s:
                return None
        self._num_retries += 1
        return pause_s
