"""Defines a tenant's pools, what a task demands of them, and what it is granted.

Each tenant has pools per group of backends: requests per minute, tokens per minute, tasks at once,
and tokens per day. `reserve_first` reserves all demands of the first ranked route that fits;
`extend` reserves more, or releases a group that is done; `settle` charges the actual usage. A
reservation is a lease: a gateway renews it while the task lives, and if the gateway dies, the lease
expires and everything is released.

`MemoryPools` keeps them in a dict, for tests and back-tests; `RedisPools` awaits the same methods.
"""

import heapq
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Literal

import msgspec

from backends.contract import BackendGroup
from router.classify.task import GroupLimits, Tenant
from router.pools import bucket
from router.pools.budgets import AccountBalance, Purse, hold_of

Unit = Literal["requests", "tokens", "concurrent", "tokens_day"]
Shed = Literal["capacity", "share"]  # the group is full, or the tenant's share of it
PoolsMode = Literal["redis", "degraded"]  # the shared pools, or this process's own
PoolCall = Literal["admit", "extend", "settle", "renew"]  # to Redis
Waits = tuple[int, tuple[BackendGroup, Unit] | None]  # ms, and the pool that sets it

GROUPS: tuple[BackendGroup, ...] = ("fast", "deep")
UNITS: tuple[Unit, ...] = ("requests", "tokens", "concurrent", "tokens_day")
BUDGET_US = 50_000  # one attempt of a call to shared pools; two are made at most
LEASE_US = 30_000_000  # three renewals: one lost renewal must not cost a live task its slot
_LEASE = re.compile(r".*\|(-?\d+)\|(-?\d+)", re.DOTALL)
MAX_REAPED = 8  # expired leases that one reservation releases


class Demand(msgspec.Struct, frozen=True):
    """Holds what one route takes from one group's pools: one request, one slot, and tokens."""

    group: BackendGroup
    tokens: int  # weighted: prompt plus expected output; 0 for a warm-up
    most_nusd: int = 0  # what it can cost at most; only counted where the tenant has budgets


class Reservation(msgspec.Struct, frozen=True):
    """Holds what was granted, and must be settled exactly once; leases are opaque to callers."""

    id: str
    tenant_id: str
    demands: tuple[Demand, ...]
    lease: str
    expires_us: int  # Redis server time; renewed while the task lives
    former: str | None = None  # the lease it still has if its extension did not get through
    # What groups are charged that `former` holds and `lease` does not.
    released: tuple[tuple[BackendGroup, int], ...] = ()
    hold: str = ""  # the money in the lease, and the accounts that it is taken from


class Balance(msgspec.Struct, frozen=True):
    """Holds one pool's balance, as clients read it in headers."""

    group: BackendGroup
    unit: Unit
    limit: int  # per minute or day; for `concurrent`, at once
    remaining: int  # never negative
    reset_us: int  # until it is full again; 0 for `concurrent`


class Grant(msgspec.Struct, frozen=True):
    """Says which of the ranked demands was reserved, or how long to wait."""

    index: int | None  # into the ranked demands; None: none fits now
    reservation: Reservation | None
    balances: tuple[Balance, ...]  # all pools of the tenant, after the call
    wait_us: int = 0  # refused: until the soonest of the ranked demands would fit
    limited_by: tuple[BackendGroup, Unit] | None = None  # refused: the pool that sets `wait_us`
    num_reaped: int = 0  # expired leases this call released: their gateways crashed
    mode: PoolsMode = "redis"  # whose pools these were
    shed: Shed | None = None  # refused by the group's concurrency limit and not by a pool
    accounts: tuple[AccountBalance, ...] = ()  # of the task's budgets, after the call
    over_budget: tuple[int, int] | None = None  # refused by: index into `accounts`, into `WINDOWS`


class Renewal(msgspec.Struct, frozen=True):
    """Counts the leases that `renew` found."""

    num_held: int
    num_anew: int  # expired too early, and reserved again


class PoolsReport(msgspec.Struct, frozen=True, kw_only=True):
    """Reports the state of the pools, for metrics."""

    mode: PoolsMode
    num_gateways: int  # that live, this one included, as Redis last said
    num_heard: int = 1  # of those, how many it heard from just now
    num_unsettled: int  # settlements that wait for Redis
    num_uncharged: int  # settlements given up since start
    num_recoveries: int  # returns to Redis since start


