"""Gives back what crashed gateways held, also of tenants that ask for nothing any more.

Gateways enter the tenants that they reserve for into one sorted set, by when the last of their
leases can have run out. Now and then each takes those that are due and sweeps their leases. A
tenant's entry is moved on when it is taken, so that not everybody sweeps the same; who dies while
sweeping leaves it to the next.
"""

from collections.abc import Iterable
from typing import Any

from router.pool_calls import NUM_KEYS, SCRIPT, reap_call
from router.redis_servers import RedisServers, Script

KEY = "lw1:{sweeper}:due"  # member: tenant id; score: when to look, server's ms
MAX_SWEPT = 100  # expired leases that one call gives back
MAX_ENTERED = 500  # tenants in one call
MAX_TAKEN = 200  # tenants that one round sweeps
AGAIN_MS = 5_000  # when the next one looks at what was taken

# KEYS: the set. ARGV: milliseconds from now, tenants. An entry that is there stays: who reserves
# later must not put off the sweep of what a crashed gateway held.
_ENTER = Script(
    """
local time = redis.call('TIME')
local due_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000) + tonumber(ARGV[1])
for argument = 2, #ARGV do redis.call('ZADD', KEYS[1], 'NX', due_ms, ARGV[argument]) end
return #ARGV - 1
""",
    1,
)
# KEYS: the set. ARGV: how many at most, when they are due again. Returns tenants, each with the
# score it has now.
_TAKE = Script(
    """
local time = redis.call('TIME')
local now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now_ms, 'LIMIT', 0, ARGV[1])
local taken = {}
for _, tenant in ipairs(due) do
  redis.call('ZADD', KEYS[1], now_ms + tonumber(ARGV[2]), tenant)
  taken[#taken + 1] = tenant
  taken[#taken + 1] = now_ms + tonumber(ARGV[2])
end
return taken
""",
    1,
)
# KEYS: the set. ARGV: a tenant, the score it was taken with, when its next lease expires (0: none).
_DONE = Script(
    """
if tonumber(redis.call('ZSCORE', KEYS[1], ARGV[1]) or -1) ~= tonumber(ARGV[2]) then return 0 end
if ARGV[3] == '0' then return redis.call('ZREM', KEYS[1], ARGV[1]) end
redis.call('ZADD', KEYS[1], ARGV[3], ARGV[1])
return 1
""",
    1,
)
_POOLS = Script(SCRIPT, NUM_KEYS)


class Sweeper:
    """One gateway's. Every call of `tend` may raise `RedisAway`; the next one goes on."""

    def __init__(self, servers: RedisServers, lease_ms: int) -> None:
        self._servers = servers
        self._lease_ms = lease_ms
        self._noted: set[str] = set()

    def note(self, tenant_id: str) -> None:
        """A lease of this tenant runs from now."""
        self._noted.add(tenant_id)

    async def tend(self) -> int:
        """Enter what was noted, then sweep what is due; returns how many leases came back."""
        noted, self._noted = self._noted, set()
        for chunk in _chunks(sorted(noted)):
            try:
                await self._servers.run(_ENTER, (KEY, self._lease_ms, *chunk))
            except BaseException:
                self._noted |= noted
                raise
        taken: list[Any] = await self._servers.run(_TAKE, (KEY, MAX_TAKEN, AGAIN_MS))
        num_swept = 0
        for tenant, score in zip(taken[::2], taken[1::2], strict=True):
            tenant_id = tenant.decode()
            num_reaped, next_ms = await self.sweep(tenant_id)
            num_swept += num_reaped
            if num_reaped and not next_ms:
                # Who crashed may have reserved since, and died before it could enter that.
                next_ms = int(score) - AGAIN_MS + self._lease_ms
            await self._servers.run(_DONE, (KEY, tenant_id, score, next_ms))
        return num_swept

    async def sweep(self, tenant_id: str) -> tuple[int, int]:
        """Give back all expired leases of a tenant: how many, and when the next expires, 0: none.

        Raises:
            RedisAway: Redis is away.
        """
        num_swept, num_reaped, next_ms = 0, MAX_SWEPT, 0
        while num_reaped == MAX_SWEPT:
            num_reaped, next_ms = await self._servers.run(_POOLS, reap_call(tenant_id, MAX_SWEPT))
            num_swept += num_reaped
        return num_swept, next_ms


def _chunks(tenants: list[str]) -> Iterable[list[str]]:
    for start in range(0, len(tenants), MAX_ENTERED):
        yield tenants[start : start + MAX_ENTERED]
