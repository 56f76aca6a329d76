"""Settling: what a reservation held is given back and what was used is charged, exactly once.

Besides a task's own reservation there are those of parts of it, which are taken while it runs.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial

from backends.contract import BackendGroup, Usage
from gateway.errors import ProtocolError
from gateway.gateway import Gateway, Live
from gateway.job import Job
from gateway.leases import bring_up_to_date
from router.admission import reached
from router.cost import EVEN, cost_tokens
from router.pools import Demand, Reservation
from router.redis_pools import PoolsUnavailable

logger = logging.getLogger("lanewise")


def start_settlement(
    gw: Gateway, reservation: Reservation, used_tokens: Mapping[BackendGroup, int]
) -> "asyncio.Task[None]":
    """Settle: it is on its way when this returns, and no cancellation reaches it.

    `used_tokens` are weighted; groups that the reservation does not hold are none of its business.
    Returns the wait for the answer.
    """
    live = gw.live.pop(reservation.id, None)
    held = reservation if live is None else live.reservation
    # Also groups that are given back already: if nobody answered then, the pools know which.
    groups = {demand.group for demand in reservation.demands}
    charged = {group: tokens for group, tokens in used_tokens.items() if group in groups}

    sent = gw.pools.settle(held, charged)

    async def answered() -> None:
        try:
            await sent
        finally:
            gw.metrics.settled(held.demands, charged)

    return gw.spawn(answered())


class TaskReservation:
    """What a task itself holds, from its admission on; each group of it is settled once."""

    def __init__(
        self,
        gw: Gateway,
        job: Job,
        reservation: Reservation,
        used: Callable[[], Mapping[BackendGroup, int]],
    ) -> None:
        """`used` says what was used so far, in weighted tokens."""
        self._gw = gw
        self._reservation = reservation
        self._used = used
        self._settlement: asyncio.Task[None] | None = None
        gw.live[reservation.id] = Live(reservation, job, used)

    def give_back(self, group: BackendGroup) -> None:
        """The task is through with a group: its place and unused tokens come back now."""
        live = self._gw.live.get(self._reservation.id)
        if live is None:
            return
        live.over[group] = self._used().get(group, 0)
        if all(demand.group in live.over for demand in live.reservation.demands):
            self.settle()
        else:
            self._gw.spawn(bring_up_to_date(self._gw, live))

    def settle(self) -> "asyncio.Task[None]":
        """Give back all that is left, and charge what was used; repeated, it is the same."""
        if self._settlement is None:
            self._settlement = start_settlement(self._gw, self._reservation, self._used())
        return self._settlement


class SideReservation:
    """What one part of a task holds."""

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
    """Reservations for parts of one response: each taken before its part starts."""

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
        others_wait = partial(gw.waiting.others_wait, tenant.id)
        if gw.gate.shed(group, tenant.id, others_wait) is not None:
            refused(ProtocolError("server_is_overloaded", f"the {group} engines take no more"))
            return
        gw.gate.enter(name, tenant, (group,))  # while it asks, too
        try:
            grant = await gw.pools.reserve_first(tenant, name, ((demand,),))
        except PoolsUnavailable as error:
            gw.gate.leave(name)
            refused(
                ProtocolError("server_is_overloaded", f"the rate-limit pools are away: {error}")
            )
            return
        except Exception:
            logger.exception("a part of task %s could not be reserved for", self._job.parsed.id)
            gw.gate.leave(name)
            refused(ProtocolError("server_error", "the gateway failed"))
            return
        if grant.reservation is None:
            gw.gate.leave(name)
            assert grant.limited_by is not None, "a refused grant names its pool"
            unit = grant.limited_by[1]
            gw.metrics.ratelimit(
                group=group, tier=tenant.tier, result="reject", mode=grant.mode, limited_by=unit
            )
            message = reached(grant.limited_by, grant.wait_us)
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
