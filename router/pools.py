"""Pools: what limits a tenant, what a task asks of them, and what it was granted.

Each tenant has three pools per group of backends: requests per minute, tokens per minute, and
tasks at once. `reserve_first` takes what the first ranked route that fits demands, all of it or
nothing; `settle` puts the real usage in its place. A reservation is a lease: a gateway renews it
while the task lives, and if the gateway dies the lease runs out and everything comes back.

`MemoryPools` keeps them in a dict, for tests and back-tests on virtual time. `RedisPools` has the
same methods, awaited, for production.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import Literal

import msgspec

from backends.contract import BackendGroup
from router import bucket
from router.task import GroupLimits, Tenant

Unit = Literal["requests", "tokens", "concurrent"]
PoolsMode = Literal["redis", "degraded"]  # the shared pools, or this process's own

GROUPS: tuple[BackendGroup, ...] = ("fast", "deep")
UNITS: tuple[Unit, ...] = ("requests", "tokens", "concurrent")
LEASE_US = 30_000_000  # three renewals' worth: one lost renewal must not cost a live task its place
MAX_REAPED = 8  # expired leases one call gives back, so that its work stays bounded


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """What one route asks of one group's pools: one request, one place, and these tokens."""

    group: BackendGroup
    tokens: int  # prompt plus expected output; 0 for a warm-up


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    """What was granted, and must be settled exactly once; `lease` is opaque to callers."""

    id: str
    tenant_id: str
    demands: tuple[Demand, ...]
    lease: str
    expires_us: int  # Redis server time; renewed while the task lives


