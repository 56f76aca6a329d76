"""Tells every gateway on a Redis that a tenant's data is erased, so that none remembers it.

A sorted set has the tenants by a number that counts erasures: who missed an announcement, or is on
a Cluster, where there are none, finds them at its next look. This is an edge.
"""

import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from gateway.store.response_store import UNAVAILABLE
from router.redis.announcements import announcements

POLL_S = 5.0
MAX_KEPT = 1_000  # the latest tenants; a gateway that missed more erasures has long ended

_TENANTS = "lw1:{erased}:tenants"  # by the number of their latest erasure
_NUMBER = "lw1:{erased}:number"
_CHANNEL = "lw1:{erased}:changed"

logger = logging.getLogger("lanewise")


Forget = Callable[[str], Awaitable[None]]  # drops what a process remembers of a tenant


class Erasures:
    """Announces and follows erasures."""

    def __init__(self, redis: Redis) -> None:
        self._redis: Any = redis
        self._number: int | None = None  # of the latest one that was looked at; None: none yet

    async def announce(self, tenant_id: str) -> None:
        """Has all gateways forget a tenant, soon.

        Raises `ProtocolError` if Redis does not answer.
        """
        with UNAVAILABLE:
            number = await self._redis.incr(_NUMBER)
            await self._redis.zadd(_TENANTS, {tenant_id: number})
            await self._redis.zremrangebyrank(_TENANTS, 0, -MAX_KEPT - 1)
            await self._redis.publish(_CHANNEL, b"")

    async def follow(self, forget: Forget) -> None:
        """Forgets whom others erase, until cancelled."""
        async with contextlib.aclosing(announcements(self._redis, _CHANNEL, POLL_S)) as changes:
            async for _ in changes:
                try:
                    await self.look(forget)
                except (RedisError, OSError):
                    continue  # it is looked at again
                except Exception:
                    logger.exception("forgetting an erased tenant failed")

    async def look(self, forget: Forget) -> None:
        """Forgets who was erased since the last look; the first one forgets nobody."""
        number = int(await self._redis.get(_NUMBER) or 0)
        seen = self._number
        if seen is not None and number != seen:
            least = 0 if number < seen else seen + 1  # if Redis lost its data, all are new
            for tenant_id in await self._redis.zrangebyscore(_TENANTS, least, "+inf"):
                await forget(tenant_id.decode())
        self._number = number
