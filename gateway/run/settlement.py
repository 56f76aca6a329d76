"""Settles a task's reservation exactly once: releases it and charges what was used.

`side_reservations` does the same for parts of a task. This is an edge.
"""

import asyncio
from collections.abc import Callable, Mapping

from backends.contract import BackendGroup
from gateway.core.gateway import Gateway, ReservationInUse
from gateway.core.job import Job
from gateway.run.leases import bring_up_to_date
from router.pools.pools import Reservation


def start_settlement(
    gw: Gateway,
    reservation: Reservation,
    used_tokens: Mapping[BackendGroup, int],
    nusd: int = 0,
) -> "asyncio.Task[None]":
    """Sends a settlement, which no cancellation stops; returns the wait for its reply.

    `used_tokens` are weighted, and groups outside of the reservation are ignored; `nusd` is the
    money that was spent.
    """
    in_use = gw.in_use.pop(reservation.id, None)
    held = reservation if in_use is None else in_use.reservation
    charged: dict[BackendGroup, int] = {}
    for demand in reservation.demands:  # released ones, too, in case that call had no reply
        if demand.group in used_tokens:
            charged[demand.group] = used_tokens[demand.group]
    sent = gw.pools.settle(held, charged, nusd) if held.hold else gw.pools.settle(held, charged)
    gw.metrics.settled(held.demands, charged)  # whatever becomes of the reply
    return gw.spawn(sent)


class TaskReservation:
    """Holds a task's own reservation, and settles each group of it once."""

    def __init__(
        self,
        gw: Gateway,
        job: Job,
        reservation: Reservation,
        used: Callable[[], Mapping[BackendGroup, int]],
        spent_nusd: Callable[[], int],
    ) -> None:
        """Registers the reservation; `used` returns the weighted tokens used so far."""
        self._gw = gw
        self._reservation = reservation
        self._used = used
        self._spent_nusd = spent_nusd
        self._settlement: asyncio.Task[None] | None = None
        gw.in_use[reservation.id] = ReservationInUse(reservation, job, used)

    def release(self, group: BackendGroup) -> None:
        """Releases a group that the task needs no more: its slot and unused tokens."""
        in_use = self._gw.in_use.get(self._reservation.id)
        if in_use is None:
            return
        in_use.over[group] = self._used().get(group, 0)
        if all(demand.group in in_use.over for demand in in_use.reservation.demands):
            self.settle()
        else:
            self._gw.spawn(bring_up_to_date(self._gw, in_use))

    def settle(self) -> "asyncio.Task[None]":
        """Releases what is left, and charges what was used; harmless when repeated."""
        if self._settlement is None:
            nusd = self._spent_nusd() if self._reservation.hold else 0
            self._settlement = start_settlement(self._gw, self._reservation, self._used(), nusd)
        return self._settlement
