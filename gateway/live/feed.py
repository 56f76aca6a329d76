"""Tells watchers what changes: one sampler for all of them, and none while nobody watches.

This is an edge.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import Any

import msgspec

from gateway.live.history import POINT_S, History
from gateway.live.problems import ProblemWatch
from gateway.live.sample import GatewaySample, WorkerSample, point_between, together
from gateway.wire.errors import ProtocolError
from router.pools.redis_pools import PoolsUnavailable
from router.record.recording import DecisionRecord
from router.redis.cancelling import cancelled

logger = logging.getLogger("lanewise")

SAMPLE_S = 0.25  # at most four changes a second
POOLS_S = 1.0  # between two looks at the tenants' pools, which ask Redis
ALIVE_S = 1.0  # without a change, after which a watcher hears that it still is so
MAX_WATCHERS = 64
MAX_QUEUED = 8  # changes that a slow watcher lags behind, before it begins anew with a snapshot
MAX_WATCH_S = 3_600.0  # then the page asks again, with a key that must still hold
MAX_TENANTS = 8  # whose pools are shown: those of the latest decisions

Sections = dict[str, Any]  # name -> what the page shows there
TakeSamples = Callable[[], Awaitable[list[WorkerSample]]]
# Takes tenants' ids and returns their pools; raises if Redis answers for none of them.
ReadPools = Callable[[list[str]], Awaitable[list[dict[str, Any]]]]


def event(name: str, sections: Sections) -> bytes:
    """Encodes a server-sent event."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(sections))


class Feed:
    """Holds the sampler and its watchers, of one process."""

    def __init__(
        self,
        take_samples: TakeSamples,
        read_pools: ReadPools,
        read_records: Callable[[], Awaitable[Iterable[DecisionRecord]]],
        num_workers: int,
    ) -> None:
        self._take_samples = take_samples
        self._read_pools = read_pools
        self._read_records = read_records
        self._num_workers = num_workers
        self._watchers: set[asyncio.Queue[bytes | None]] = set()
        self._beginning = asyncio.Lock()
        self._sampling: asyncio.Task[None] | None = None
        self._history = History()
        self._problems = ProblemWatch()
        self._before: GatewaySample | None = None
        self._charted: GatewaySample | None = None  # at the last point of the charts
        self._sections: Sections = {}
        self._pools: list[dict[str, Any]] = []
        self._pools_at_s = self._told_at_s = 0.0

    async def close(self) -> None:
        """Stops sampling, and ends all watchers."""
        if self._sampling is not None:
            await cancelled(self._sampling)
        self._end_watchers()

    async def watch(self) -> AsyncGenerator[bytes, None]:
        """Yields a snapshot and then changes; closing the iterator ends the watch.

        Raises `ProtocolError` if too many watch.
        """
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(MAX_QUEUED)
        async with self._beginning:  # who comes meanwhile finds the sampler of the first
            if len(self._watchers) >= MAX_WATCHERS:
                message = f"{MAX_WATCHERS} watch already, as many as may. Close another console."
                raise ProtocolError("server_is_overloaded", message, retry_after_us=10_000_000)
            if not self._watchers:
                await self._begin()
            self._watchers.add(queue)
        try:
            yield event("snapshot", self._snapshot())
            async with asyncio.timeout(MAX_WATCH_S):
                while (told := await queue.get()) is not None:
                    yield told
        except TimeoutError:
            return
        finally:
            self._watchers.discard(queue)
            if not self._watchers and self._sampling is not None:
                self._sampling.cancel()

    async def _begin(self) -> None:
        """Takes a first sample, and starts to sample."""
        if self._sampling is not None:
            await cancelled(self._sampling)
        self._before = None
        self._charted = None
        sample = together(await self._take_samples())
        self._history.begin(await self._read_records(), sample.at)
        self._sections = {}
        await self._take(sample)
        self._sampling = asyncio.create_task(self._sample())

    async def _sample(self) -> None:
        """Samples until cancelled, or until this gateway drains."""
        is_draining = False
        while not is_draining:
            await asyncio.sleep(SAMPLE_S)
            try:
                sample = together(await self._take_samples())
                self._tell(await self._take(sample), sample.at)
            except ProtocolError:
                continue  # the supervisor does not answer; the pages say that nothing comes
            except Exception:
                logger.exception("sampling for the console failed")
                continue
            is_draining = sample.draining
        self._end_watchers()

    async def _take(self, sample: GatewaySample) -> Sections:
        """Takes a sample; returns what changed since the one before."""
        before, self._before = self._before, sample
        if sample.at - self._pools_at_s >= POOLS_S:
            self._pools_at_s = sample.at
            self._pools = await self._pools_of(sample)
        given = msgspec.to_builtins(sample)
        decisions, backends = given.pop("decisions"), given.pop("backends")
        at, _ = given.pop("at"), given.pop("ended")
        sections: Sections = {
            "gateway": given,
            "backends": backends,
            "pools": self._pools,
            "problems": self._problems.problems(self._num_workers, sample),
        }
        changed: Sections = {
            name: value for name, value in sections.items() if self._sections.get(name) != value
        }
        known = set() if before is None else {record.id for record in before.decisions}
        if fresh := [record for record in decisions if record["id"] not in known]:
            changed["decisions"] = fresh
        if self._charted is None:
            self._charted = sample
        elif sample.at - self._charted.at >= POINT_S:
            changed["point"] = point_between(self._charted, sample)
            self._history.add(changed["point"])
            self._charted = sample
        self._sections = sections | {"decisions": decisions}
        return changed | {"at": at} if changed else {}

    async def _pools_of(self, sample: GatewaySample) -> list[dict[str, Any]]:
        tenants = list(dict.fromkeys(record.tenant for record in sample.decisions))
        try:
            return await self._read_pools(tenants[:MAX_TENANTS])
        except PoolsUnavailable:
            return []

    def _snapshot(self) -> Sections:
        assert self._before is not None
        return self._sections | {"at": self._before.at, "history": list(self._history)}

    def _tell(self, changed: Sections, at: float) -> None:
        if not changed and at - self._told_at_s < ALIVE_S:
            return
        self._told_at_s = at
        told = event("change", changed or {"at": at})
        for queue in self._watchers:
            if queue.full():  # it begins anew, rather than to miss something
                while not queue.empty():
                    queue.get_nowait()
                queue.put_nowait(event("snapshot", self._snapshot()))
            else:
                queue.put_nowait(told)

    def _end_watchers(self) -> None:
        for queue in self._watchers:
            while queue.full():
                queue.get_nowait()
            queue.put_nowait(None)
