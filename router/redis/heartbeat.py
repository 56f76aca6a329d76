"""Counts live gateways: each writes a heartbeat once a second to one sorted set in Redis.

A heartbeat is also the probe for whether Redis can be used: as it writes, it fails on a replica or
without memory, as every reservation would. This is an edge.
"""

import contextlib

import msgspec

from router.redis.servers import RedisAway, RedisServers, Script

ALIVE_MS = 10_000  # without a heartbeat for longer a gateway counts as gone
HEARD_MS = 1_700  # without one for longer a gateway is no longer among those heard lately
KEY = "lw1:{gateways}:alive"  # member: gateway id; score: its last heartbeat, server's ms

# KEYS: the set. ARGV: our id, `ALIVE_MS`, `HEARD_MS`. Returns how many are alive, 1 if we were not
# in the set, and how many were heard lately.
_BEAT = Script(
    """
local time = redis.call('TIME')
local now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local added = redis.call('ZADD', KEYS[1], now_ms, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now_ms - tonumber(ARGV[2]))
local heard = redis.call('ZCOUNT', KEYS[1], now_ms - tonumber(ARGV[3]), '+inf')
return {redis.call('ZCARD', KEYS[1]), added, heard}
""",
    1,
)


class Pulse(msgspec.Struct, frozen=True):
    """Holds what a heartbeat found."""

    num_gateways: int  # that live, this one included
    is_new: bool  # Redis did not know us: our first heartbeat, or it lost its data
    num_heard: int = 1  # of those, how many sent a heartbeat within `HEARD_MS`


class Heartbeat:
    """Sends one gateway's heartbeats, over connections of its own."""

    def __init__(self, servers: RedisServers, gateway_id: str) -> None:
        """Takes `servers` over: `stop` closes them."""
        self._servers = servers
        self._id = gateway_id

    async def beat(self) -> Pulse:
        """Sends a heartbeat; `RedisAway` of the servers' kind if Redis does not reply or write."""
        command = (KEY, self._id, ALIVE_MS, HEARD_MS)
        num_gateways, added, num_heard = await self._servers.run(_BEAT, command)
        return Pulse(num_gateways, bool(added), num_heard)

    async def stop(self) -> None:
        """Removes this gateway from the count; while Redis is away it expires by itself."""
        with contextlib.suppress(RedisAway):
            await self._servers.call(KEY, "ZREM", KEY, self._id)
        await self._servers.close()
