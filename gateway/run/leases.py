"""Beside the token path: what a running task holds follows what it uses.

Once a second, reservations that streams have outgrown hold more. So the pools know of tokens while
they flow, not only when an answer ends. No stream is cut for it: what does not fit becomes a debt,
which the tenant's next task waits for. A task releases a group at once that it needs no more: the
slot, and the tokens that only a part of its strategy needed.

An edge: it uses the event loop.
"""

import asyncio

from gateway.core.gateway import Gateway, Live
from router.decide.admission import outgrown
from router.pools.pools import Reservation, shrunk


async def extend_outgrown(gw: Gateway) -> None:
    """Bring all of them up to date; a call without an answer is repeated the next time."""
    changing = [live for live in gw.live.values() if _next_change(live) is not None]
    await asyncio.gather(*(bring_up_to_date(gw, live) for live in changing))


async def bring_up_to_date(gw: Gateway, live: Live) -> None:
    """Make one reservation hold what its task needs; one call about it at a time."""
    if live.is_changing:
        return
    live.is_changing = True
    try:
        while gw.live.get(live.reservation.id) is live:
            wanted = _next_change(live)
            if wanted is None or not await _change(gw, live, wanted):
                return
    finally:
        live.is_changing = False


async def reap_leases(gw: Gateway) -> None:
    """Release what crashed gateways held, also of tenants that send no more tasks."""
    num_reaped = await gw.pools.reap()
    if num_reaped:
        gw.metrics.counts["lanewise_ratelimit_reaped_total"][()].inc(num_reaped)


def _next_change(live: Live) -> Reservation | None:
    """What to make of a reservation; None: it is as it should be."""
    held = live.reservation
    if held.former is not None:
        return held  # without an answer yet: the same again
    over = {d.group: live.over[d.group] for d in held.demands if d.group in live.over}
    return shrunk(held, over) if over else outgrown(held, live.used())


async def _change(gw: Gateway, live: Live, wanted: Reservation) -> bool:
    """Whether it became so."""
    before = live.reservation.demands
    if not wanted.released:
        gw.metrics.extended(before, wanted.demands)
        live.reservation = wanted  # now: a settlement meanwhile is of what it may have become
    held = await gw.pools.extend(wanted)
    if gw.live.get(held.id) is not live:
        return False  # settled meanwhile
    kept = {demand.group for demand in held.demands}
    given_back = tuple(demand for demand in live.reservation.demands if demand.group not in kept)
    live.reservation = held
    if given_back:
        gw.metrics.settled(given_back, dict(wanted.released))
        gw.waiting.shrunk(held, given_back)
    elif not wanted.released:
        gw.metrics.extended(wanted.demands, held.demands)
    return held.former is None and held.lease == wanted.lease
