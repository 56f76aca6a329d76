"""Runs the periodic tasks of a gateway. This is an edge."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from backends.drive.beats import beat
from gateway.config.config import Config
from gateway.core.gateway import Gateway
from gateway.run.leases import extend_outgrown, reap_leases
from gateway.store.evictions import evicts_all, has_evicted
from gateway.transport.gc_freeze import thaw_and_trim
from router.pools.ceiling_leases import CeilingLeases
from router.pools.failover_pools import FailoverPools

logger = logging.getLogger("lanewise")

RENEW_INTERVAL_S = 10.0  # a third of a lease
CHECK_INTERVAL_S = 1.0
CEILINGS_INTERVAL_S = 0.25
REAP_INTERVAL_S = 0.5  # a crash's reservations are free within a lease and a second
ADAPT_INTERVAL_S = 1.0
EVICTIONS_INTERVAL_S = 600.0
EVICTIONS_RETRY_S = 10.0  # where Redis did not answer


def maintenance(
    config: Config, gw: Gateway, pools: FailoverPools, ceiling_leases: CeilingLeases | None
) -> list[Coroutine[Any, Any, None]]:
    """Returns the periodic tasks, to be run until cancelled."""
    tasks = [
        every(RENEW_INTERVAL_S, pools.renew),
        _check_pools(pools),
        every(CHECK_INTERVAL_S, partial(extend_outgrown, gw)),
        every(REAP_INTERVAL_S, partial(reap_leases, gw)),
        every(CHECK_INTERVAL_S, partial(_cut_stalled, gw, config.server.send_timeout_s)),
        every(config.server.heartbeat_s, partial(_heartbeats, gw)),
        gw.metrics.watch_loop(),
        every(CHECK_INTERVAL_S, gw.store.share),
        every(CHECK_INTERVAL_S, partial(_count_bytes, gw)),
        every(CHECK_INTERVAL_S, partial(thaw_and_trim, gw.socket_ages)),
    ]
    if ceiling_leases is not None:
        tasks.append(every(CEILINGS_INTERVAL_S, ceiling_leases.tick))
    if gw.adaptation is not None:
        tasks.append(every(ADAPT_INTERVAL_S, gw.adaptation.tick))
    return tasks


async def every(interval_s: float, act: Callable[[], Awaitable[None]]) -> None:
    """Calls `act` periodically until cancelled; logs failures and goes on."""
    while True:
        await beat(interval_s)
        try:
            await act()
        except Exception:
            logger.exception("a periodic task failed")


async def follow_evictions(redis: Redis) -> None:
    """Logs at the start, and whenever more was dropped, what Redis may lose; until cancelled."""
    told: str | None = None
    while True:
        try:
            info: Any = await redis.info()
        except (RedisError, OSError):
            await asyncio.sleep(EVICTIONS_RETRY_S)
            continue
        said = evicts_all(info) or has_evicted(info)
        if said not in (None, told):
            logger.warning("Redis: %s (docs/operations.md, Redis; or `lanewise doctor`)", said)
        told = said
        await asyncio.sleep(EVICTIONS_INTERVAL_S)


async def _check_pools(pools: FailoverPools) -> None:
    """Checks Redis until cancelled, more often while something is wrong."""
    while True:
        await beat(pools.pause_us / 1e6)
        try:
            await pools.check()
        except Exception:
            logger.exception("the look at Redis failed")


async def _cut_stalled(gw: Gateway, send_timeout_s: float) -> None:
    """Closes connections whose client has not taken a write for too long."""
    now_s = asyncio.get_running_loop().time()
    for outbox, cut in list(gw.outboxes.items()):
        since_s = outbox.blocked_since_s
        if since_s is not None and now_s - since_s > send_timeout_s:
            cut()


async def _count_bytes(gw: Gateway) -> None:
    """Takes over what the budgets counted since the last time."""
    counts, budgets = gw.metrics.counts, gw.budgets
    held = counts["lanewise_tenant_memory_bytes"]
    held[("in_flight",)].set(budgets.in_flight.num_bytes)
    held[("remembered",)].set(budgets.memory.num_bytes)
    # They only grow, and nobody else counts them.
    counts["lanewise_memory_refused_total"][()].set(budgets.in_flight.num_refused)
    counts["lanewise_memory_forgotten_total"][()].set(budgets.memory.num_dropped)


async def _heartbeats(gw: Gateway) -> None:
    """Sends a heartbeat on responses that were silent since the last one."""
    for in_use in list(gw.in_use.values()):
        writer = in_use.job.writer
        if writer.num_events == in_use.num_events:
            writer.heartbeat()
        in_use.num_events = writer.num_events
