"""Settling: a reservation is released and what was used is charged, exactly once.

Besides a task's own reservation there are those of parts of it: `side_reservations`.

An edge: it uses the event loop.
"""

import asyncio
from collections.abc import Callable, Mapping

from backends.contract import BackendGroup
from gateway.core.gateway import Gateway, Live
from gateway.core.job import Job
from gateway.run.leases import bring_up_to_date
from router.pools.pools import Reservation


def start_settlement(
    gw: Gateway, reservation: Reservation, used_tokens: Mapping[BackendGroup, int]
) -> "asyncio.Task[None]":
    """Settle: it is on its way when this returns, and no cancellation reaches it.

    `used_tokens` are weighted; groups that the reservation does not hold are none of its business.
    Returns the wait for the answer.
    """
    live = gw.live.pop(reservation.id, None)
    held = reservation if live is None else live.reservation
    # Also groups that are released already: if nobody answered then, the pools know which.
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

    def release(self, group: BackendGroup) -> None:
        """Release the slot and the unused tokens of a group that the task needs no more."""
        live = self._gw.live.get(self._reservation.id)
        if live is None:
            return
        live.over[group] = self._used().get(group, 0)
        if all(demand.group in live.over for demand in live.reservation.demands):
            self.settle()
        else:
            self._gw.spawn(bring_up_to_date(self._gw, live))

    def settle(self) -> "asyncio.Task[None]":
        """Release all that is left, and charge what was used; harmless when repeated."""
        if self._settlement is None:
            self._settlement = start_settlement(self._gw, self._reservation, self._used())
        return self._settlement
