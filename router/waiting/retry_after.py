"""The `retry_after` of refusals: every task that is refused in a burst gets a turn of its own.

After the same wait any task of a burst would fit, but only one of them. So each gets a later turn
than the one before, by what its task takes to refill. A turn is no reservation; it only keeps
clients that heed it from coming all at once, and in vain.

A client that comes again looks like any other. So turns add up only within a burst, and never
beyond a minute; later refusals say what the pools say. A burst is over, too, when a task gets in
before anybody's turn, and when other pools answer (Redis went away, or came back). Turns are for
what refills: nobody knows when a slot falls free, and a day's budget comes back at once.
"""

import msgspec

from backends.contract import BackendGroup
from router.pools.pools import Demand, Grant, PoolsMode

BURST_US = 1_000_000  # how long after the first of a burst others still belong to it
MAX_TURN_US = 60_000_000  # turns make no wait longer; clients of OpenAI heed no longer waits
MAX_KEPT = 10_000  # bursts


class _Burst(msgspec.Struct):
    began_us: int
    first_us: int  # the earliest turn
    last_us: int  # the latest


class RetryAfter:
    """The turns so far. `now_us` never goes back."""

    def __init__(self) -> None:
        self._bursts: dict[tuple[str, BackendGroup], _Burst] = {}
        self._mode: PoolsMode = "redis"

    def wait_us(self, tenant_id: str, grant: Grant, tokens: int, least_us: int, now_us: int) -> int:
        """How long this one is to wait: `least_us`, or until after the turns before."""
        assert grant.limited_by is not None, "a refused grant names its pool"
        group, unit = grant.limited_by
        self._meet(grant.mode)
        if unit not in ("requests", "tokens"):
            return least_us
        burst = self._bursts.get((tenant_id, group))
        turn_us = now_us + least_us
        if burst is None or now_us >= burst.began_us + BURST_US or burst.last_us <= now_us:
            self._bursts.pop((tenant_id, group), None)  # it shall be the newest
            if len(self._bursts) >= MAX_KEPT:
                del self._bursts[next(iter(self._bursts))]
            self._bursts[tenant_id, group] = _Burst(now_us, turn_us, turn_us)
            return least_us
        # At its turn the one before takes all there is, and what this one takes comes after.
        after_us = burst.last_us + _step_us(grant, group, tokens)
        turn_us = max(turn_us, min(after_us, now_us + MAX_TURN_US))
        burst.first_us = min(burst.first_us, turn_us)
        burst.last_us = max(burst.last_us, turn_us)
        return turn_us - now_us

    def admitted(
        self, tenant_id: str, demands: tuple[Demand, ...], mode: PoolsMode, now_us: int
    ) -> None:
        """A task got in: if that was before anybody's turn, the turns are wrong."""
        self._meet(mode)
        for demand in demands:
            key = tenant_id, demand.group
            burst = self._bursts.get(key)
            if burst is not None and now_us < burst.first_us:
                del self._bursts[key]

    def _meet(self, mode: PoolsMode) -> None:
        """Turns of other pools say nothing about these."""
        if mode != self._mode:
            self._mode = mode
            self._bursts.clear()


def _step_us(grant: Grant, group: BackendGroup, tokens: int) -> int:
    """How long until the pools have what this task takes, besides what they must have before."""
    limits = {balance.unit: balance.limit for balance in grant.balances if balance.group == group}
    by_requests_us = -(-60_000_000 // max(1, limits["requests"]))
    by_tokens_us = -(-tokens * 60_000_000 // max(1, limits["tokens"]))
    # Round up to the script's milliseconds, or the last of many comes a little too early.
    return -(-max(by_requests_us, by_tokens_us) // 1_000) * 1_000
