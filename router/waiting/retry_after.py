"""Staggers the `retry_after` of tasks that are refused in a burst.

After the same wait any one task of a burst would fit, but not all. So each gets a later turn than
the one before, by the time that its demand takes to refill. A turn is no reservation; it only keeps
clients from retrying at once, and in vain.

A retry looks like any other request, so turns add up only within a burst, and never beyond a
minute; later refusals follow the pools. A burst also ends when a task is admitted before the first
turn, when the tenant's limits change, and when other pools reply (Redis went away, or came back).
Turns are for pools that refill: a slot's release cannot be predicted, and a day's budget comes back
at once.
"""

import msgspec

from backends.contract import BackendGroup
from router.pools.pools import Demand, Grant, PoolsMode

BURST_US = 1_000_000  # length of a burst
MAX_TURN_US = 60_000_000  # of a wait; clients of OpenAI heed no longer ones
MAX_KEPT = 10_000  # bursts


class _Burst(msgspec.Struct):
    limits: tuple[int, int]  # requests and tokens per minute
    began_us: int
    first_us: int  # the earliest turn
    last_us: int  # the latest


class RetryAfter:
    """Hands out turns. `now_us` never goes back."""

    def __init__(self) -> None:
        self._bursts: dict[tuple[str, BackendGroup], _Burst] = {}
        self._mode: PoolsMode = "redis"

    def wait_us(self, tenant_id: str, grant: Grant, tokens: int, least_us: int, now_us: int) -> int:
        """Returns how long a refused task should wait: `least_us`, or until after earlier turns."""
        assert grant.limited_by is not None, "a refused grant names its pool"
        group, unit = grant.limited_by
        self._meet(grant.mode)
        if unit not in ("requests", "tokens"):
            return least_us
        burst = self._bursts.get((tenant_id, group))
        limits = _limits(grant, group)
        turn_us = now_us + least_us
        if (
            burst is None
            or now_us >= burst.began_us + BURST_US
            or burst.last_us <= now_us
            or burst.limits != limits
        ):
            self._bursts.pop((tenant_id, group), None)  # it shall be the newest
            if len(self._bursts) >= MAX_KEPT:
                del self._bursts[next(iter(self._bursts))]
            self._bursts[tenant_id, group] = _Burst(limits, now_us, turn_us, turn_us)
            return least_us
        # At its turn the one before takes all there is, and what this one takes comes after.
        after_us = burst.last_us + _step_us(limits, tokens)
        turn_us = max(turn_us, min(after_us, now_us + MAX_TURN_US))
        burst.first_us = min(burst.first_us, turn_us)
        burst.last_us = max(burst.last_us, turn_us)
        return turn_us - now_us

    def admitted(
        self, tenant_id: str, demands: tuple[Demand, ...], mode: PoolsMode, now_us: int
    ) -> None:
        """Ends the burst if a task was admitted before the first turn."""
        self._meet(mode)
        if not self._bursts:
            return
        for demand in demands:
            key = tenant_id, demand.group
            burst = self._bursts.get(key)
            if burst is not None and now_us < burst.first_us:
                del self._bursts[key]

    def _meet(self, mode: PoolsMode) -> None:
        """Drops all turns when other pools reply."""
        if mode != self._mode:
            self._mode = mode
            self._bursts.clear()


def _limits(grant: Grant, group: BackendGroup) -> tuple[int, int]:
    limits = {balance.unit: balance.limit for balance in grant.balances if balance.group == group}
    return limits["requests"], limits["tokens"]


def _step_us(limits: tuple[int, int], tokens: int) -> int:
    """Returns how long the pools take to refill this task's demand."""
    by_requests_us = -(-60_000_000 // max(1, limits[0]))
    by_tokens_us = -(-tokens * 60_000_000 // max(1, limits[1]))
    # Round up to the script's milliseconds, or the last of many comes a little too early.
    return -(-max(by_requests_us, by_tokens_us) // 1_000) * 1_000
