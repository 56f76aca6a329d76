"""Gets the feed's figures from this process, or from all workers through their supervisor.

This is an edge.
"""

from collections.abc import Awaitable, Callable, Iterable
from itertools import chain
from typing import Any

import msgspec

from gateway.access.auth import Keys
from gateway.core.gateway import Gateway
from gateway.fleet.fleet import Fleet
from gateway.live.feed import Feed
from gateway.live.sample import MAX_DECISIONS, WorkerSample, backend_sample
from gateway.store.policy_watch import PolicyWatch
from gateway.wire.routing import pool_balances
from router.classify.task import Tenant
from router.pools.pools import Balance
from router.pools.redis_pools import PoolsUnavailable
from router.record.recording import DecisionRecord

UNREADABLE = "Redis cannot use its keys: one has another type (docs/pools.md)."


def worker_sample(gw: Gateway, keys: Keys, policies: PolicyWatch) -> WorkerSample:
    """Takes a sample of this process."""
    gw.metrics.count_observed()  # the tasks that have ended since the last look
    counts = gw.metrics.counts
    recent = gw.recorder.recent if gw.recorder is not None else ()
    in_force = policies.current
    return WorkerSample(
        at=gw.unix_s(),
        draining=gw.state.draining,
        pools=gw.pools.mode,
        num_gateways=gw.pools.report.num_heard,
        keys_current=keys.tenant_view.is_current,
        keys_lost=keys.tenant_view.is_lost,
        policy=gw.state.policy.version,
        policy_source=in_force.source,
        shadow=in_force.shadow_version,
        running=gw.state.num_tasks,
        connections=int(counts["lanewise_ws_connections"][()].value),
        ended={
            " ".join(labels): int(count.value)
            for labels, count in counts["lanewise_requests_total"].items()
            if count.value
        },
        backends=[backend_sample(stats) for stats in gw.backend_stats()],
        decisions=list(recent)[-MAX_DECISIONS:],
    )


async def shown_pools(
    tenant: Tenant, read: Callable[[Tenant], Awaitable[tuple[Balance, ...]]]
) -> dict[str, Any]:
    """Returns what is shown of a tenant's pools: why, too, where Redis cannot use them alone.

    Raises `PoolsUnavailable` if Redis answers for nobody.
    """
    try:
        balances = pool_balances(await read(tenant))
    except PoolsUnavailable as error:
        if not error.is_of_tenant:
            raise
        return {"tenant": tenant.id, "pools": [], "fault": UNREADABLE}
    return {"tenant": tenant.id, "pools": msgspec.to_builtins(balances)}


def make_feed(
    gw: Gateway, keys: Keys, policies: PolicyWatch, fleet: Fleet | None, num_workers: int
) -> Feed:
    """Makes the feed of a gateway, or of one worker for all of them."""

    async def take_samples() -> list[WorkerSample]:
        if fleet is None:
            return [worker_sample(gw, keys, policies)]
        answers = await fleet.gather("live")
        return [msgspec.json.decode(each, type=WorkerSample) for each in answers]

    async def read_records() -> Iterable[DecisionRecord]:
        if fleet is None:
            return list(gw.recorder.recent) if gw.recorder is not None else []
        answers = await fleet.gather("decisions")
        of_all = [msgspec.json.decode(each, type=list[DecisionRecord]) for each in answers]
        return sorted(chain(*of_all), key=lambda record: record.at)

    async def read_pools(tenant_ids: list[str]) -> list[dict[str, Any]]:
        known = map(keys.tenant_view.tenant, tenant_ids)
        return [await shown_pools(each, gw.pools.balances) for each in known if each is not None]

    return Feed(take_samples, read_pools, read_records, num_workers)
