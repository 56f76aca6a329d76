"""Judges keys' own limits while Redis is away: by the part of each that `local_pools` gives.

Each outage begins with full pools, and a key's places count the tasks that were granted in it.
"""

from collections.abc import Mapping

from backends.contract import BackendGroup
from router.classify.task import GroupLimits, Tenant
from router.pools import bucket
from router.pools.bucket import BucketState
from router.pools.pools import (
    KEY_UNITS,
    Grant,
    Ranked,
    Reservation,
    all_balances,
    key_of,
    longest_wait,
)

MAX_KEYS = 10_000  # remembered; the first to come is forgotten first

_Pools = dict[BackendGroup, tuple[BucketState, GroupLimits]]


class LocalKeys:
    """Counts what this gateway grants to keys that have limits of their own."""

    def __init__(self) -> None:
        self._pools: dict[tuple[str, str], _Pools] = {}
        self._held: set[str] = set()  # reservations that these pools were charged for

    def clear(self) -> None:
        """Forgets all: an outage begins or ends."""
        self._pools.clear()
        self._held.clear()

    def fitting(
        self,
        tenant: Tenant,
        ranked: Ranked,
        parts: Mapping[BackendGroup, GroupLimits],
        now_ms: int,
    ) -> tuple[Ranked, Grant | None]:
        """Returns the demands that fit the key's `parts` of its limits; if none, the refusal."""
        pools = self._pools.get((tenant.id, tenant.key_id))
        if pools is None:
            if len(self._pools) >= MAX_KEYS:
                del self._pools[next(iter(self._pools))]
            pools = self._pools[tenant.id, tenant.key_id] = {}
        for group, limits in parts.items():
            known = pools.get(group)
            state = bucket.new_state(limits, now_ms) if known is None else known[0]
            bucket.refill(state, limits, now_ms)
            pools[group] = state, limits
        states = {group: pools[group][0] for group in parts}
        waits = [longest_wait(demands, states, parts, KEY_UNITS) for _, demands in ranked]
        fits = [each for each, wait in zip(ranked, waits, strict=True) if not wait[0]]
        if fits:
            return fits, None
        wait_ms, limited_by = min(waits, key=lambda wait: wait[0])
        balances = all_balances(states, parts, KEY_UNITS)
        refusal = Grant(None, None, balances, wait_ms * 1_000, limited_by, mode="degraded")
        return ranked, refusal

    def hold(self, reservation: Reservation) -> None:
        """Takes what was granted here."""
        self._held.add(reservation.id)
        pools = self._pools.get((reservation.tenant_id, key_of(reservation.hold)), {})
        for demand in reservation.demands:
            if demand.group in pools:
                bucket.reserve(*pools[demand.group], demand.tokens)

    def settle(self, reservation: Reservation, used_tokens: Mapping[BackendGroup, int]) -> None:
        """Gives back what was granted here, and charges what was used.

        What an earlier outage granted was taken from pools that are forgotten, and changes nothing.
        """
        if reservation.id not in self._held:
            return
        self._held.discard(reservation.id)
        pools = self._pools.get((reservation.tenant_id, key_of(reservation.hold)), {})
        for demand in reservation.demands:
            if demand.group in pools:
                used = used_tokens.get(demand.group, 0)
                bucket.settle(*pools[demand.group], demand.tokens, used)
