"""What a gateway does for ever beside its tasks, and how that is stopped.

An edge: it uses the event loop and the log.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from gateway.config.config import Config
from gateway.core.adaptation import Adaptation
from gateway.core.gateway import Gateway
from gateway.run.leases import extend_outgrown, reap_leases
from gateway.transport.gc_freeze import keep_heap
from router.pools.capped_pools import CappedPools

logger = logging.getLogger("lanewise")

RENEW_INTERVAL_S = 10.0  # a third of a lease
CHECK_INTERVAL_S = 1.0
SHARE_PLACES_INTERVAL_S = 0.25
TEND_INTERVAL_S = 0.4  # so that what a crash left is back within a lease and a second
ADAPT_INTERVAL_S = 1.0


def maintenance(
    config: Config, gw: Gateway, pools: CappedPools
) -> tuple[Coroutine[Any, Any, None], ...]:
    """What goes on for ever beside the tasks."""
    return (
        every(RENEW_INTERVAL_S, pools.renew),
        _check_pools(pools),
        every(CHECK_INTERVAL_S, partial(extend_outgrown, gw)),
        every(TEND_INTERVAL_S, partial(reap_leases, gw)),
        every(SHARE_PLACES_INTERVAL_S, pools.share),
        every(CHECK_INTERVAL_S, partial(_cut_stalled, gw, config.server.send_timeout_s)),
        every(config.server.heartbeat_s, partial(_heartbeats, gw)),
        gw.metrics.watch_loop(),
        every(CHECK_INTERVAL_S, partial(keep_heap, gw.socket_ages)),
        *_duties_of_adaptation(config, gw),
    )


def _duties_of_adaptation(config: Config, gw: Gateway) -> list[Coroutine[Any, Any, None]]:
    """What keeps capacity in step with demand, where the configuration asks for that."""
    if not config.adaptation.groups:
        return []
    adaptation = gw.adaptation = Adaptation(
        config.adaptation,
        limiter=gw.limiter,
        waiting=gw.waiting,
        stats=gw.backend_stats,
        clock_us=gw.clock_us,
        metrics=gw.metrics,
    )
    return [every(ADAPT_INTERVAL_S, adaptation.tick)]


async def every(interval_s: float, act: Callable[[], Awaitable[None]]) -> None:
    """Do something again and again, for ever; a failure is logged and the next time comes."""
    while True:
        await asyncio.sleep(interval_s)
        try:
            await act()
        except Exception:
            logger.exception("a periodic duty failed")


async def _check_pools(pools: CappedPools) -> None:
    """Watch Redis for ever, more closely while something is wrong."""
    while True:
        await asyncio.sleep(pools.pause_us / 1e6)
        try:
            await pools.check()
        except Exception:
            logger.exception("the look at Redis failed")


async def _cut_stalled(gw: Gateway, send_timeout_s: float) -> None:
    """Look for readers that have not taken a write for too long, and cut them."""
    now_s = asyncio.get_running_loop().time()
    for outbox, cut in list(gw.outboxes.items()):
        since_s = outbox.blocked_since_s
        if since_s is not None and now_s - since_s > send_timeout_s:
            gw.metrics.counts["lanewise_ws_send_stalls_total"][()].inc()
            cut()


async def _heartbeats(gw: Gateway) -> None:
    """Let responses that have been silent since the last time show that they live."""
    for live in list(gw.live.values()):
        writer = live.job.writer
        if writer.num_events == live.num_events:
            writer.heartbeat()
        live.num_events = writer.num_events
