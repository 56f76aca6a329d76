"""What tenants' outcomes taught, in Redis: shared by all gateways, and kept when they end.

Every few seconds, off the path of any task, each gateway adds its tenants' fresh outcomes to what
is stored and takes over the sum. All of it is sums, so the order does not matter. A write that
another gateway's crossed is tried again at the next tick; without Redis the outcomes wait in
memory, and nothing else changes.

Key: `lw1:{tenant}:learned`, msgpack of `Learned`, about 25 KB, or 50 KB after a reset.
"""

import logging
import re
from typing import Any

import msgspec
import numpy as np
from redis.asyncio import Redis
from redis.asyncio.client import Pipeline
from redis.exceptions import RedisError, WatchError

from backends.contract import BackendGroup
from router.classify import MODEL
from router.experience import Experience
from router.learning import ARMS, NUM_TRAITS, TRAITS_VERSION, GainLearner, Sums, no_sums

logger = logging.getLogger("lanewise")

TTL_S = 90 * 24 * 3600  # since the last outcome
MAX_PER_TICK = 32  # tenants; the others' turn comes with the next
VERSION = f"{TRAITS_VERSION}-{MODEL.content_hash[:8]}"  # sums of another cannot be added

_TENANT_ID = re.compile(r"[a-z0-9-]{1,64}")
_UPPER = np.triu_indices(NUM_TRAITS)


class Arm(msgspec.Struct, frozen=True):
    """One arm's sums; little-endian float32, the upper triangle of the symmetric one."""

    gram: bytes
    moment: bytes
    num_outcomes: float
    num_told: float = 0.0


class Learned(msgspec.Struct, frozen=True):
    """One tenant's record."""

    version: str = VERSION
    epoch: int = 0  # resets and restores so far
    arms: dict[str, Arm] = {}
    previous: dict[str, Arm] | None = None  # before the last reset


Known = dict[BackendGroup, Sums]


class LearnedStore:
    """Each method is a few round trips with the client's timeout; cancelling is safe."""

    def __init__(self, redis: Redis, experience: Experience) -> None:
        self._redis = redis
        self._experience = experience
        self._away = False

    async def share(self) -> None:
        """Add what is fresh to Redis and take over what all know; never raises for Redis."""
        due = [
            tenant_id
            for tenant_id, learner in self._experience.learners.items()
            if learner.fresh is not None or not learner.loaded
        ]
        try:
            for tenant_id in due[:MAX_PER_TICK]:
                await self._share(tenant_id, self._experience.learner(tenant_id))
        except RedisError as error:
            if not self._away:
                logger.warning("what outcomes taught waits in memory: %s", type(error).__name__)
            self._away = True
        else:
            self._away = False

    async def refresh(self) -> None:
        """Have the next `share` read again what other gateways added."""
        for learner in self._experience.learners.values():
            learner.loaded = False

    async def load(self, tenant_id: str) -> bool:
        """Take over what is stored of a tenant; False if nothing is.

        Raises:
            RedisError: Redis is away.
        """
        if not _TENANT_ID.fullmatch(tenant_id) or not await self._redis.exists(_key(tenant_id)):
            return False
        await self._share(tenant_id, self._experience.learner(tenant_id))
        return True

    async def reset(self, tenant_id: str) -> None:
        """Back to the prior, on all gateways within their next refresh.

        Raises:
            RedisError: Redis is away, or another write crossed this one; nothing changed.
        """
        await self._share(tenant_id, self._experience.learner(tenant_id))  # so that it is restored
        async with self._redis.pipeline() as pipe:
            stored = await _watched(pipe, tenant_id)
            emptied = Learned(epoch=stored.epoch + 1, previous=stored.arms)
            await _write(pipe, tenant_id, emptied)
        _start(self._experience.learner(tenant_id), emptied.epoch, {})

    async def restore(self, tenant_id: str) -> bool:
        """Undo the last reset; False if there is none to undo.

        Raises:
            RedisError: As `reset`.
        """
        async with self._redis.pipeline() as pipe:
            stored = await _watched(pipe, tenant_id)
            if stored.previous is None:
                return False
            restored = Learned(epoch=stored.epoch + 1, arms=stored.previous)
            await _write(pipe, tenant_id, restored)
        _start(self._experience.learner(tenant_id), restored.epoch, restored.arms)
        return True

    async def _share(self, tenant_id: str, learner: GainLearner) -> None:
        async with self._redis.pipeline() as pipe:
            stored = await _watched(pipe, tenant_id)
            if stored.epoch != learner.epoch:
                _start(learner, stored.epoch, stored.arms)  # a reset elsewhere: fresh ones go too
                return
            known = _unpacked(stored.arms)
            fresh = learner.fresh
            if fresh is not None:
                learner.fresh = None  # what comes from here on is for the next tick
                for arm in ARMS:
                    known[arm].merge(fresh[arm])
                learned = Learned(epoch=stored.epoch, arms=_packed(known), previous=stored.previous)
                try:
                    await _write(pipe, tenant_id, learned)
                except WatchError:
                    _put_back(learner, fresh)
                    return
                except BaseException:
                    _put_back(learner, fresh)
                    raise
            if learner.fresh is not None:  # came while it was written
                for arm in ARMS:
                    known[arm].merge(learner.fresh[arm])
            learner.adopt(known)


def _put_back(learner: GainLearner, fresh: Known) -> None:
    if learner.fresh is None:
        learner.fresh = fresh
    else:
        for arm in ARMS:
            learner.fresh[arm].merge(fresh[arm])


def _start(learner: GainLearner, epoch: int, arms: dict[str, Arm]) -> None:
    learner.start(_unpacked(arms), epoch)


async def _watched(pipe: Pipeline, tenant_id: str) -> Learned:
    """The record, watched until the write; one of another version counts as none."""
    await pipe.watch(_key(tenant_id))
    content: Any = await pipe.get(_key(tenant_id))
    if content is None:
        return Learned()
    try:
        stored = msgspec.msgpack.decode(content, type=Learned)
    except msgspec.MsgspecError:
        return Learned()
    return stored if stored.version == VERSION else Learned(epoch=stored.epoch)


async def _write(pipe: Pipeline, tenant_id: str, learned: Learned) -> None:
    pipe.multi()  # type: ignore[no-untyped-call]
    pipe.set(_key(tenant_id), msgspec.msgpack.encode(learned), ex=TTL_S)
    await pipe.execute()


def _key(tenant_id: str) -> str:
    return f"lw1:{{{tenant_id}}}:learned"


def _packed(known: Known) -> dict[str, Arm]:
    return {
        arm: Arm(
            sums.gram[_UPPER].astype("<f4").tobytes(),
            sums.moment.astype("<f4").tobytes(),
            sums.num_outcomes,
            sums.num_told,
        )
        for arm, sums in known.items()
    }


def _unpacked(arms: dict[str, Arm]) -> Known:
    return {arm: _sums(arms[arm]) if arm in arms else no_sums() for arm in ARMS}


def _sums(arm: Arm) -> Sums:
    sums = no_sums()
    sums.gram[_UPPER] = np.frombuffer(arm.gram, "<f4")
    sums.gram.T[_UPPER] = sums.gram[_UPPER]
    sums.moment[:] = np.frombuffer(arm.moment, "<f4")
    sums.num_outcomes, sums.num_told = arm.num_outcomes, arm.num_told
    return sums
