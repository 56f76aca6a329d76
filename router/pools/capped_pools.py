"""`FailoverPools` under ceilings: a task needs a place of its group's engines as well as its pools.

The place is taken first, in memory; so what a ceiling refuses never reaches the tenant's pools, and
what the pools refuse gives its place back.

An edge: it calls other edges.
"""

from collections.abc import Coroutine, Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec

from backends.contract import BackendGroup
from router.classify.task import Tenant
from router.pools.ceiling_leases import CeilingLeases
from router.pools.failover_pools import FailoverPools
from router.pools.pools import Balance, Demand, Grant, Reservation

FULL_WAIT_US = 1_000_000  # nobody knows when a place falls free


class CappedPools(FailoverPools):
    """See the module. Closing it closes its leases."""

    ceiling_leases: CeilingLeases | None = None  # None: no group has a ceiling

    @cached_property
    def _placed(self) -> dict[str, frozenset[BackendGroup]]:
        """Reservation id -> groups of which it has a place."""
        return {}

    async def reserve_first(
        self, tenant: Tenant, reservation_id: str, ranked_demands: Sequence[tuple[Demand, ...]]
    ) -> Grant:
        ceiling_leases = self.ceiling_leases
        if (
            ceiling_leases is None or reservation_id in self._placed
        ):  # a repeated call has its places
            return await super().reserve_first(tenant, reservation_id, ranked_demands)
        groups = [frozenset(demand.group for demand in demands) for demands in ranked_demands]
        is_cut_off = self.mode != "redis"
        taken = await ceiling_leases.take(frozenset().union(*groups), is_cut_off=is_cut_off)
        open_places = [place for place, needed in enumerate(groups) if needed <= taken]
        kept: frozenset[BackendGroup] = frozenset()
        try:
            if not open_places:
                return _full(ceiling_leases, min(groups[0] - taken))
            open_demands = [ranked_demands[place] for place in open_places]
            grant = await super().reserve_first(tenant, reservation_id, open_demands)
            if grant.index is None:
                return grant
            index = open_places[grant.index]
            kept = self._placed[reservation_id] = groups[index]
            return msgspec.structs.replace(grant, index=index)
        finally:
            ceiling_leases.give_back(taken - kept)

    async def extend(self, reservation: Reservation) -> Reservation:
        held = await super().extend(reservation)
        placed = self._placed.get(reservation.id)
        if placed is not None and self.ceiling_leases is not None and held.former is None:
            kept = placed.intersection(demand.group for demand in held.demands)
            self._placed[reservation.id] = kept
            self.ceiling_leases.give_back(placed - kept)
        return held

    def settle(
        self, reservation: Reservation, actual_tokens: Mapping[BackendGroup, int]
    ) -> Coroutine[Any, Any, None]:
        if self.ceiling_leases is not None:
            self.ceiling_leases.give_back(self._placed.pop(reservation.id, ()))
        return super().settle(reservation, actual_tokens)

    async def close(self) -> None:
        if self.ceiling_leases is not None:
            await self.ceiling_leases.close()
        await super().close()

    async def share(self) -> None:
        """Say that this gateway lives, and even out places. Call it four times a second."""
        if self.ceiling_leases is not None:
            await self.ceiling_leases.tick()


def _full(ceiling_leases: CeilingLeases, group: BackendGroup) -> Grant:
    balances = (Balance(group, "concurrent", ceiling_leases.ceiling(group), 0, 0),)
    return Grant(None, None, balances, FULL_WAIT_US, (group, "concurrent"))