class Balance(msgspec.Struct, frozen=True, kw_only=True):
    """One pool as it stands: what a client is told in headers."""

    group: BackendGroup
    unit: Unit
    limit: int  # per minute; for `concurrent`, at once
    remaining: int  # never negative
    reset_us: int  # until it is full again; 0 for `concurrent`


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `reserve_first`: which of the ranked demands was taken, or how long to wait."""

    index: int | None  # into the ranked demands; None: none fits now
    reservation: Reservation | None
    balances: tuple[Balance, ...]  # all pools of the tenant, after the call
    wait_us: int = 0  # refused: until the soonest of the ranked demands would fit
    limited_by: tuple[BackendGroup, Unit] | None = None  # refused: the pool that sets `wait_us`
    num_reaped: int = 0  # expired leases this call gave back: their gateways crashed
    mode: PoolsMode = "redis"  # whose pools these were


def lease_of(reservation_id: str, demands: Sequence[Demand]) -> str:
    """The lease of these demands: what must come back, so that anyone can return it.

    `id|tokens of fast|tokens of deep`, -1 for a group that is not part of it. The format belongs
    to the key prefix `lw1`: change one with the other.
    """
    tokens = {demand.group: demand.tokens for demand in demands}
    return "|".join([reservation_id, *(str(tokens.get(group, -1)) for group in GROUPS)])


def group_balances(
    group: BackendGroup, state: bucket.BucketState, limits: GroupLimits
) -> tuple[Balance, ...]:
    """What to tell a client about one group's pools, refilled before."""
    requests, tokens = limits.requests_per_min, limits.tokens_per_min
    return (
        Balance(
            group=group,
            unit="requests",
            limit=requests,
            remaining=max(0, state.requests_level // bucket.LEVEL_PER_UNIT),
            reset_us=bucket.reset_ms(state.requests_level, requests) * 1_000,
        ),
        Balance(
            group=group,
            unit="tokens",
            limit=tokens,
            remaining=max(0, state.tokens_level // bucket.LEVEL_PER_UNIT),
            reset_us=bucket.reset_ms(state.tokens_level, tokens) * 1_000,
        ),
        Balance(
            group=group,
            unit="concurrent",
            limit=limits.max_concurrent,
            remaining=max(0, limits.max_concurrent - state.num_held),
            reset_us=0,
        ),
    )


class MemoryPools:
    """All tenants' pools in this process. `now_us` is whatever clock the caller keeps."""

    def __init__(self, lease_us: int = LEASE_US) -> None:
        self._lease_ms = lease_us // 1_000
        self._tenants: dict[str, _TenantPools] = {}

    def reserve_first(
        self,
        tenant: Tenant,
        reservation_id: str,
        ranked_demands: Sequence[tuple[Demand, ...]],
        now_us: int,
    ) -> Grant:
        """Reserve the first of the ranked demands that fits, whole, or nothing.

        The same reservation id with the same demands gets the same reservation again.
        """
        pools = self._at(tenant, now_us)
        num_reaped = pools.reap(now_us // 1_000)
        index, wait_ms, limited_by = pools.find(reservation_id, ranked_demands)
        if index is None:
            return Grant(
                index=None,
                reservation=None,
                balances=pools.balances(),
                wait_us=wait_ms * 1_000,
                limited_by=limited_by,
                num_reaped=num_reaped,
            )
        demands = ranked_demands[index]
        lease = lease_of(reservation_id, demands)
        if lease not in pools.expiry_ms:
            for demand in demands:
                pools.reserve(demand)
            pools.hold(lease, now_us // 1_000 + self._lease_ms)
        reservation = Reservation(
            id=reservation_id,
            tenant_id=tenant.id,
            demands=demands,
            lease=lease,
            expires_us=pools.expiry_ms[lease] * 1_000,
        )
        return Grant(
            index=index,
            reservation=reservation,
            balances=pools.balances(),
            num_reaped=num_reaped,
        )

    def adopt(self, tenant: Tenant, reservation: Reservation, now_us: int) -> Grant:
        """Take what a reservation that was granted elsewhere holds, whether it fits or not.

        One that is held already is left as it is, so adopting twice is harmless.
        """
        pools = self._at(tenant, now_us)
        num_reaped = pools.reap(now_us // 1_000)
        if reservation.lease not in pools.expiry_ms:
            for demand in reservation.demands:
                pools.reserve(demand)
            pools.hold(reservation.lease, now_us // 1_000 + self._lease_ms)
        adopted = msgspec.structs.replace(
            reservation, expires_us=pools.expiry_ms[reservation.lease] * 1_000
        )
        return Grant(index=0, reservation=adopted, balances=pools.balances(), num_reaped=num_reaped)

    def settle(
        self, reservation: Reservation, actual_tokens: Mapping[BackendGroup, int], now_us: int
    ) -> tuple[Balance, ...]:
        """Give the places back and charge actual tokens; a group not named used none.

        A reservation that was settled or has expired is left alone: settling twice is harmless.
        """
        pools = self._tenants[reservation.tenant_id]
        pools.load({}, now_us // 1_000)
        if pools.expiry_ms.pop(reservation.lease, None) is not None:
            for demand in reservation.demands:
                pools.settle(demand, actual_tokens.get(demand.group, 0))
        return pools.balances()

    def renew(self, reservations: Iterable[Reservation], now_us: int) -> None:
        """Let these leases run from now again; one that was settled or reaped stays gone."""
        for reservation in reservations:
            pools = self._tenants[reservation.tenant_id]
            if reservation.lease in pools.expiry_ms:
                pools.hold(reservation.lease, now_us // 1_000 + self._lease_ms)

    def balances(self, tenant: Tenant, now_us: int) -> tuple[Balance, ...]:
        """The tenant's pools as they stand."""
        pools = self._at(tenant, now_us)
        pools.reap(now_us // 1_000)
        return pools.balances()

    def _at(self, tenant: Tenant, now_us: int) -> "_TenantPools":
        pools = self._tenants.setdefault(tenant.id, _TenantPools())
        pools.load(tenant.limits, now_us // 1_000)
        return pools


class _TenantPools:
    """One tenant's buckets and leases. As in `pools.lua`: `load`, then change what was loaded.

    What is loaded is kept only where something was taken or given back, where limits changed, and
    where the clock stepped back; a refill alone is exact and can be done again.
    """

    __slots__ = ("_by_expiry", "_kept", "_limits", "_states", "expiry_ms")

    def __init__(self) -> None:
        self._kept: dict[BackendGroup, bucket.BucketState] = {}
        self._states: dict[BackendGroup, bucket.BucketState] = {}
        self._limits: dict[BackendGroup, GroupLimits] = {}
        self.expiry_ms: dict[str, int] = {}  # lease -> when it expires
        self._by_expiry: list[tuple[int, str]] = []  # heap; entries of renewed leases are stale

    def load(self, limits: Mapping[BackendGroup, GroupLimits], now_ms: int) -> None:
        """Bring the buckets to now, then to these limits: a level above a new one comes down."""
        for group, kept in self._kept.items():
            state = self._states[group] = copy(kept)
            bucket.refill(state, self._limits[group], now_ms)
            if now_ms < kept.stamp_ms:
                self._keep(group)
        for group, group_limits in limits.items():
            if group not in self._kept:
                self._states[group] = bucket.new_state(group_limits, now_ms)
            elif group_limits != self._limits[group]:
                bucket.refill(self._states[group], group_limits, now_ms)
            else:
                continue
            self._limits[group] = group_limits
            self._keep(group)

    def _keep(self, group: BackendGroup) -> None:
        self._kept[group] = copy(self._states[group])

    def reap(self, now_ms: int) -> int:
        """Return what expired leases hold, soonest first; at most `MAX_REAPED` of them."""
        num_reaped = 0
        while self._by_expiry and self._by_expiry[0][0] <= now_ms and num_reaped < MAX_REAPED:
            expires_ms, lease = heapq.heappop(self._by_expiry)
            if self.expiry_ms.get(lease) != expires_ms:
                continue
            del self.expiry_ms[lease]
            num_reaped += 1
            for group, tokens in zip(GROUPS, lease.rsplit("|", 2)[1:], strict=True):
                if tokens != "-1":
                    self.settle(Demand(group=group, tokens=int(tokens)), 0)
        return num_reaped

    def find(
        self, reservation_id: str, ranked_demands: Sequence[tuple[Demand, ...]]
    ) -> tuple[int | None, int, tuple[BackendGroup, Unit] | None]:
        """The demands held already or the first that fit; else the shortest wait and its pool."""
        for index, demands in enumerate(ranked_demands):
            if lease_of(reservation_id, demands) in self.expiry_ms:
                return index, 0, None
        soonest: tuple[int, tuple[BackendGroup, Unit] | None] | None = None
        for index, demands in enumerate(ranked_demands):
            wait_ms, pool = self._tightest(demands)
            if wait_ms == 0:
                return index, 0, None
            if soonest is None or wait_ms < soonest[0]:
                soonest = wait_ms, pool
        assert soonest is not None, "nothing was demanded"
        return None, *soonest

    def _tightest(
        self, demands: tuple[Demand, ...]
    ) -> tuple[int, tuple[BackendGroup, Unit] | None]:
        longest_ms: int = 0
        tightest: tuple[BackendGroup, Unit] | None = None
        for demand in demands:
            state, limits = self._states[demand.group], self._limits[demand.group]
            waits = bucket.waits_ms(state, limits, demand.tokens)
            for unit, wait_ms in zip(UNITS, waits, strict=True):
                if wait_ms > longest_ms:
                    longest_ms, tightest = wait_ms, (demand.group, unit)
        return longest_ms, tightest

    def reserve(self, demand: Demand) -> None:
        bucket.reserve(self._states[demand.group], self._limits[demand.group], demand.tokens)
        self._keep(demand.group)

    def settle(self, demand: Demand, tokens: int) -> None:
        state, limits = self._states[demand.group], self._limits[demand.group]
        bucket.settle(state, limits, demand.tokens, tokens)
        self._keep(demand.group)

    def hold(self, lease: str, expires_ms: int) -> None:
        self.expiry_ms[lease] = expires_ms
        heapq.heappush(self._by_expiry, (expires_ms, lease))

    def balances(self) -> tuple[Balance, ...]:
        return tuple(
            balance
            for group in GROUPS
            if group in self._states
            for balance in group_balances(group, self._states[group], self._limits[group])
        )
