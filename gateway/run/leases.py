"""Adjusts the reservations of running tasks to what they use, beside the token path.

Once a second, reservations that streams have outgrown are extended, so that the pools know of
tokens before a response ends. No stream is stopped for it: the excess becomes a debt, which delays
the tenant's next task. A group that a task needs no more is released at once, slot and tokens.
This is an edge.
"""

import asyncio

from gateway.core.gateway import Gateway, ReservationInUse
from router.decide.admission import outgrown
from router.pools.pools import Reservation, shrunk


async def extend_outgrown(gw: Gateway) -> None:
    """Extends all outgrown reservations; a call without a reply is repeated the next time."""
    changing = [in_use for in_use in gw.in_use.values() if _next_change(in_use) is not None]
    await asyncio.gather(*(bring_up_to_date(gw, in_use) for in_use in changing))


async def bring_up_to_date(gw: Gateway, in_use: ReservationInUse) -> None:
    """Adjusts one reservation to its task's needs, with one call at a time."""
    if in_use.is_changing:
        return
    in_use.is_changing = True
    try:
        while gw.in_use.get(in_use.reservation.id) is in_use:
            wanted = _next_change(in_use)
            if wanted is None or not await _change(gw, in_use, wanted):
                return
    finally:
        in_use.is_changing = False


async def reap_leases(gw: Gateway) -> None:
    """Releases the reservations of crashed gateways."""
    num_reaped = await gw.pools.reap()
    if num_reaped:
        gw.metrics.counts["lanewise_ratelimit_reaped_total"][()].inc(num_reaped)


def _next_change(in_use: ReservationInUse) -> Reservation | None:
    """Returns the reservation as it should be; None if it already is."""
    held = in_use.reservation
    if held.former is not None:
        return held  # the last change had no reply: repeat it
    over = {d.group: in_use.over[d.group] for d in held.demands if d.group in in_use.over}
    return shrunk(held, over) if over else outgrown(held, in_use.used())


async def _change(gw: Gateway, in_use: ReservationInUse, wanted: Reservation) -> bool:
    """Applies a change; returns whether it was made."""
    before = in_use.reservation.demands
    if not wanted.released:
        gw.metrics.extended(before, wanted.demands)
        in_use.reservation = wanted  # now, since a settlement may come meanwhile
    held = await gw.pools.extend(wanted)
    if gw.in_use.get(held.id) is not in_use:
        return False  # settled meanwhile
    kept = {demand.group for demand in held.demands}
    given_back = tuple(demand for demand in in_use.reservation.demands if demand.group not in kept)
    in_use.reservation = held
    if given_back:
        gw.metrics.settled(given_back, dict(wanted.released))
        gw.waiting.shrunk(held, given_back)
    elif not wanted.released:
        gw.metrics.extended(wanted.demands, held.demands)
    return held.former is None and held.lease == wanted.lease
