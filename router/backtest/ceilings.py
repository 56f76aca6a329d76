"""Adds ceilings to the pools of a simulation: a task needs a slot of its group's ceiling first.

It is the twin of the gateway's `CappedPools`, for all gateways together: what a ceiling refuses
never reaches the pools.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from backends.contract import BackendGroup
from router.classify.task import Tenant
from router.pools.memory_pools import MemoryPools
from router.pools.pools import Demand, Grant, Reservation, no_slot


class CappedMemoryPools:
    """Wraps the methods of `MemoryPools` that a simulation uses."""

    def __init__(self, ceilings: Mapping[BackendGroup, int]) -> None:
        """`ceilings` are tasks at once on a group, of all tenants; other groups have none."""
        self._pools = MemoryPools()
        self._ceilings = ceilings
        self._left = dict(ceilings)
        self._slots: dict[str, frozenset[BackendGroup]] = {}  # by reservation id

    def reserve_first(
        self,
        tenant: Tenant,
        reservation_id: str,
        ranked_demands: Sequence[tuple[Demand, ...]],
        now_us: int,
    ) -> Grant:
        """Reserves all of the first ranked demands that fit, ceilings included, or nothing."""
        if not self._ceilings:
            return self._pools.reserve_first(tenant, reservation_id, ranked_demands, now_us)
        full = {group for group, left in self._left.items() if left <= 0}
        groups = [frozenset(demand.group for demand in demands) for demands in ranked_demands]
        open_indexes = [index for index, needed in enumerate(groups) if not needed & full]
        if not open_indexes:
            group = min(groups[0] & full)
            return no_slot(group, self._ceilings[group])
        open_demands = [ranked_demands[index] for index in open_indexes]
        grant = self._pools.reserve_first(tenant, reservation_id, open_demands, now_us)
        if grant.index is None:
            return grant
        index = open_indexes[grant.index]
        self._slots[reservation_id] = groups[index]
        self._count(groups[index], -1)
        return msgspec.structs.replace(grant, index=index)

    def extend(self, reservation: Reservation, now_us: int) -> bool:
        """Reserves or releases what a reservation gained or lost."""
        slots = self._slots.get(reservation.id)
        if slots is not None:
            kept = slots.intersection(demand.group for demand in reservation.demands)
            self._slots[reservation.id] = kept
            self._count(slots - kept, 1)
        return self._pools.extend(reservation, now_us)

    def settle(
        self, reservation: Reservation, used: Mapping[BackendGroup, int], now_us: int
    ) -> None:
        """Releases the slots and charges the tokens used."""
        self._count(self._slots.pop(reservation.id, ()), 1)
        self._pools.settle(reservation, used, now_us)

    def renew(self, reservations: Sequence[Reservation], now_us: int) -> None:
        """Renews leases."""
        self._pools.renew(reservations, now_us)

    def _count(self, groups: Iterable[BackendGroup], change: int) -> None:
        for group in groups:
            if group in self._left:
                self._left[group] += change
