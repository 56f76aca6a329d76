"""Keeps all tenants' pools in a dict: for tests, and for back-tests on virtual time."""

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from backends.contract import BackendGroup
from router.classify.task import GroupLimits, Tenant
from router.pools import bucket
from router.pools.budgets import Purse
from router.pools.pools import (
    KEY_UNITS,
    LEASE_US,
    MAX_REAPED,
    NO_BUCKETS,
    NO_LIMITS,
    Balance,
    Buckets,
    Demand,
    Grant,
    Limits,
    Renewal,
    Reservation,
    Wait,
    all_balances,
    first_fitting,
    hold_of,
    key_of,
    key_of_lease,
    lease_of,
    most_nusd,
    parse_lease,
)


class MemoryPools:
    """Keeps all tenants' pools in this process; its methods are described in `RedisPools`."""

    def __init__(self, lease_us: int = LEASE_US) -> None:
        self._lease_ms = lease_us // 1_000
        self._tenants: defaultdict[str, _TenantPools] = defaultdict(_TenantPools)

    def reserve_first(
        self,
        tenant: Tenant,
        reservation_id: str,
        ranked_demands: Sequence[tuple[Demand, ...]],
        now_us: int,
    ) -> Grant:
        """Reserves all of the first ranked demands that fit, or nothing."""
        pools = self._at(tenant.id, now_us, tenant)
        num_reaped = pools.reap(pools.now_ms, MAX_REAPED)
        is_plain = not tenant.key_limits and not tenant.accounts  # most are: nothing to encode
        holds = ["" if is_plain else hold_of(tenant, demands) for demands in ranked_demands]
        leases = [
            lease_of(reservation_id, demands, hold)
            for demands, hold in zip(ranked_demands, holds, strict=True)
        ]
        index, (wait_ms, limited_by), over = pools.find(tenant, leases, ranked_demands)
        if index is None:
            told = over if wait_ms > bucket.SLOT_WAIT_MS else None
            return Grant(
                *(None, None, pools.balances(tenant), wait_ms * 1_000, limited_by, num_reaped),
                accounts=pools.purse.balances(tenant.accounts, now_us // 1_000, told),
                over_budget=over,
            )
        demands, lease, hold = ranked_demands[index], leases[index], holds[index]
        expires_us = pools.expiry_ms.get(lease, pools.now_ms + self._lease_ms) * 1_000
        reservation = Reservation(
            reservation_id, tenant.id, demands, lease, expires_us, None, (), hold
        )
        return self._granted(tenant, pools, index, reservation, num_reaped)

    def adopt(self, tenant: Tenant, reservation: Reservation, now_us: int) -> Grant:
        """Reserves what a reservation granted elsewhere holds, whether it fits or not."""
        pools = self._at(tenant.id, now_us, tenant)
        num_reaped = pools.reap(now_us // 1_000, MAX_REAPED)
        expires_ms = pools.expiry_ms.get(reservation.lease, now_us // 1_000 + self._lease_ms)
        adopted = msgspec.structs.replace(reservation, expires_us=expires_ms * 1_000)
        return self._granted(tenant, pools, 0, adopted, num_reaped, tells=False)

    def _granted(
        self,
        tenant: Tenant,
        pools: "_TenantPools",
        index: int,
        reservation: Reservation,
        num_reaped: int,
        *,
        tells: bool = True,
    ) -> Grant:
        if reservation.lease not in pools.expiry_ms:
            pools.take(bucket.reserve, reservation)
            pools.hold(reservation.lease, reservation.expires_us // 1_000)
        balances = pools.balances(tenant)
        accounts = pools.purse.balances(tenant.accounts, pools.now_ms, tells=tells)
        return Grant(index, reservation, balances, num_reaped=num_reaped, accounts=accounts)

    def extend(self, reservation: Reservation, now_us: int) -> bool:
        """Reserves what `extended` added, or charges and releases what `shrunk` removed."""
        pools = self._at(reservation.tenant_id, now_us)
        former = reservation.former or ""
        had_former = pools.expiry_ms.pop(former, None) is not None
        if reservation.lease in pools.expiry_ms:
            if had_former:  # a late renewal took it anew
                pools.release(former, {})
        elif had_former:
            held = parse_lease(former)
            assert held is not None, "only leases of ours are held"
            for demand in reservation.demands:
                more_tokens = demand.tokens - held.pop(demand.group)
                pools.change(bucket.extend, demand.group, key_of(reservation.hold), more_tokens)
            pools.settle(held, key_of(reservation.hold), dict(reservation.released))
        else:
            return False
        self._hold(pools, reservation.lease, now_us)
        return True

    def settle(
        self,
        reservation: Reservation,
        actual_tokens: Mapping[BackendGroup, int],
        now_us: int,
        nusd: int = 0,
    ) -> bool:
        """Releases the slots and charges actual tokens and money; a group not named used none."""
        pools = self._at(reservation.tenant_id, now_us)
        if pools.expiry_ms.pop(reservation.lease, None) is not None:
            if reservation.demands:
                pools.give_back(reservation, actual_tokens, nusd)
            else:  # all that is known of it is its lease
                pools.release(reservation.lease, actual_tokens, nusd)
            return True
        former = reservation.former
        if former is not None and pools.expiry_ms.pop(former, None) is not None:
            pools.release(former, actual_tokens, nusd)
            return True
        return False

    def renew(self, reservations: Iterable[Reservation], now_us: int) -> Renewal:
        """Renews leases from now, and reserves again what expired too early."""
        num_held = num_anew = 0
        for reservation in reservations:
            pools = self._at(reservation.tenant_id, now_us)
            if reservation.former is not None:
                self.extend(reservation, now_us)  # which has no reply yet
                continue
            if reservation.lease in pools.expiry_ms:
                num_held += 1
            elif pools.has(reservation.demands):
                num_anew += 1
                pools.take(bucket.adopt, reservation)
            else:
                continue
            self._hold(pools, reservation.lease, now_us)
        return Renewal(num_held, num_anew)

    def balances(self, tenant: Tenant, now_us: int) -> tuple[Balance, ...]:
        """Returns the tenant's balances."""
        pools = self._at(tenant.id, now_us, tenant)
        pools.reap(now_us // 1_000, MAX_REAPED)
        return pools.balances(tenant)

    def raise_run(self, tenant_id: str, account: str, limit_nusd: int, now_us: int) -> None:
        """Gives a run a limit of its own; -1: as configured again."""
        self._tenants[tenant_id].purse.at(account, now_us // 1_000).raised = limit_nusd

    def reap(self, tenant_id: str, most: int, now_us: int) -> int:
        """Releases at most `most` expired leases of a tenant; returns how many."""
        return self._at(tenant_id, now_us).reap(now_us // 1_000, most)

    def _at(self, tenant_id: str, now_us: int, tenant: Tenant | None = None) -> "_TenantPools":
        pools = self._tenants[tenant_id]
        pools.load(tenant, now_us // 1_000)
        return pools

    def _hold(self, pools: "_TenantPools", lease: str, now_us: int) -> None:
        pools.hold(lease, now_us // 1_000 + self._lease_ms)


class _Buckets:
    """Holds the buckets of a tenant, or of a key, by group. As in `pools.lua`: read, then change.

    What was read is stored only when something was reserved or released, when limits changed, and
    when the clock stepped back; a refill alone is exact and can be repeated.
    """

    __slots__ = ("_kept", "_now_ms", "limits", "states")

    def __init__(self) -> None:
        self._now_ms = 0  # of the call
        self._kept: dict[BackendGroup, bucket.BucketState] = {}
        self.states: dict[BackendGroup, bucket.BucketState] = {}  # those read in this call
        self.limits: dict[BackendGroup, GroupLimits] = {}

    def begin(self, now_ms: int) -> None:
        """Begins a call: nothing is read yet."""
        self._now_ms = now_ms
        self.states.clear()

    def read(self) -> None:
        """Reads all buckets."""
        for group, kept in list(self._kept.items()):
            if group not in self.states:
                self._refilled(group, kept)

    def at(self, group: BackendGroup) -> bucket.BucketState | None:
        """Returns a bucket as it is now; None if there is none."""
        state = self.states.get(group)
        if state is None and (kept := self._kept.get(group)) is not None:
            return self._refilled(group, kept)
        return state

    def _refilled(self, group: BackendGroup, kept: bucket.BucketState) -> bucket.BucketState:
        state = self.states[group] = msgspec.structs.replace(kept)
        bucket.refill(state, self.limits[group], self._now_ms)
        if self._now_ms < kept.stamp_ms:
            self._kept[group] = state
        return state

    def limit(self, limits: Limits) -> None:
        """Applies limits, which may lower levels, and makes buckets that are missing.

        All buckets must have been read.
        """
        for group, group_limits in limits.items():
            state = self.states.get(group)
            if state is None:
                state = self.states[group] = bucket.new_state(group_limits, self._now_ms)
            elif (known := self.limits[group]) is not group_limits and known != group_limits:
                bucket.refill(state, group_limits, self._now_ms)
            else:
                continue
            self.limits[group] = group_limits
            self._kept[group] = state

    def change(self, how: Callable[..., None], group: BackendGroup, *tokens: int) -> None:
        """Applies one of `bucket`'s functions to a group's bucket, if there is one."""
        state = self.states.get(group) or self.at(group)
        if state is not None:
            how(state, self.limits[group], *tokens)
            self._kept[group] = state  # what the rest of the call does to it is stored, too


class _TenantPools:
    """Holds one tenant's buckets, its keys' and its leases."""

    __slots__ = ("_by_expiry", "_keys", "_own", "_read_keys", "expiry_ms", "now_ms", "purse")

    def __init__(self) -> None:
        self.purse = Purse()
        self.now_ms = 0  # of the latest `load`
        self._own = _Buckets()
        self._keys: defaultdict[str, _Buckets] = defaultdict(_Buckets)
        self._read_keys: set[str] = set()  # in this call
        self.expiry_ms: dict[str, int] = {}  # lease -> when it expires
        self._by_expiry: list[tuple[int, str]] = []  # heap; entries of renewed leases are stale

    def load(self, tenant: Tenant | None, now_ms: int) -> None:
        """Refills the buckets until now, then applies new limits."""
        stepped_back, self.now_ms = now_ms < self.now_ms, now_ms
        self._read_keys.clear()
        own = self._own
        own.begin(now_ms)
        if tenant is not None or stepped_back:  # else those are read that the call is about
            own.read()
        if tenant is not None:
            own.limit(tenant.limits)
            if tenant.key_limits:
                of_key = self._of_key(tenant.key_id)
                of_key.read()
                of_key.limit(tenant.key_limits)

    def _of_key(self, key: str) -> _Buckets:
        buckets = self._keys[key]
        if key not in self._read_keys:
            self._read_keys.add(key)
            buckets.begin(self.now_ms)
        return buckets

    def change(self, how: Callable[..., None], group: BackendGroup, key: str, *tokens: int) -> None:
        """Applies one of `bucket`'s functions to a group's bucket, and to the key's if it has."""
        self._own.change(how, group, *tokens)
        if key:
            self._of_key(key).change(how, group, *tokens)

    def take(self, how: Callable[..., None], reservation: Reservation) -> None:
        """Takes what a reservation holds, by one of `bucket`'s functions."""
        key = key_of(reservation.hold)
        for demand in reservation.demands:
            self.change(how, demand.group, key, demand.tokens)
        if reservation.hold:
            self.purse.hold(reservation.lease, self.now_ms)

    def reap(self, now_ms: int, most: int) -> int:
        """Releases at most `most` expired leases, the earliest first."""
        num_reaped = 0
        while self._by_expiry and self._by_expiry[0][0] <= now_ms and num_reaped < most:
            expires_ms, lease = heapq.heappop(self._by_expiry)
            if self.expiry_ms.get(lease) == expires_ms:
                del self.expiry_ms[lease]
                num_reaped += 1
                self.release(lease, {})
        return num_reaped

    def find(
        self, tenant: Tenant, leases: Sequence[str], ranked_demands: Sequence[tuple[Demand, ...]]
    ) -> tuple[int | None, Wait, tuple[int, int] | None]:
        """Finds the demands held already or the first that fit, or else the shortest wait.

        The last is the account and window that sets the wait, if a budget does.
        """
        for index, lease in enumerate(leases):
            if lease in self.expiry_ms:
                return index, (0, None), None
        own = self._own.states, self._own.limits
        of_key: tuple[Buckets, Limits] = (NO_BUCKETS, NO_LIMITS)
        if tenant.key_limits:
            of_key = (self._of_key(tenant.key_id).states, tenant.key_limits)
        if not tenant.accounts:
            return *first_fitting(enumerate(ranked_demands), *own, *of_key), None
        soonest: tuple[Wait, tuple[int, int] | None] | None = None
        for index, demands in enumerate(ranked_demands):
            _, waits = first_fitting([(index, demands)], *own, *of_key)
            broke = self.purse.wait(tenant.accounts, most_nusd(demands), self.now_ms)
            over = None
            if broke is not None and broke[0] > waits[0]:
                waits, over = (broke[0], None), broke[1:]
            if waits[0] == 0:
                return index, waits, None
            if soonest is None or waits[0] < soonest[0][0]:
                soonest = waits, over
        assert soonest is not None, "one route at least is ranked"
        return None, *soonest

    def has(self, demands: tuple[Demand, ...]) -> bool:
        return all(self._own.at(demand.group) is not None for demand in demands)

    def give_back(
        self, reservation: Reservation, actual_tokens: Mapping[BackendGroup, int], nusd: int
    ) -> None:
        """Releases what a reservation holds, as `release` does what a lease says."""
        if reservation.hold:
            self.purse.settle(reservation.lease, nusd, self.now_ms)
        key = key_of(reservation.hold)
        for demand in reservation.demands:
            group = demand.group
            self.change(bucket.settle, group, key, demand.tokens, actual_tokens.get(group, 0))

    def release(self, lease: str, actual_tokens: Mapping[BackendGroup, int], nusd: int = 0) -> None:
        self.purse.settle(lease, nusd, self.now_ms)
        held = parse_lease(lease)
        assert held is not None, "only leases of ours are held"
        self.settle(held, key_of_lease(lease), actual_tokens)

    def settle(
        self,
        held: Mapping[BackendGroup, int],
        key: str,
        actual_tokens: Mapping[BackendGroup, int],
    ) -> None:
        for group, tokens in held.items():
            self.change(bucket.settle, group, key, tokens, actual_tokens.get(group, 0))

    def hold(self, lease: str, expires_ms: int) -> None:
        self.expiry_ms[lease] = expires_ms
        heapq.heappush(self._by_expiry, (expires_ms, lease))

    def balances(self, tenant: Tenant) -> tuple[Balance, ...]:
        own = self._own
        found = all_balances(own.states, own.limits)
        if not tenant.key_limits:
            return found
        of_key = self._of_key(tenant.key_id).states
        return found + all_balances(of_key, tenant.key_limits, KEY_UNITS)
