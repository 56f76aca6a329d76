"""The feed has one sampler, however its watchers come."""

import asyncio
from collections.abc import Iterable
from typing import Any

from gateway.live.feed import MAX_WATCHERS, Feed
from gateway.live.sample import WorkerSample
from gateway.wire.errors import ProtocolError
from router.record.recording import DecisionRecord

SAMPLE = WorkerSample(
    at=1.0,
    draining=False,
    pools="redis",
    num_gateways=1,
    keys_current=True,
    policy="default",
    policy_source="configured",
    shadow=0,
    running=0,
    connections=0,
    ended={},
    backends=[],
    decisions=[],
)


async def take_samples() -> list[WorkerSample]:
    await asyncio.sleep(0)  # as where workers are asked
    return [SAMPLE]


async def read_pools(tenant_ids: list[str]) -> list[dict[str, Any]]:
    return []


async def read_records() -> Iterable[DecisionRecord]:
    return ()


async def test_watchers_that_come_at_once_share_a_sampler() -> None:
    mine = asyncio.all_tasks()
    feed = Feed(take_samples, read_pools, read_records, 1)
    watches = [feed.watch() for _ in range(3)]
    await asyncio.gather(*(anext(watch) for watch in watches))
    assert len(asyncio.all_tasks() - mine) == 1
    for watch in watches:
        await watch.aclose()
    await feed.close()
    assert asyncio.all_tasks() == mine


async def test_no_more_watch_than_may_however_they_come() -> None:
    feed = Feed(take_samples, read_pools, read_records, 1)
    watches = [feed.watch() for _ in range(MAX_WATCHERS + 3)]
    firsts = await asyncio.gather(*(anext(watch) for watch in watches), return_exceptions=True)
    refused = [first for first in firsts if isinstance(first, ProtocolError)]
    assert len(refused) == 3
    for watch in watches:
        await watch.aclose()
    await feed.close()
