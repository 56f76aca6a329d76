"""Settling: what a reservation held is given back and what was used is charged, exactly once.

Besides a task's own reservation there are those of its sub-tasks, which are taken while it runs.
"""

import asyncio
from collections.abc import Callable, Mapping

from backends.contract import BackendGroup, Usage
from gateway.errors import ProtocolError
from gateway.gateway import Gateway, Live
from gateway.job import Job
from router.cost import EVEN, cost_tokens
from router.pools import Demand, Reservation
from router.redis_pools import PoolsUnavailable


def start_settlement(
    gw: Gateway, reservation: Reservation, used_tokens: Mapping[BackendGroup, int]
) -> "asyncio.Task[None]":
    """Settle in a task of its own, so that no cancellation reaches it.

    `used_tokens` are weighted; groups that the reservation does not hold are none of its business.
    """
    live = gw.live.pop(reservation.id, None)
    held = reservation if live is None else live.reservation
    groups = {demand.group for demand in held.demands}
    charged = {group: tokens for group, tokens in used_tokens.items() if group in groups}

    async def settle() -> None:
        try:
            await gw.pools.settle(held, charged)
        finally:
            gw.metrics.settled(held.demands, charged)

    return gw.spawn(settle())


class SideReservation:
    """What one sub-task holds."""

    def __init__(self, owner: "SideReservations", reservation: Reservation) -> None:
        self._owner = owner
        self._reservation = reservation
        self._is_settled = False

    def settle(self, usage: Usage) -> None:
        """Charge what was used; harmless when repeated."""
        if not self._is_settled:
            self._is_settled = True
            self._owner.settle(self._reservation, usage)


class SideReservations:
    """Reservations for the sub-tasks of one response: each taken before its sub-task starts."""

    def __init__(self, gw: Gateway, job: Job) -> None:
        self._gw = gw
        self._job = job
        self._under_way: set[asyncio.Task[None]] = set()

    def take(
        self,
        name: str,
        group: BackendGroup,
        expected: Usage,
        used: Callable[[], Usage],
        granted: Callable[[SideReservation], None],
        refused: Callable[[ProtocolError], None],
    ) -> None:
        """Ask the pools; exactly one of the last two is called, later.

        What is granted must be settled. Cancelling the response does not reach this: whoever is
        granted something then gives it back. `used` says what was used so far.
        """
        call = self._take(name, Demand(group, self._cost(group, expected)), used, granted, refused)
        self._keep(self._gw.spawn(call))

    def settle(self, reservation: Reservation, usage: Usage) -> None:
        """Called by what was granted."""
        (demand,) = reservation.demands
        used_tokens = {demand.group: self._cost(demand.group, usage)}
        self._keep(start_settlement(self._gw, reservation, used_tokens))

    async def settled(self) -> None:
        """Wait until nothing is under way; cancelling the wait cancels nothing else."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    async def _take(
        self,
        name: str,
        demand: Demand,
        used: Callable[[], Usage],
        granted: Callable[[SideReservation], None],
        refused: Callable[[ProtocolError], None],
    ) -> None:
        gw, tenant, group = self._gw, self._job.tenant, demand.group
        try:
            grant = await gw.pools.reserve_first(tenant, name, ((demand,),))
        except PoolsUnavailable as error:
            refused(
                ProtocolError("server_is_overloaded", f"the rate-limit pools are away: {error}")
            )
            return
        if grant.reservation is None:
            unit = grant.limited_by[1] if grant.limited_by else None
            gw.metrics.ratelimit(
                group=group, tier=tenant.tier, result="reject", mode=grant.mode, limited_by=unit
            )
            wait_s = grant.wait_us / 1e6
            message = f"the limit on {unit} of the {group} engines is reached for {wait_s:.1f} s"
            refused(ProtocolError("rate_limit_exceeded", message, retry_after_us=grant.wait_us))
            return
        gw.metrics.ratelimit(group=group, tier=tenant.tier, result="admit", mode=grant.mode)
        gw.metrics.reserved((demand,))
        gw.live[grant.reservation.id] = Live(
            grant.reservation, self._job, lambda: {group: self._cost(group, used())}
        )
        granted(SideReservation(self, grant.reservation))

    def _cost(self, group: BackendGroup, usage: Usage) -> int:
        return cost_tokens(usage, self._gw.weights.get(group, EVEN))

    def _keep(self, under_way: "asyncio.Task[None]") -> None:
        self._under_way.add(under_way)
        under_way.add_done_callback(self._under_way.discard)
