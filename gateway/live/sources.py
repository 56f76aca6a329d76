"""Gets the feed's figures from this process, or from all workers through their supervisor.

This is an edge.
"""

from collections.abc import Iterable
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
from router.record.recording import DecisionRecord


def worker_sample(gw: Gateway, keys: Keys, policies: PolicyWatch) -> WorkerSample:
    """Takes a sample of this process."""
    counts = gw.metrics.counts
    recent = gw.recorder.recent if gw.recorder is not None else ()
    in_force = policies.current
    return WorkerSample(
        at=gw.unix_s(),
        draining=gw.state.draining,
        pools=gw.pools.mode,
        num_gateways=gw.pools.report.num_heard,
        keys_current=keys.tenant_view.is_current,
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
        found: list[dict[str, Any]] = []
        for tenant_id in tenant_ids:
            tenant = keys.tenant_view.tenant(tenant_id)
            if tenant is not None:
                balances = pool_balances(await gw.pools.balances(tenant))
                found.append({"tenant": tenant_id, "pools": msgspec.to_builtins(balances)})
        return found

    return Feed(take_samples, read_pools, read_records, num_workers)
