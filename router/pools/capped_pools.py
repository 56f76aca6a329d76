"""Adds ceilings to pools: a task needs a slot of its group's ceiling before the tenant's pools.

What a ceiling refuses never reaches the pools; what the pools refuse releases its slot.
This is an edge.
"""

from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from backends.contract import BackendGroup
from router.classify.task import Tenant
from router.pools.ceiling_leases import CeilingLeases
from router.pools.failover_pools import FailoverPools
from router.pools.pools import Demand, Grant, PoolsMode, PoolsReport, Reservation, no_slot


class CappedPools:
    """Wraps the methods of `FailoverPools` that tasks use; the caller closes both parts."""

    def __init__(self, pools: FailoverPools, ceiling_leases: CeilingLeases) -> None:
        self._pools = pools
        self._ceiling_leases = ceiling_leases
        self._slots: dict[str, frozenset[BackendGroup]] = {}  # by reservation id
        self.balances, self.accounts = pools.balances, pools.accounts
        self.raise_run, self.forget, self.reap = pools.raise_run, pools.forget, pools.reap

    @property
    def mode(self) -> PoolsMode:
        return self._pools.mode

    @property
    def report(self) -> PoolsReport:
        return self._pools.report

    @property
    def ready(self) -> bool:
        return self._pools.ready

    async def reserve_first(
        self, tenant: Tenant, reservation_id: str, ranked_demands: Sequence[tuple[Demand, ...]]
    ) -> Grant:
        if reservation_id in self._slots:  # a repeated call has its slots
            return await self._pools.reserve_first(tenant, reservation_id, ranked_demands)
        groups = [frozenset(demand.group for demand in demands) for demands in ranked_demands]
        is_cut_off = self.mode != "redis"
        taken = await self._ceiling_leases.take(frozenset().union(*groups), is_cut_off=is_cut_off)
        open_indexes = [index for index, needed in enumerate(groups) if needed <= taken]
        kept: frozenset[BackendGroup] = frozenset()
        try:
            if not open_indexes:
                group = min(groups[0] - taken)
                return no_slot(group, self._ceiling_leases.ceiling(group))
            open_demands = [ranked_demands[index] for index in open_indexes]
            grant = await self._pools.reserve_first(tenant, reservation_id, open_demands)
            if grant.index is None:
                return grant
            index = open_indexes[grant.index]
            kept = self._slots[reservation_id] = groups[index]
            return msgspec.structs.replace(grant, index=index)
        finally:
            self._ceiling_leases.release(taken - kept)

    async def extend(self, reservation: Reservation) -> Reservation:
        held = await self._pools.extend(reservation)
        slots = self._slots.get(reservation.id)
        if slots is not None and held.former is None:
            kept = slots.intersection(demand.group for demand in held.demands)
            self._slots[reservation.id] = kept
            self._ceiling_leases.release(slots - kept)
        return held

    def settle(
        self,
        reservation: Reservation,
        actual_tokens: Mapping[BackendGroup, int],
        nusd: int = 0,
    ) -> Coroutine[Any, Any, None]:
        self._ceiling_leases.release(self._slots.pop(reservation.id, ()))
        return self._pools.settle(reservation, actual_tokens, nusd)


TaskPools: TypeAlias = FailoverPools | CappedPools  # as whoever runs tasks uses them
