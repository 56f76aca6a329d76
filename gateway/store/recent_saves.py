"""Follows up on records that were just saved: some Redis did not take, some it took and lost.

What Redis did not take, as a failover was under way, is saved once it takes it, from a bounded
memory. A master that dies takes with it what its replicas do not have yet: so each record is looked
for a second after it was saved, and those that are gone are counted. They are not saved again,
since another process may have deleted them meanwhile. This is an edge.
"""

import asyncio
import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from gateway.store.stored_bytes import StoredBytes
from router.redis.connection import is_wrong_type

logger = logging.getLogger("lanewise")

Name = tuple[str, str]  # a tenant's id, and a record's
LostReason = Literal["not_taken", "redis_lost"]

GONE_TTL_S = 60  # of a mark that a record was deleted: looks follow within seconds
LOOK_AFTER_S = 1.0  # by then replicas have a record, or its master is dead
MAX_FRESH = 10_000  # records that are to be looked for; the oldest of more are not
MAX_WAITING_BYTES = 32 << 20
WAIT_S = 60.0  # a failover takes seconds; what is older is not waited for by anybody
CLOSE_S, RETRY_S = 5.0, 0.25  # when stopping, in all and between two attempts


class _Waiting(NamedTuple):
    """Is a record that Redis did not take."""

    record: bytes
    ancestors: Sequence[str]
    since_s: float


class RecentSaves:
    """Remembers records until Redis has had them for a second; `follow_up` does the rest."""

    def __init__(
        self,
        redis: Redis,
        stored_bytes: StoredBytes,
        key_of: Callable[[str, str], str],
        ttl_s: int,
        on_lost: Callable[[LostReason, int], None],
    ) -> None:
        """Tells `on_lost` how many records are gone."""
        self._redis = redis
        self._bytes = stored_bytes
        self._key_of = key_of
        self._ttl_s = ttl_s
        self._on_lost = on_lost
        self._fresh: dict[Name, float] = {}  # when each was saved, the oldest first
        self._waiting: dict[Name, _Waiting] = {}
        self._waiting_bytes = 0

    def saved(self, name: Name) -> None:
        """Remembers a record to look for."""
        self.forget(name)
        self._fresh[name] = time.monotonic()
        if len(self._fresh) > MAX_FRESH:
            del self._fresh[next(iter(self._fresh))]

    def not_taken(self, name: Name, record: bytes, ancestors: Sequence[str]) -> None:
        """Keeps a record until Redis takes it; counts it as lost if there is no room."""
        self.forget(name)
        if self._waiting_bytes + len(record) > MAX_WAITING_BYTES:
            self._on_lost("not_taken", 1)
            return
        self._waiting[name] = _Waiting(record, ancestors, time.monotonic())
        self._waiting_bytes += len(record)

    def forget(self, name: Name) -> None:
        """Neither saves nor looks for a record: it was deleted, or is saved anew."""
        self._fresh.pop(name, None)
        waiting = self._waiting.pop(name, None)
        if waiting is not None:
            self._waiting_bytes -= len(waiting.record)

    def forget_all(self, tenant_id: str) -> None:
        """Forgets all records of a tenant."""
        for name in [each for each in (*self._fresh, *self._waiting) if each[0] == tenant_id]:
            self.forget(name)

    async def follow_up(self) -> None:
        """Saves what waits, and counts what is gone; to be called once a second."""
        try:
            await self._save_waiting()
            await self._look()
        except RedisError:  # the next time will do
            pass

    async def close(self, within_s: float = math.inf) -> None:
        """Saves what waits if Redis takes it in time, `CLOSE_S` at most; logs how many are lost."""
        ends_s = time.monotonic() + min(CLOSE_S, within_s)
        while self._waiting and time.monotonic() < ends_s:
            await self.follow_up()
            if self._waiting:
                await asyncio.sleep(RETRY_S)
        if self._waiting:
            logger.error("Redis takes nothing: %d stored responses are lost", len(self._waiting))

    async def _save_waiting(self) -> None:
        for name, (record, ancestors, since_s) in list(self._waiting.items()):
            if time.monotonic() - since_s > min(WAIT_S, self._ttl_s):
                self.forget(name)
                self._on_lost("not_taken", 1)
                continue
            try:
                await self._bytes.save(*name, record, ancestors, only_new=False)
            except ResponseError as error:
                if not is_wrong_type(error):
                    raise
                self.forget(name)  # its tenant's keys cannot be used: others must not wait for it
                self._on_lost("not_taken", 1)
                logger.error("a stored response of tenant %s is lost: %s", name[0], error)
                continue
            if name in self._waiting:  # not deleted meanwhile
                self.saved(name)

    async def deleted(self, name: Name) -> None:
        """Marks a record as deleted, for the process that saved it and is to look for it."""
        await self._redis.set(f"{self._key_of(*name)}:gone", b"1", ex=GONE_TTL_S)

    async def _num_deleted(self, names: Sequence[Name]) -> int:
        """Returns how many of one tenant's records another process has deleted."""
        marks = (f"{self._key_of(*name)}:gone" for name in names)
        return int(await self._redis.exists(*marks))

    async def _look(self) -> None:
        now_s = time.monotonic()
        due: defaultdict[str, dict[str, float]] = defaultdict(dict)
        for (tenant_id, record_id), saved_s in self._fresh.items():
            if now_s - saved_s < LOOK_AFTER_S:
                break
            due[tenant_id][record_id] = saved_s
        if not due:
            return
        pipe = self._redis.pipeline(transaction=False)
        for tenant_id, saved in due.items():
            pipe.exists(*(self._key_of(tenant_id, record_id) for record_id in saved))
        num_lost = 0
        for (tenant_id, saved), num_found in zip(due.items(), await pipe.execute(), strict=True):
            # Those that were deleted, or saved again, while Redis was asked do not count.
            same = [(tenant_id, each) for each in saved]
            same = [name for name in same if self._fresh.get(name) == saved[name[1]]]
            # Nor do those that are so old, after an outage, that they may have expired.
            young = [name for name in same if now_s - saved[name[1]] < self._ttl_s]
            num_gone = len(young) - num_found
            if num_gone > 0:
                num_lost += max(0, num_gone - await self._num_deleted(young))
            for name in same:
                self.forget(name)
        if num_lost:
            self._on_lost("redis_lost", num_lost)
            logger.error("Redis lost up to %d stored responses that it had taken", num_lost)
