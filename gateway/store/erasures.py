"""Tells every gateway on a Redis that something is erased, so that none remembers it.

That is a tenant's data, or a deleted response. A sorted set has their ids by a number that counts
erasures: who missed an announcement, or is on a Cluster, where there are none, finds them at its
next look. This is an edge.
"""

import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from redis.asyncio import Redis
from redis.exceptions import RedisError

from gateway.store.response_store import UNAVAILABLE
from router.redis.announcements import announcements

POLL_S = 5.0
MAX_KEPT = 1_000  # the latest; a gateway that missed more erasures of tenants has long ended

Kind = Literal["tenants", "responses"]
_HASH_TAG: dict[Kind, str] = {"tenants": "erased", "responses": "deleted"}  # one place each

logger = logging.getLogger("lanewise")


Forget = Callable[[str], Awaitable[None]]  # drops what a process remembers of an id


class Erasures:
    """Announces and follows erasures of one kind."""

    def __init__(self, redis: Redis, kind: Kind) -> None:
        self._redis: Any = redis
        place = f"lw1:{{{_HASH_TAG[kind]}}}"
        self._erased = f"{place}:{kind}"  # by the number of their latest erasure
        self._counter = f"{place}:number"
        self._channel = f"{place}:changed"
        self._number: int | None = None  # of the latest one that was looked at; None: none yet

    async def announce(self, erased_id: str) -> None:
        """Has all gateways forget an id, soon.

        Raises `ProtocolError` if Redis does not answer.
        """
        with UNAVAILABLE:
            number = await self._redis.incr(self._counter)
            await self._redis.zadd(self._erased, {erased_id: number})
            await self._redis.zremrangebyrank(self._erased, 0, -MAX_KEPT - 1)
            await self._redis.publish(self._channel, b"")

    async def follow(self, forget: Forget) -> None:
        """Forgets what others erase, until cancelled."""
        following = announcements(self._redis, self._channel, POLL_S)
        async with contextlib.aclosing(following) as changes:
            async for _ in changes:
                try:
                    await self.look(forget)
                except (RedisError, OSError):
                    continue  # it is looked at again
                except Exception:
                    logger.exception("forgetting what was erased failed")

    async def look(self, forget: Forget) -> None:
        """Forgets what was erased since the last look; the first one forgets nothing."""
        number = int(await self._redis.get(self._counter) or 0)
        seen = self._number
        if seen is not None and number != seen:
            least = 0 if number < seen else seen + 1  # if Redis lost its data, all are new
            for erased_id in await self._redis.zrangebyscore(self._erased, least, "+inf"):
                await forget(erased_id.decode())
        self._number = number


def erasures_of(redis: Redis) -> dict[Kind, Erasures]:
    """Returns the erasures of each kind."""
    return {kind: Erasures(redis, kind) for kind in _HASH_TAG}
