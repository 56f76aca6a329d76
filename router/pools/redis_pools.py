"""Pools in Redis: `MemoryPools`' methods, awaited, each one atomic call of `pools.lua`.

Every call raises `PoolsUnavailable`, when awaited, if Redis gives no answer within its budget,
twice over; what to do then is `failover_pools`' business. Every call is safe to repeat: `reserve`
and `adopt` replay, the others are idempotent. What is never settled expires with its lease.

An edge: it uses the event loop.
"""

import asyncio
from collections import defaultdict
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from backends.contract import BackendGroup
from router.classify.task import Tenant
from router.pools.pools import BUDGET_US, LEASE_US, Balance, Demand, Grant, Renewal, Reservation
from router.pools.reaper import Reaper
from router.pools.script_calls import (
    MAX_RENEWED,
    NUM_KEYS,
    SCRIPT,
    Arguments,
    adopt_call,
    balances_of,
    extend_call,
    grant_of,
    read_call,
    renew_call,
    reserve_call,
    settle_call,
    tenant_keys,
)
from router.redis.servers import RedisAway, RedisServers, Script
from router.redis.url import parse_redis_url

_POOLS = Script(SCRIPT, NUM_KEYS)
Answer = TypeVar("Answer")


class PoolsUnavailable(Exception):  # noqa: N818 - says what is the case, as TimeoutError does
    """Redis gave no answer in time, or an error; nothing is known about the call's effect."""


class RedisPools:
    """All tenants' pools in Redis. Cancelling a call does not undo it: settle or let it expire."""

    def __init__(self, url: str, *, lease_us: int = LEASE_US, budget_us: int = BUDGET_US) -> None:
        """Connects at the first call. `url`: see `redis_url`."""
        self._servers = RedisServers(parse_redis_url(url), budget_us=budget_us)
        self._lease_ms = lease_us // 1_000
        self._reaper = Reaper(self._servers, self._lease_ms)

    async def reserve_first(
        self, tenant: Tenant, reservation_id: str, ranked_demands: Sequence[tuple[Demand, ...]]
    ) -> Grant:
        """Reserve the first of the ranked demands that fits, whole, or nothing.

        The same reservation id with the same demands gets the same reservation again.
        """
        call = reserve_call(tenant, reservation_id, ranked_demands, self._lease_ms)
        self._reaper.note(tenant.id)
        reply = await self._call(call)
        return grant_of(reply, tenant, reservation_id, ranked_demands)

    async def adopt(self, tenant: Tenant, reservation: Reservation) -> Grant:
        """Take what a reservation that was granted elsewhere holds, whether it fits or not.

        One that is held already is left as it is, so adopting twice is harmless.
        """
        self._reaper.note(tenant.id)
        reply = await self._call(adopt_call(tenant, reservation, self._lease_ms))
        return grant_of(reply, tenant, reservation.id, [reservation.demands])

    async def extend(self, reservation: Reservation) -> bool:
        """Hold what `extended` added, in debt if it does not fit; the lease runs from now again.

        Of one made by `shrunk`, release what it leaves out, and charge that. To be repeated until
        it has returned once: before, either of its two leases may hold. False if the reservation
        was settled, has expired or was forgotten.
        """
        return bool(await self._call(extend_call(reservation, self._lease_ms)))

    def settle(
        self, reservation: Reservation, actual_tokens: Mapping[BackendGroup, int]
    ) -> Coroutine[Any, Any, int]:
        """Release the slots and charge actual tokens; a group not named used none.

        Sent when called, not when awaited: whatever is asked next finds it done. A reservation that
        was settled or has expired is left alone (0, not 1): settling twice is harmless.
        """
        return self._call(settle_call(reservation, actual_tokens))

    async def renew(self, reservations: Iterable[Reservation]) -> Renewal:
        """Let these leases run from now again; one that was released too early is taken anew.

        Not without the pools it was taken from: then Redis was started again, see `adopt`.

        Call it every third of a lease for all tasks in flight: one call per tenant, all batched.
        A reservation whose extension has no answer yet is extended again instead.
        """
        leases_of: dict[str, list[str]] = defaultdict(list)
        calls: list[Arguments] = []
        for reservation in reservations:
            self._reaper.note(reservation.tenant_id)
            if reservation.former is not None:
                calls.append(extend_call(reservation, self._lease_ms))
            else:
                leases_of[reservation.tenant_id].append(reservation.lease)
        calls += (
            renew_call(tenant_id, leases[start : start + MAX_RENEWED], self._lease_ms)
            for tenant_id, leases in leases_of.items()
            for start in range(0, len(leases), MAX_RENEWED)
        )
        replies = await asyncio.gather(*(self._call(call) for call in calls))
        found = [reply for reply in replies if isinstance(reply, list)]
        return Renewal(sum(held for held, _ in found), sum(anew for _, anew in found))

    async def reap(self) -> int:
        """Release what crashed gateways held; returns how many leases. Call it twice a second.

        Admissions release a few on their way; this is for tenants that ask for nothing.
        """
        return await _answered(self._reaper.reap())

    async def balances(self, tenant: Tenant) -> tuple[Balance, ...]:
        """The tenant's pools as they stand."""
        return balances_of(await self._call(read_call(tenant)))

    async def forget(self, tenant_id: str) -> None:
        """Delete the pools of a tenant that is no more; what still runs finds nothing to settle."""
        keys = tenant_keys(tenant_id)
        await _answered(self._servers.call(keys[0], "DEL", *keys))

    async def ping(self) -> None:
        """Returns if Redis answers within the budget: every master of a Cluster."""
        await _answered(self._servers.ping())

    async def close(self) -> None:
        """Fail what still waits and close the connections."""
        await self._servers.close()
        await self._reaper.close()

    def _call(self, call: Arguments) -> Coroutine[Any, Any, Any]:
        return _answered(self._servers.run(_POOLS, call))


async def _answered(sent: Coroutine[Any, Any, Answer]) -> Answer:
    try:
        return await sent
    except RedisAway as error:
        raise PoolsUnavailable(f"Redis: {error}") from error