def lease_of(reservation_id: str, demands: Sequence[Demand], hold: str = "") -> str:
    """Encodes what a reservation holds, so that any gateway can release it.

    The format is `2:id|fast tokens|deep tokens`, -1 for an absent group, in `pools.lua` as well;
    money that is held (`hold_of`) stands after the id. A
    repeated call makes the same lease and is charged once. Later versions may change what precedes
    the first `|`; the two numbers stay last, so that older gateways can release the lease.
    """
    fast = deep = -1
    for demand in demands:
        if demand.group == "fast":
            fast = demand.tokens
        else:
            deep = demand.tokens
    return f"2:{reservation_id}{hold}|{fast}|{deep}"


def most_nusd(demands: Sequence[Demand]) -> int:
    """Returns what these demands can cost at most."""
    return sum(demand.most_nusd for demand in demands)


def reservation_id_of(lease: str) -> str:
    """Returns the id of the reservation that a lease of this version belongs to."""
    return lease.removeprefix("2:").rsplit("|", 2)[0].partition("$")[0]


def parse_lease(lease: str) -> dict[BackendGroup, int] | None:
    """Decodes the tokens that a lease of any version holds by group; None if it is no lease."""
    match = _LEASE.fullmatch(lease)
    if match is None:
        return None
    tokens = zip(GROUPS, match.groups(), strict=True)
    return {group: int(number) for group, number in tokens if number != "-1"}


def extended(reservation: Reservation, tokens: Mapping[BackendGroup, int]) -> Reservation:
    """Makes the reservation to `extend` to: each named group holds at least that many tokens.

    Until `extend` returns, either lease may hold; the reservation has both, so it can be settled
    at any time. Repeat an extension whose reply was lost before making the next.
    """
    assert reservation.former is None, "the extension before has no answer yet"
    demands = tuple(
        Demand(demand.group, max(demand.tokens, tokens.get(demand.group, 0)))
        for demand in reservation.demands
    )
    return msgspec.structs.replace(
        reservation,
        demands=demands,
        lease=lease_of(reservation.id, demands, reservation.hold),
        former=reservation.lease,
    )


def shrunk(reservation: Reservation, used_tokens: Mapping[BackendGroup, int]) -> Reservation:
    """Makes the reservation to `extend` to without these groups, which are charged; one stays."""
    assert reservation.former is None, "the extension before has no answer yet"
    demands = tuple(demand for demand in reservation.demands if demand.group not in used_tokens)
    assert demands, "nothing would be left: settle it"
    return msgspec.structs.replace(
        reservation,
        demands=demands,
        lease=lease_of(reservation.id, demands, reservation.hold),
        former=reservation.lease,
        released=tuple(used_tokens.items()),
    )


def group_balances(
    group: BackendGroup, state: bucket.BucketState, limits: GroupLimits
) -> tuple[Balance, ...]:
    """Returns the balances of one group's pools, which must be refilled."""
    per_day = limits.tokens_per_day
    return balances_from(
        group,
        (state.requests_level, state.tokens_level, state.num_held),
        (limits.requests_per_min, limits.tokens_per_min, limits.max_concurrent),
        -1 if per_day is None else per_day,
        state.day_tokens + state.held_tokens,
        0 if per_day is None else bucket.day_left_ms(state),
    )


