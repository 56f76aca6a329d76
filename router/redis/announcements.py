"""Changes that are announced on a channel of Redis, and found by looking where they are not heard.

An edge: it uses the event loop and Redis.
"""

import asyncio
from collections.abc import AsyncGenerator

from redis.asyncio import Redis, RedisCluster
from redis.exceptions import RedisError


async def announcements(
    redis: "Redis | RedisCluster", channel: str, poll_s: float
) -> AsyncGenerator[None]:
    """Yield at once, at every announcement, and at least every `poll_s` in between.

    An announcement may get lost, and where subscribing fails none is heard: whoever looks each time
    finds every change all the same. On a Cluster changes are only found by looking: redis-py's
    subscriptions there are not to be had before its first command, and do not follow a failover.
    Close the generator to end the subscription.
    """
    while True:
        if not isinstance(redis, RedisCluster):
            try:
                async with redis.pubsub() as subscription:
                    await subscription.subscribe(channel)
                    while True:
                        yield
                        await subscription.get_message(
                            ignore_subscribe_messages=True, timeout=poll_s
                        )
            except (RedisError, OSError):
                pass
        yield
        await asyncio.sleep(poll_s)
