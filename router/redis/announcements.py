"""Follows announcements of changes on a channel of Redis, with polling as the fallback.

This is an edge.
"""

from collections.abc import AsyncGenerator

from redis.asyncio import Redis, RedisCluster
from redis.exceptions import RedisError

from backends.drive.beats import beat, pause_s


async def announcements(
    redis: "Redis | RedisCluster", channel: str, poll_s: float
) -> AsyncGenerator[None]:
    """Yields at once, at every announcement, and at least every `poll_s`; close it to unsubscribe.

    Announcements may get lost, so callers look for changes at each yield. A Cluster is only polled:
    redis-py cannot subscribe there before its first command, and does not follow a failover.
    """
    while True:
        if not isinstance(redis, RedisCluster):
            try:
                async with redis.pubsub() as subscription:
                    await subscription.subscribe(channel)
                    while True:
                        yield
                        await subscription.get_message(
                            ignore_subscribe_messages=True, timeout=pause_s(poll_s)
                        )
            except (RedisError, OSError):
                pass
        yield
        await beat(poll_s)
