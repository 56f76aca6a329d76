"""Releases what crashed gateways reserved, also for tenants that send no more requests.

Before a gateway reserves, it enters the tenant into one sorted set, scored by the time at which its
last lease will have expired. Periodically each gateway takes due tenants and reaps their leases.
Taking an entry postpones it a little, so that gateways rarely reap the same tenant (which would be
harmless), and so that another reaps it soon if this one dies: a crash is cleaned up within a lease
and a second.

An entry without leases stays idle for one more lease and is then removed; entering makes it busy
again. So an entry is good for a lease, unless Redis loses it. This is an edge.
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from router.classify.task import TENANT_ID
from router.pools.script_calls import NUM_KEYS, SCRIPT, reap_call
from router.redis.servers import RedisAway, RedisServers, Script

logger = logging.getLogger("lanewise")

KEY = "lw1:{sweeper}:due"  # member: tenant id; score: when to look, server's ms
LEASES_PER_CALL = 100  # expired leases that one call releases
MAX_TAKEN = 100  # tenants that one round reaps
AGAIN_MS = 400  # until a taken entry is due again
MAX_AT_ONCE = 10  # concurrent calls: a node that is away holds up a round this much less
TOLD_S = 60.0  # between lines of the log about entries that nobody made, or that fail

# Scores are whole ms; the half of one marks an idle entry.

# KEYS: the set. ARGV: milliseconds from now, a tenant. When an entry that is there is due stays so:
# who reserves later must not put off the reaping of what a crashed gateway held.
_ENTER = Script(
    """
local due_ms = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[2]) or -1)
if due_ms < 0 then
  local time = redis.call('TIME')
  due_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000) + tonumber(ARGV[1])
end
return redis.call('ZADD', KEYS[1], math.floor(due_ms), ARGV[2])
""",
    1,
)
# KEYS: the set. ARGV: how many at most, when they are due again. Returns tenants, each with the
# score it has now.
_TAKE = Script(
    """
local time = redis.call('TIME')
local now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now_ms, 'WITHSCORES', 'LIMIT', 0, ARGV[1])
local taken = {}
for number = 1, #due, 2 do
  local score = now_ms + tonumber(ARGV[2]) + tonumber(due[number + 1]) % 1
  redis.call('ZADD', KEYS[1], score, due[number])
  taken[number] = due[number]
  taken[number + 1] = string.format('%.1f', score)
end
return taken
""",
    1,
)
# KEYS: the set. ARGV: a tenant, the score it was taken with, when its next lease expires (0: none),
# how long an entry stays idle.
_DONE = Script(
    """
local score = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[1]) or -1)
if score ~= tonumber(ARGV[2]) then return 0 end
local next_ms = tonumber(ARGV[3])
if next_ms == 0 then
  if score % 1 > 0 then return redis.call('ZREM', KEYS[1], ARGV[1]) end
  local time = redis.call('TIME')
  next_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000) + tonumber(ARGV[4])
  next_ms = next_ms + 0.5
end
redis.call('ZADD', KEYS[1], next_ms, ARGV[1])
return 1
""",
    1,
)
_POOLS = Script(SCRIPT, NUM_KEYS)


class Reaper:
    """Reaps for one gateway. What Redis did not answer, or with an error, the next call repeats."""

    def __init__(self, servers: RedisServers, lease_ms: int) -> None:
        self._servers = servers
        self._lease_ms = lease_ms
        self._now_s = asyncio.get_running_loop().time
        self._entered_s: dict[str, float] = {}  # when; a sixth of a lease later it is done again
        self._entering: set[asyncio.Task[None]] = set()
        self._told_s = -TOLD_S

    def note(self, tenant_id: str) -> None:
        """Enters a tenant; on the connection this precedes the reservation that follows."""
        if tenant_id in self._entered_s:
            return
        self._entered_s[tenant_id] = self._now_s()
        sent = self._servers.run(_ENTER, (KEY, self._lease_ms, tenant_id))
        entering = asyncio.create_task(self._entered(tenant_id, sent))
        self._entering.add(entering)
        entering.add_done_callback(self._entering.discard)

    async def _entered(self, tenant_id: str, sent: Coroutine[Any, Any, Any]) -> None:
        try:
            await sent
        except RedisAway:
            self._entered_s.pop(tenant_id, None)  # the next note tries again

    async def close(self) -> None:
        """Waits for calls in flight; the connections are closed already."""
        await asyncio.gather(*self._entering, return_exceptions=True)

    async def reap(self) -> int:
        """Reaps due tenants; returns how many leases were released, or raises `RedisAway`."""
        old_s = self._now_s() - self._lease_ms / 6e3
        self._entered_s = {
            tenant: entered_s for tenant, entered_s in self._entered_s.items() if entered_s > old_s
        }
        taken: list[Any] = await self._servers.run(_TAKE, (KEY, MAX_TAKEN, AGAIN_MS))
        due = [
            (tenant.decode(errors="replace"), score.decode())
            for tenant, score in zip(taken[::2], taken[1::2], strict=True)
        ]
        total = 0
        for start in range(0, len(due), MAX_AT_ONCE):
            reaping = (self._reap_due(*each) for each in due[start : start + MAX_AT_ONCE])
            total += sum(await asyncio.gather(*reaping))
        return total

    async def _reap_due(self, tenant_id: str, score: str) -> int:
        """Reaps one tenant; if Redis fails it, the tenant is soon due again, and no other waits."""
        num_reaped, next_ms = 0, 0
        try:
            if TENANT_ID.fullmatch(tenant_id):
                num_reaped, next_ms = await self.reap_tenant(tenant_id)
            else:  # nobody's; it goes as an idle one does
                self._tell("no tenant can be called %.80r, as %s has one", tenant_id, KEY)
            done = (KEY, tenant_id, score, next_ms, self._lease_ms)
            await self._servers.run(_DONE, done)
        except RedisAway as error:
            self._tell("the leases of tenant %s cannot be reaped: %s", tenant_id, error)
        return num_reaped

    def _tell(self, words: str, *values: object) -> None:
        if self._now_s() - self._told_s >= TOLD_S:
            self._told_s = self._now_s()
            logger.warning(words, *values)

    async def reap_tenant(self, tenant_id: str) -> tuple[int, int]:
        """Releases a tenant's expired leases; returns how many, and the next expiry (0: none)."""
        total, num_reaped, next_ms = 0, LEASES_PER_CALL, 0
        call = reap_call(tenant_id, LEASES_PER_CALL)
        while num_reaped == LEASES_PER_CALL:
            num_reaped, next_ms = await self._servers.run(_POOLS, call)
            total += num_reaped
        return total, next_ms
