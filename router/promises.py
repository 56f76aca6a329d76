"""Waits that are told, so that each is true: whoever is refused gets a turn of their own.

A pool that is empty refuses a burst, and each of them would fit after the same wait; but only one
of them. So each is told a time after the one before, apart by what its task takes to refill. It is
no reservation: whoever comes may have what is there. It only keeps those who do as they are told
from coming all at once, and in vain.
"""

from backends.contract import BackendGroup
from router.bucket import PLACE_WAIT_MS
from router.pools import Grant

MAX_SPREAD_US = 60_000_000  # what turns add at most; clients of OpenAI heed no longer waits
MAX_KEPT = 10_000  # tenants with turns


class Promises:
    """The turns told so far. `now_us` never goes back."""

    def __init__(self) -> None:
        self._last_us: dict[tuple[str, BackendGroup], int] = {}  # the latest turn told

    def wait_us(self, tenant_id: str, grant: Grant, tokens: int, least_us: int, now_us: int) -> int:
        """How long to tell this one to wait: `least_us`, or until after those told before."""
        assert grant.limited_by is not None, "a refused grant names its pool"
        key = tenant_id, grant.limited_by[0]
        turn_us = now_us + least_us
        if key in self._last_us:
            # At its turn the one before takes all there is, and what this one takes comes after.
            after_us = self._last_us[key] + _step_us(grant, tokens)
            turn_us = max(turn_us, min(after_us, turn_us + MAX_SPREAD_US))
        elif len(self._last_us) >= MAX_KEPT:
            self._forget(now_us)
        self._last_us[key] = turn_us
        return turn_us - now_us

    def _forget(self, now_us: int) -> None:
        """Drop the turns that are over; if none is, all: the worst is a turn told twice."""
        left = {key: turn_us for key, turn_us in self._last_us.items() if turn_us > now_us}
        self._last_us = left if len(left) < MAX_KEPT else {}


def _step_us(grant: Grant, tokens: int) -> int:
    """How long until the pools have what this task takes, besides what they must have before."""
    assert grant.limited_by is not None
    group, unit = grant.limited_by
    limits = {balance.unit: balance.limit for balance in grant.balances if balance.group == group}
    if unit == "tokens_day":
        return 0  # it comes back all at once
    if unit == "concurrent":
        return PLACE_WAIT_MS * 1_000 // max(1, limits["concurrent"])
    by_requests_us = -(-60_000_000 // max(1, limits["requests"]))
    by_tokens_us = -(-tokens * 60_000_000 // max(1, limits["tokens"]))
    # Round up to the script's milliseconds, or the last of many comes a little too early.
    return -(-max(by_requests_us, by_tokens_us) // 1_000) * 1_000
