"""Ceilings on what all tenants together run at once on a group of engines, across all gateways.

A ceiling lives in another hash slot of a Cluster than a tenant's pools, so no call takes both.
Instead each gateway holds leases of a part of every ceiling, and counts its own tasks against it in
memory: a task costs no call for it. The leases only ever add up to the ceiling, since a gateway
takes slots that no other holds; it asks for more when it runs short, and releases what it does not
use, but for one spare slot, so that an idle one need not ask first. When another is short too, each
is held to its equal part, but never to less than what it runs.

A gateway that stops saying that it lives loses its lease, as its tasks lose their engines. While
Redis is away each keeps what it had, or takes its equal part if that is more.

An edge: it uses the event loop.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from backends.contract import BackendGroup
from router.redis.servers import RedisAway, RedisServers, Script
from router.redis.url import parse_redis_url

ALIVE_MS = 10_000  # without a word for longer a gateway's lease is free
SPARE_SHARE = 8  # of what runs, one part in so many more is asked for; at least one slot

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
    """Of one group's ceiling."""

    group: BackendGroup
    ceiling: int
    slots: int = 0  # ours, as Redis last said
    num_held: int = 0
    num_short: int = 0  # tasks that wait for an answer about more
    num_gateways: int = 1
    is_contended: bool = False  # another wants more than it has
    asking: "asyncio.Task[None] | None" = field(default=None)

    def has_slot(self, is_cut_off: bool) -> bool:
        """Cut off, nobody can be asked: then our equal part is ours."""
        equal = self.ceiling // self.num_gateways if is_cut_off else 0
        return self.num_held < max(self.slots, equal)

    @property
    def wanted(self) -> int:
        spare = max(1, self.num_held // SPARE_SHARE)
        return min(self.ceiling, self.num_held + self.num_short + spare)

    def keep(self) -> int:
        """Give up what is not wanted, and, where another is short, what is beyond our part.

        In memory, before Redis hears of it: so nothing given up is taken here meanwhile.
        """
        most = self.wanted
        if self.is_contended:
            most = max(self.num_held, min(most, self.ceiling // self.num_gateways))
        self.slots = min(self.slots, most)
        return self.slots


class CeilingLeases:
    """One gateway's. For one event loop."""

    def __init__(
        self,
        url: str,
        gateway_id: str,
        ceilings: Mapping[BackendGroup, int],
        *,
        budget_us: int,
    ) -> None:
        """Connects at the first call. `url`: see `redis_url`; `ceilings`: slots, by group."""
        self._servers = RedisServers(parse_redis_url(url), budget_us=budget_us)
        self._id = gateway_id
        self._num_calls = 0
        self._leases = {group: _CeilingLease(group, ceiling) for group, ceiling in ceilings.items()}

    async def take(
        self, groups: Iterable[BackendGroup], *, is_cut_off: bool = False
    ) -> frozenset[BackendGroup]:
        """Take a slot of each of these groups that has one; returns which those are.

        A group without a ceiling always has one. Release each. Cancelling takes none.

        Args:
            groups: Each takes one slot.
            is_cut_off: Redis is away: nobody is asked, and each gateway has its equal part.
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
        """A slot of each of these groups is free again."""
        for group in groups:
            if group in self._leases:
                self._leases[group].num_held -= 1

    def ceiling(self, group: BackendGroup) -> int:
        """The group's, for all gateways together."""
        return self._leases[group].ceiling

    async def tick(self) -> None:
        """Say that this gateway lives, and even out slots. Call it four times a second."""
        await asyncio.gather(*map(self._ask, self._leases.values()))

    async def close(self) -> None:
        """Release everything at once; without Redis it is free after `ALIVE_MS`."""
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
        """One call for all who ask at the same time."""
        if lease.asking is None or lease.asking.done():
            lease.asking = asyncio.create_task(self._share(lease))
        await asyncio.shield(lease.asking)

    async def _share(self, lease: _CeilingLease) -> None:
        await asyncio.sleep(0)  # who comes in the same turn is counted in
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
