"""Keeps pools in Redis: `MemoryPools`' methods, awaited, each one atomic call of `pools.lua`.

Every awaited call raises `PoolsUnavailable` if two attempts get no reply within their budgets;
`failover_pools` handles that. Every call is safe to repeat: `reserve` and `adopt` replay, the
others are idempotent. What is never settled expires with its lease. This is an edge.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from backends.contract import BackendGroup
from router.classify.task import Account, Tenant
from router.pools.budgets import AccountBalance
from router.pools.pools import BUDGET_US, LEASE_US, Balance, Demand, Grant, Renewal, Reservation
from router.pools.reaper import Reaper
from router.pools.script_calls import (
    MAX_RENEWED,
    NUM_KEYS,
    SCRIPT,
    Arguments,
    account_balances,
    adopt_call,
    adopted_of,
    extend_call,
    forget_call,
    grant_of,
    late_accounts,
    late_leases,
    raise_call,
    read_call,
    read_of,
    renew_call,
    reserve_call,
    settle_call,
    spent_call,
    tenant_keys,
)
from router.redis.connection import RedisError, is_wrong_type
from router.redis.servers import RedisAway, RedisServers, Script
from router.redis.url import parse_redis_url

# A settlement is repeated for a minute, and one of money until Redis answers again.
SETTLED_KEPT_MS = 600_000
_POOLS = Script(SCRIPT, NUM_KEYS)
OnLate: TypeAlias = Callable[[str, tuple[str, ...], bool], None]
OnLateBudgets: TypeAlias = Callable[[str, tuple[AccountBalance, ...]], None]


class PoolsUnavailable(RedisAway):
    """Redis did not reply in time, or with an error; the call may have taken effect."""

    @property
    def is_of_tenant(self) -> bool:
        """Says whether Redis replied, and cannot use what it has of this tenant alone."""
        return is_wrong_type(self)


class RedisPools:
    """Accesses all tenants' pools; settle a cancelled reservation, or let it expire."""

    def __init__(self, url: str, *, lease_us: int = LEASE_US, budget_us: int = BUDGET_US) -> None:
        """Connects at the first call. `url`: see `router.redis.url`."""
        target = parse_redis_url(url)
        self._servers = RedisServers(target, budget_us=budget_us, away=PoolsUnavailable)
        self._call = partial(self._servers.run, _POOLS)  # one call of the script
        self._lease_ms = lease_us // 1_000
        # Hears of a reservation, adoption or renewal that had no reply in time: of its tenant, the
        # leases that it took or may have taken, and whether it is known by now.
        self.on_late: OnLate = lambda tenant_id, leases, is_known: None
        self._servers.on_late = self._late
        # Hears of budgets that such a reply says were met first: nobody else tells of them.
        self.on_late_budgets: OnLateBudgets = lambda tenant_id, balances: None
        self._reaper = Reaper(self._servers, self._lease_ms)

    async def reserve_first(
        self, tenant: Tenant, reservation_id: str, ranked_demands: Sequence[tuple[Demand, ...]]
    ) -> Grant:
        """Reserves the first ranked demands that fit, or nothing; repeating it changes nothing."""
        call = reserve_call(tenant, reservation_id, ranked_demands, self._lease_ms)
        self._reaper.note(tenant.id)
        reply = await self._call(call)
        return grant_of(reply, tenant, reservation_id, ranked_demands)

    async def adopt(self, tenant: Tenant, reservation: Reservation) -> Grant:
        """Reserves what was granted elsewhere, fitting or not; repeating it changes nothing."""
        self._reaper.note(tenant.id)
        reply = await self._call(adopt_call(tenant, reservation, self._lease_ms))
        return adopted_of(reply, tenant, reservation)

    async def extend(self, reservation: Reservation) -> bool:
        """Reserves what `extended` added, if need be as debt, or charges what `shrunk` removed.

        It renews the lease. Repeat it until it returns: before, either of the two leases may hold.
        False if the reservation was settled, has expired or was lost.
        """
        return bool(await self._call(extend_call(reservation, self._lease_ms)))

    def settle(
        self,
        reservation: Reservation,
        actual_tokens: Mapping[BackendGroup, int],
        nusd: int = 0,
        *,
        once: bool = False,
    ) -> Coroutine[Any, Any, int]:
        """Releases the slots and charges actual tokens; a group not named used none.

        The call is sent at once, so it precedes later calls whenever it is awaited. It returns 0
        for a reservation that was settled or has expired, so settling twice is harmless.
        With `once` it also returns 0 if the reservation has arrived after it was settled.
        """
        kept_ms = SETTLED_KEPT_MS if once else 0
        return self._call(settle_call(reservation, actual_tokens, nusd=nusd, kept_ms=kept_ms))

    async def renew(self, reservations: Iterable[Reservation]) -> Renewal:
        """Renews leases from now, and reserves again what expired too early.

        After a restart of Redis the pools are missing, and reservations must be adopted instead.
        Call it every third of a lease for all tasks in flight: one call per tenant, all batched.
        A reservation whose extension has no reply yet is extended again instead.
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
        """Releases crashed gateways' leases, and returns how many; call it twice a second."""
        return await self._reaper.reap()

    async def balances(self, tenant: Tenant) -> tuple[Balance, ...]:
        """Reads the tenant's balances."""
        return read_of(await self._call(read_call(tenant)), tenant)

    async def accounts(
        self, tenant_id: str, accounts: Sequence[Account]
    ) -> tuple[AccountBalance, ...]:
        """Reads what was spent of a tenant's budgets."""
        return account_balances(await self._call(spent_call(tenant_id, accounts)), accounts)

    async def raise_run(self, tenant_id: str, account: str, limit_nusd: int) -> None:
        """Gives a run a limit of its own; -1: as configured again."""
        await self._call(raise_call(tenant_id, account, limit_nusd))

    async def forget(self, tenant_id: str, key_ids: Sequence[str] = ()) -> None:
        """Deletes a deleted tenant's pools, or those of these keys of a tenant.

        Tasks of a tenant that run on then settle nothing.
        """
        keys = tenant_keys(tenant_id)
        if key_ids:
            await self._call(forget_call(tenant_id, key_ids))
        else:
            await self._servers.call(keys[0], "DEL", *keys)

    async def ping(self) -> None:
        """Checks that Redis, or every master of a Cluster, replies within the budget."""
        await self._servers.ping()

    async def close(self) -> None:
        """Fails pending calls and closes the connections."""
        await self._servers.close()
        await self._reaper.close()

    def on_broken(self, hear: Callable[[], None]) -> None:
        """Lets `hear` be called whenever a server ends a connection: it may have lost its data."""
        self._servers.on_broken = hear

    def _late(self, script: Script, call: Arguments, reply: object) -> None:
        if script is not _POOLS or isinstance(reply, RedisError):
            return
        tenant_id = str(call[0]).partition("{")[2].partition("}")[0]
        leases = late_leases(call, reply)
        if leases:
            self.on_late(tenant_id, leases, reply is not None)
        balances = late_accounts(call, reply)
        if balances:
            self.on_late_budgets(tenant_id, balances)
