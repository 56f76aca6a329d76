"""Limits what all tenants and gateways together run at once on a group of engines.

A ceiling is in another hash slot of a Cluster than a tenant's pools, so no script takes both.
Instead each gateway leases slots of every ceiling and counts its own tasks against them in memory,
without a call per task. A gateway leases only slots that no other holds, requests more when it runs
short, and releases unused ones except a spare. While another gateway is short, each is limited to
an equal part, but never to less than it runs.

A gateway that stops renewing loses its lease, as its tasks lose their engines. While Redis is away,
each keeps what it had, or takes its equal part if that is more. This is an edge.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from backends.contract import BackendGroup
from router.redis.servers import RedisAway, RedisServers, Script
from router.redis.url import parse_redis_url

ALIVE_MS = 10_000  # a gateway's lease expires after this time without a renewal
SPARE_SHARE = 8  # one spare slot per this many running tasks; at least one

# KEYS: a hash, gateway id -> "lease wanted expires_ms number". ARGV: our id, the ceiling, how many
# slots we keep in any case, how many we want, how long our lease lives, the call's number.
# Returns our lease, how many gateways live, and 1 if another wants more than it has. A call that a
# later one has overtaken changes nothing. Work is bounded by the number of gateways.
_SHARE = Script(
    """
local time = redis.call('TIME')
local now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local id, ceiling, kept, wanted = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local all = redis.call('HGETALL', KEYS[1])
local mine, others, live, short, latest = 0, 0, 1, 0, 0
for index = 1, #all, 2 do
  local lease, their_wish, expires_ms, number =
    string.match(all[index + 1], '^(%d+) (%d+) (%d+) (%d+)$')
  if not lease or tonumber(expires_ms) <= now_ms then
    redis.call('HDEL', KEYS[1], all[index])
  elseif all[index] == id then
    mine, latest = tonumber(lease), tonumber(number)
  else
    others, live = others + tonumber(lease), live + 1
    if tonumber(their_wish) > tonumber(lease) then short = 1 end
  end
end
if latest > tonumber(ARGV[6]) then return {mine, live, short} end
local lease = math.min(wanted, math.max(0, ceiling - others))
if short == 1 then lease = math.min(lease, math.floor(ceiling / live)) end
lease = math.max(lease, math.min(kept, mine))
local expires_ms = now_ms + tonumber(ARGV[5])
local entry = string.format('%d %d %d %d', lease, wanted, expires_ms, tonumber(ARGV[6]))
redis.call('HSET', KEYS[1], id, entry)
return {lease, live, short}
""",
    1,
)
_RELEASE = Script("return redis.call('HDEL', KEYS[1], ARGV[1])", 1)


@dataclass(slots=True)
class _CeilingLease:
    """Holds this gateway's lease of one group's ceiling."""

    group: BackendGroup
    ceiling: int
    slots: int = 0  # ours, as Redis last said
    num_held: int = 0
    num_short: int = 0  # tasks that wait for an answer about more
    num_gateways: int = 1
    is_contended: bool = False  # another wants more than it has
    asking: "asyncio.Task[None] | None" = field(default=None)

    def has_slot(self, is_cut_off: bool) -> bool:
        """Returns whether a slot is free; while Redis is away our equal part is ours."""
        equal = self.ceiling // self.num_gateways if is_cut_off else 0
        return self.num_held < max(self.slots, equal)

    @property
    def wanted(self) -> int:
        spare = max(1, self.num_held // SPARE_SHARE)
        return min(self.ceiling, self.num_held + self.num_short + spare)

    def keep(self) -> int:
        """Releases unwanted slots and, if another gateway is short, those beyond our equal part.

        This happens before the call to Redis, so that no released slot is taken here meanwhile.
        """
        most = self.wanted
        if self.is_contended:
            most = max(self.num_held, min(most, self.ceiling // self.num_gateways))
        self.slots = min(self.slots, most)
        return self.slots


class CeilingLeases:
    """Holds one gateway's leases; for one event loop."""

    def __init__(
        self, url: str, gateway_id: str, ceilings: Mapping[BackendGroup, int], *, budget_us: int
    ) -> None:
        """Connects at the first call. `url`: see `router.redis.url`; `ceilings`: slots by group."""
        self._servers = RedisServers(parse_redis_url(url), budget_us=budget_us)
        self._id = gateway_id
        self._num_calls = 0
        self._leases = {group: _CeilingLease(group, ceiling) for group, ceiling in ceilings.items()}

    def configure(self, ceilings: Mapping[BackendGroup, int]) -> None:
        """Changes the heights of ceilings; what is held beyond a lower one ends by itself."""
        for group, lease in self._leases.items():
            lease.ceiling = ceilings.get(group, lease.ceiling)

    async def take(
        self, groups: Iterable[BackendGroup], *, is_cut_off: bool = False
    ) -> frozenset[BackendGroup]:
        """Takes a slot of each group that has one free; returns those groups, to be released.

        A group without a ceiling always has one. Cancelling takes none. `is_cut_off`: Redis is
        away, and each gateway has its equal part.
        """
        asked = frozenset(groups)
        bound = [self._leases[group] for group in asked if group in self._leases]
        short = [lease for lease in bound if not lease.has_slot(is_cut_off)]
        if short and not is_cut_off:
            await asyncio.gather(*map(self._ask_for_more, short))
        full = {lease.group for lease in bound if not lease.has_slot(is_cut_off)}
        for lease in bound:
            if lease.group not in full:
                lease.num_held += 1
        return asked - full

    def release(self, groups: Iterable[BackendGroup]) -> None:
        """Releases a slot of each of these groups."""
        for group in groups:
            if group in self._leases:
                self._leases[group].num_held -= 1

    def ceiling(self, group: BackendGroup) -> int:
        """Returns a group's ceiling for all gateways together."""
        return self._leases[group].ceiling

    async def tick(self) -> None:
        """Renews the leases and balances slots between gateways; call it four times a second."""
        await asyncio.gather(*map(self._ask, self._leases.values()))

    async def close(self) -> None:
        """Releases all leases; while Redis is away they expire after `ALIVE_MS`."""
        try:
            for group in self._leases:
                await self._servers.run(_RELEASE, (_key(group), self._id))
        except RedisAway:
            pass
        finally:
            await self._servers.close()

    async def _ask_for_more(self, lease: _CeilingLease) -> None:
        lease.num_short += 1
        try:
            await self._ask(lease)
        finally:
            lease.num_short -= 1

    async def _ask(self, lease: _CeilingLease) -> None:
        """Shares one call among concurrent callers."""
        if lease.asking is None or lease.asking.done():
            lease.asking = asyncio.create_task(self._share(lease))
        await asyncio.shield(lease.asking)

    async def _share(self, lease: _CeilingLease) -> None:
        await asyncio.sleep(0)  # counts all callers of this turn
        self._num_calls += 1
        wish = (self._id, lease.ceiling, lease.keep(), lease.wanted, ALIVE_MS, self._num_calls)
        try:
            answer: list[Any] = await self._servers.run(_SHARE, (_key(lease.group), *wish))
        except RedisAway:
            return  # what we kept is ours at least
        lease.slots, lease.num_gateways, is_contended = answer
        lease.is_contended = bool(is_contended)


def _key(group: BackendGroup) -> str:
    return f"lw1:{{ceiling:{group}}}:slices"
