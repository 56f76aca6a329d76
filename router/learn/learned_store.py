"""Stores what tenants' outcomes taught in Redis, where all gateways share it.

Every few seconds, off the path of any task, each gateway adds its tenants' fresh outcomes to the
stored sums and adopts the result. A write that conflicts with another gateway's is retried at the
next tick; while Redis is away, outcomes wait in memory.

Key: `lw1:{tenant}:learned`, msgpack of `Learned`, about 25 KB, or 50 KB after a reset.
This is an edge.
"""

import logging
from typing import Any

import msgspec
import numpy as np
from redis.asyncio import Redis
from redis.exceptions import RedisError, WatchError

from router.classify.classify import served_model
from router.classify.task import TENANT_ID
from router.learn.experience import Experience
from router.learn.learning import NUM_TRAITS, TRAITS_VERSION, Known, merge, nothing_known

logger = logging.getLogger("lanewise")

TTL_S = 90 * 24 * 3600  # since the last outcome
MAX_CROSSED = 3  # attempts at a write that conflicts with others'
MAX_PER_TICK = 32  # tenants; the others are next
# Sums of different versions do not add up.
VERSION = f"{TRAITS_VERSION}-{served_model().content_hash[:8]}"

_UPPER = np.triu_indices(NUM_TRAITS)


class Arm(msgspec.Struct, frozen=True):
    """Holds one arm's sums as little-endian float32; of `gram` the upper triangle."""

    gram: bytes
    moment: bytes
    num_outcomes: float
    num_explicit: float = msgspec.field(default=0.0, name="num_told")


class Learned(msgspec.Struct, frozen=True):
    """Holds one tenant's record."""

    version: str = VERSION
    epoch: int = 0  # resets and restores so far
    arms: dict[str, Arm] = {}
    previous: dict[str, Arm] | None = None  # before the last reset


class LearnedStore:
    """Shares one process's learners through Redis; each call is a few round trips.

    Cancelling a call is safe. All methods but `share` raise `RedisError`, with nothing changed, if
    Redis is away or if writes keep conflicting.
    """

    def __init__(self, redis: Redis, experience: Experience) -> None:
        self._redis = redis
        self._experience = experience
        self._away = False

    async def share(self) -> None:
        """Adds fresh outcomes to Redis and adopts the sums; logs errors of Redis."""
        learners = self._experience.learners.items()
        due = [name for name, known in learners if known.fresh is not None or not known.loaded]
        try:
            for tenant_id in due[:MAX_PER_TICK]:
                await self._share(tenant_id)
        except RedisError as error:
            if not self._away:
                logger.warning("what outcomes taught waits in memory: %s", type(error).__name__)
            self._away = True
        else:
            self._away = False

    async def refresh(self) -> None:
        """Makes the next `share` read what other gateways added."""
        for learner in self._experience.learners.values():
            learner.loaded = False

    async def load(self, tenant_id: str) -> bool:
        """Adopts the stored sums of a tenant; False if there are none."""
        if not TENANT_ID.fullmatch(tenant_id) or not await self._redis.exists(_key(tenant_id)):
            return False
        await self._share(tenant_id)
        return True

    async def reset(self, tenant_id: str) -> None:
        """Returns a tenant to the prior, on all gateways within their next refresh."""
        await self._share(tenant_id)  # so that it is restored
        await self._begin_anew(tenant_id, undo=False)

    async def erase(self, tenant_id: str) -> bool:
        """Resets a tenant so that nothing can be restored, on all gateways as `reset`.

        Returns False for one of which nothing was ever learned.
        """
        if not TENANT_ID.fullmatch(tenant_id) or not await self._redis.exists(_key(tenant_id)):
            return False
        await self._begin_anew(tenant_id, undo=False, keeps_previous=False)
        return True

    async def restore(self, tenant_id: str) -> bool:
        """Undoes the last reset; False if there is none."""
        return await self._begin_anew(tenant_id, undo=True)

    async def _begin_anew(self, tenant_id: str, *, undo: bool, keeps_previous: bool = True) -> bool:
        for _ in range(MAX_CROSSED):
            content, stored = await self._read(tenant_id)
            if undo and stored.previous is None:
                return False
            arms, previous = (stored.previous or {}, None) if undo else ({}, stored.arms)
            previous = previous if keeps_previous else None
            learned = Learned(epoch=stored.epoch + 1, arms=arms, previous=previous)
            if await self._write(tenant_id, content, learned):
                self._experience.learner(tenant_id).start(_unpacked(arms), learned.epoch)
                return True
        raise WatchError("other gateways' writes kept crossing this one")

    async def _share(self, tenant_id: str) -> None:
        learner = self._experience.learner(tenant_id)
        content, stored = await self._read(tenant_id)
        if learner.epoch is None:
            learner.epoch = stored.epoch
        if stored.epoch != learner.epoch:
            learner.start(_unpacked(stored.arms), stored.epoch)  # a reset elsewhere: fresh go too
            return
        known = _unpacked(stored.arms)
        fresh = learner.fresh
        if fresh is not None:
            learner.fresh = None  # what comes from here on is for the next tick
            merge(known, fresh)
            learned = Learned(epoch=stored.epoch, arms=_packed(known), previous=stored.previous)
            written = False
            try:
                written = await self._write(tenant_id, content, learned)
            finally:
                if not written and learner.epoch == stored.epoch:  # else it was reset meanwhile
                    if learner.fresh is not None:
                        merge(fresh, learner.fresh)
                    learner.fresh = fresh
            if not written:
                return
        if learner.fresh is not None:  # came while it was written
            merge(known, learner.fresh)
        learner.adopt(known)

    async def _read(self, tenant_id: str) -> tuple[bytes, Learned]:
        """Returns the stored bytes and the record, which is empty if of another version."""
        content: Any = await self._redis.get(_key(tenant_id))
        if content is None:
            return b"", Learned()
        try:
            stored = msgspec.msgpack.decode(content, type=Learned)
        except msgspec.MsgspecError:
            return content, Learned()
        return content, stored if stored.version == VERSION else Learned(epoch=stored.epoch)

    async def _write(self, tenant_id: str, before: bytes, learned: Learned) -> bool:
        """Replaces the record if it is still what was read; returns whether it was."""
        record = msgspec.msgpack.encode(learned)
        key = _key(tenant_id)
        reply: Any = await self._redis.eval(_REPLACE, 1, key, before, record, TTL_S)
        return bool(reply)


# KEYS: the record. ARGV: what was read ("" for none), the new one, its life in seconds.
# Returns 1, or 0 where the record has changed since. One key, so it works on a Cluster, too.
_REPLACE = """
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[2], 'EX', ARGV[3])
return 1
"""


def _key(tenant_id: str) -> str:
    return f"lw1:{{{tenant_id}}}:learned"


def _packed(known: Known) -> dict[str, Arm]:
    return {
        arm: Arm(
            sums.gram[_UPPER].astype("<f4").tobytes(),
            sums.moment.astype("<f4").tobytes(),
            sums.num_outcomes,
            sums.num_explicit,
        )
        for arm, sums in known.items()
    }


def _unpacked(arms: dict[str, Arm]) -> Known:
    known = nothing_known()
    for name, sums in known.items():
        arm = arms.get(name)
        if arm is not None:
            sums.gram[_UPPER] = np.frombuffer(arm.gram, "<f4")
            sums.gram.T[_UPPER] = sums.gram[_UPPER]
            sums.moment[:] = np.frombuffer(arm.moment, "<f4")
            sums.num_outcomes, sums.num_explicit = arm.num_outcomes, arm.num_explicit
    return known