def balances_from(
    group: BackendGroup,
    levels: Sequence[int],
    limits: Sequence[int],
    per_day: int,
    day_tokens: int,
    day_left_ms: int,
) -> tuple[Balance, ...]:
    """Makes balances from plain numbers, since every admission makes some.

    `levels` and `limits` are of requests and tokens (levels in `bucket`'s units) and of slots;
    `per_day` is -1 without such a limit; `day_tokens` are those charged and reserved today.
    """
    requests, tokens, num_held = levels
    per_min, tokens_per_min, most = limits
    balances = (
        Balance(
            group,
            "requests",
            per_min,
            max(0, requests // bucket.LEVEL_PER_UNIT),
            bucket.reset_ms(requests, per_min) * 1_000,
        ),
        Balance(
            group,
            "tokens",
            tokens_per_min,
            max(0, tokens // bucket.LEVEL_PER_UNIT),
            bucket.reset_ms(tokens, tokens_per_min) * 1_000,
        ),
        Balance(group, "concurrent", most, max(0, most - num_held), 0),
    )
    if per_day < 0:
        return balances
    left = max(0, per_day - day_tokens)
    return (*balances, Balance(group, "tokens_day", per_day, left, day_left_ms * 1_000))


Buckets = Mapping[BackendGroup, bucket.BucketState]
Limits = Mapping[BackendGroup, GroupLimits]


def first_fitting(
    ranked: Iterable[tuple[int, tuple[Demand, ...]]], buckets: Buckets, limits: Limits
) -> tuple[int | None, Waits]:
    """Returns the index of the first demands that fit, or None and the shortest wait."""
    waits: list[Waits] = []
    for index, demands in ranked:
        for each in demands:
            if not bucket.fits(buckets[each.group], limits[each.group], each.tokens):
                break
        else:
            return index, (0, None)
        found = (
            (wait_ms, (each.group, unit))
            for each in demands
            for unit, wait_ms in zip(
                UNITS,
                bucket.waits_ms(buckets[each.group], limits[each.group], each.tokens),
                strict=True,
            )
        )
        waits.append(max(found, key=itemgetter(0)))
    return None, min(waits, key=itemgetter(0))


def all_balances(buckets: Buckets, limits: Limits) -> tuple[Balance, ...]:
    """Returns the balances of every group that has limits; they must be refilled."""
    found: list[Balance] = []
    for group, group_limits in limits.items():
        found += group_balances(group, buckets[group], group_limits)
    return tuple(found)


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
        pools = self._at(tenant.id, now_us, tenant.limits)
        num_reaped = pools.reap(now_us // 1_000, MAX_REAPED)
        index, (wait_ms, limited_by), over = pools.find(tenant, reservation_id, ranked_demands)
        if index is None:
            told = over if wait_ms > bucket.SLOT_WAIT_MS else None
            return Grant(
                *(None, None, pools.balances(), wait_ms * 1_000, limited_by, num_reaped),
                accounts=pools.purse.balances(tenant.accounts, now_us // 1_000, told),
                over_budget=over,
            )
        demands = ranked_demands[index]
        hold = hold_of(most_nusd(demands), tenant.accounts) if tenant.accounts else ""
        lease = lease_of(reservation_id, demands, hold)
        reservation = Reservation(reservation_id, tenant.id, demands, lease, 0, hold=hold)
        return self._granted(tenant, pools, index, reservation, now_us, num_reaped)

    def adopt(self, tenant: Tenant, reservation: Reservation, now_us: int) -> Grant:
        """Reserves what a reservation granted elsewhere holds, whether it fits or not."""
        pools = self._at(tenant.id, now_us, tenant.limits)
        num_reaped = pools.reap(now_us // 1_000, MAX_REAPED)
        return self._granted(tenant, pools, 0, reservation, now_us, num_reaped)

    def _granted(
        self,
        tenant: Tenant,
        pools: "_TenantPools",
        index: int,
        reservation: Reservation,
        now_us: int,
        num_reaped: int,
    ) -> Grant:
        if reservation.lease not in pools.expiry_ms:
            pools.take(bucket.reserve, reservation.demands)
            pools.purse.hold(reservation.lease, pools.now_ms)
            self._hold(pools, reservation.lease, now_us)
        expires_us = pools.expiry_ms[reservation.lease] * 1_000
        granted = msgspec.structs.replace(reservation, expires_us=expires_us)
        balances = pools.balances()
        accounts = pools.purse.balances(tenant.accounts, pools.now_ms)
        return Grant(index, granted, balances, num_reaped=num_reaped, accounts=accounts)

    def extend(self, reservation: Reservation, now_us: int) -> bool:
        """Reserves what `extended` added, or charges and releases what `shrunk` removed."""
        pools = self._at(reservation.tenant_id, now_us)
        former = reservation.former
        if former is not None and pools.expiry_ms.pop(former, None) is not None:
            held = parse_lease(former)
            assert held is not None, "only leases of ours are held"
            for demand in reservation.demands:
                more_tokens = demand.tokens - held.pop(demand.group)
                pools.change(bucket.extend, demand.group, more_tokens)
            pools.settle(held, dict(reservation.released))
        elif reservation.lease not in pools.expiry_ms:
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
        for lease in (reservation.lease, reservation.former):
            if lease is not None and pools.expiry_ms.pop(lease, None) is not None:
                pools.release(lease, actual_tokens, nusd)
                return True
        return False

    def renew(self, reservations: Iterable[Reservation], now_us: int) -> Renewal:
        """Renews leases from now, and reserves again what expired too early."""
        num_held = num_anew = 0
        for reservation in reservations:
            pools = self._at(reservation.tenant_id, now_us)
            if reservation.lease in pools.expiry_ms:
                num_held += 1
            elif pools.has(reservation.demands):
                num_anew += 1
                pools.take(bucket.adopt, reservation.demands)
                pools.purse.hold(reservation.lease, pools.now_ms)
            else:
                continue
            self._hold(pools, reservation.lease, now_us)
        return Renewal(num_held, num_anew)

    def balances(self, tenant: Tenant, now_us: int) -> tuple[Balance, ...]:
        """Returns the tenant's balances."""
        pools = self._at(tenant.id, now_us, tenant.limits)
        pools.reap(now_us // 1_000, MAX_REAPED)
        return pools.balances()

    def raise_run(self, tenant_id: str, account: str, limit_nusd: int, now_us: int) -> None:
        """Gives a run a limit of its own; -1: as configured again."""
        self._tenants[tenant_id].purse.at(account, now_us // 1_000).raised = limit_nusd

    def reap(self, tenant_id: str, most: int, now_us: int) -> int:
        """Releases at most `most` expired leases of a tenant; returns how many."""
        return self._at(tenant_id, now_us).reap(now_us // 1_000, most)

    def _at(self, tenant_id: str, now_us: int, limits: Limits | None = None) -> "_TenantPools":
        pools = self._tenants[tenant_id]
        pools.load(limits or {}, now_us // 1_000)
        return pools

    def _hold(self, pools: "_TenantPools", lease: str, now_us: int) -> None:
        pools.hold(lease, now_us // 1_000 + self._lease_ms)


class _TenantPools:
    """Holds one tenant's buckets and leases. As in `pools.lua`: `load`, then change.

    Loaded buckets are stored only when something was reserved or released, when limits changed,
    and when the clock stepped back; a refill alone is exact and can be repeated.
    """

    __slots__ = ("_by_expiry", "_kept", "_limits", "_states", "expiry_ms", "now_ms", "purse")

    def __init__(self) -> None:
        self.purse = Purse()
        self.now_ms = 0  # of the latest `load`
        self._kept: dict[BackendGroup, bucket.BucketState] = {}
        self._states: dict[BackendGroup, bucket.BucketState] = {}
        self._limits: dict[BackendGroup, GroupLimits] = {}
        self.expiry_ms: dict[str, int] = {}  # lease -> when it expires
        self._by_expiry: list[tuple[int, str]] = []  # heap; entries of renewed leases are stale

    def load(self, limits: Limits, now_ms: int) -> None:
        """Refills the buckets until now, then applies new limits, which may lower levels."""
        self.now_ms = now_ms
        for group, kept in self._kept.items():
            state = self._states[group] = msgspec.structs.replace(kept)
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
        self._kept[group] = msgspec.structs.replace(self._states[group])

    def change(self, how: Callable[..., None], group: BackendGroup, *tokens: int) -> None:
        """Applies one of `bucket`'s functions to a group's bucket."""
        how(self._states[group], self._limits[group], *tokens)
        self._keep(group)

    def take(self, how: Callable[..., None], demands: tuple[Demand, ...]) -> None:
        for demand in demands:
            self.change(how, demand.group, demand.tokens)

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
        self, tenant: Tenant, reservation_id: str, ranked_demands: Sequence[tuple[Demand, ...]]
    ) -> tuple[int | None, Waits, tuple[int, int] | None]:
        """Finds the demands held already or the first that fit, or else the shortest wait.

        The last is the account and window that sets the wait, if a budget does.
        """
        for index, demands in enumerate(ranked_demands):
            hold = hold_of(most_nusd(demands), tenant.accounts) if tenant.accounts else ""
            if lease_of(reservation_id, demands, hold) in self.expiry_ms:
                return index, (0, None), None
        if not tenant.accounts:
            found = first_fitting(enumerate(ranked_demands), self._states, self._limits)
            return *found, None
        soonest: tuple[Waits, tuple[int, int] | None] | None = None
        for index, demands in enumerate(ranked_demands):
            _, waits = first_fitting([(index, demands)], self._states, self._limits)
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
        return all(demand.group in self._states for demand in demands)

    def release(self, lease: str, actual_tokens: Mapping[BackendGroup, int], nusd: int = 0) -> None:
        self.purse.settle(lease, nusd, self.now_ms)
        held = parse_lease(lease)
        assert held is not None, "only leases of ours are held"
        self.settle(held, actual_tokens)

    def settle(
        self, held: Mapping[BackendGroup, int], actual_tokens: Mapping[BackendGroup, int]
    ) -> None:
        for group, tokens in held.items():
            self.change(bucket.settle, group, tokens, actual_tokens.get(group, 0))

    def hold(self, lease: str, expires_ms: int) -> None:
        self.expiry_ms[lease] = expires_ms
        heapq.heappush(self._by_expiry, (expires_ms, lease))

    def balances(self) -> tuple[Balance, ...]:
        limits = {group: self._limits[group] for group in GROUPS if group in self._limits}
        return all_balances(self._states, limits)
