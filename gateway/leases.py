"""Apart from the token path: reservations that streams have outgrown hold more, once a second.

So the pools know of tokens while they flow, not only when an answer ends. Nothing is cut for it:
what does not fit becomes a debt, which the tenant's next task waits for.
"""

import asyncio

from gateway.gateway import Gateway, Live
from router.admission import outgrown
from router.pools import Reservation


async def extend_outgrown(gw: Gateway) -> None:
    """Extend what has been outgrown; an extension without an answer is repeated the next time."""
    calls = []
    for live in list(gw.live.values()):
        grown = outgrown(live.reservation, live.used())
        if grown is not None:
            gw.metrics.extended(live.reservation.demands, grown.demands)
            live.reservation = grown  # now: a settlement meanwhile must know both leases
            calls.append(_extend(gw, live, grown))
    await asyncio.gather(*calls)


async def tend_leases(gw: Gateway) -> None:
    """Give back what crashed gateways held, also of tenants that ask for nothing any more."""
    num_reaped = await gw.pools.tend()
    if num_reaped:
        gw.metrics.reaped(num_reaped)


async def _extend(gw: Gateway, live: Live, grown: Reservation) -> None:
    held = await gw.pools.extend(grown)
    if live.reservation is grown and live.reservation.id in gw.live:
        gw.metrics.extended(grown.demands, held.demands)
        live.reservation = held
