"""Defines a tenant's pools, what a task demands of them, and what it is granted.

Each tenant has pools per group of backends: requests per minute, tokens per minute, tasks at once,
and tokens per day. `reserve_first` reserves all demands of the first ranked route that fits;
`extend` reserves more, or releases a group that is done; `settle` charges the actual usage. A
reservation is a lease: a gateway renews it while the task lives, and if the gateway dies, the lease
expires and everything is released.

A key may have limits of its own within its tenant's: pools of the same kinds, which a reservation
of the key takes from as well (`KEY_UNITS`).

`MemoryPools` keeps them in a dict, for tests and back-tests on virtual time. `RedisPools` has the
same methods, awaited, for production.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Literal

import msgspec

from backends.contract import BackendGroup
from router.classify.task import GroupLimits, Tenant
from router.pools import bucket
from router.pools.budgets import AccountBalance, money_of

Unit = Literal[
    "requests",
    "tokens",
    "concurrent",
    "tokens_day",
    "key_requests",  # and so on: the key's own, within the tenant's
    "key_tokens",
    "key_concurrent",
    "key_tokens_day",
]
Shed = Literal["capacity", "share"]  # the group is full, or the tenant's share of it
PoolsMode = Literal["redis", "degraded"]  # the shared pools, or this process's own
PoolCall = Literal["admit", "extend", "settle", "renew"]  # to Redis
Wait = tuple[int, tuple[BackendGroup, Unit] | None]  # ms, and the pool that sets it

GROUPS: tuple[BackendGroup, ...] = ("fast", "deep")
TENANT_UNITS: tuple[Unit, ...] = ("requests", "tokens", "concurrent", "tokens_day")
KEY_UNITS: tuple[Unit, ...] = ("key_requests", "key_tokens", "key_concurrent", "key_tokens_day")
UNITS = TENANT_UNITS + KEY_UNITS
TOKEN_UNITS = (UNITS[1], UNITS[3], UNITS[5], UNITS[7])
BUDGET_US = 40_000  # one attempt of a call to shared pools; two wait 100 ms at most, with ticks
LEASE_US = 30_000_000  # three renewals: one lost renewal must not cost a live task its slot
_LEASE = re.compile(r".*\|(-?\d+)\|(-?\d+)", re.DOTALL)
MAX_REAPED = 8  # expired leases that one reservation releases


class Demand(msgspec.Struct, frozen=True, gc=False):
    """Holds what one route takes from one group's pools: one request, one slot, and tokens."""

    group: BackendGroup
    tokens: int  # weighted: prompt plus expected output; 0 for a warm-up
    most_nusd: int = 0  # what it can cost at most; only counted where the tenant has budgets


class Reservation(msgspec.Struct, frozen=True, gc=False):
    """Holds what was granted, and must be settled exactly once; leases are opaque to callers."""

    id: str
    tenant_id: str
    demands: tuple[Demand, ...]
    lease: str
    expires_us: int  # Redis server time; renewed while the task lives
    former: str | None = None  # the lease it still has if its extension did not get through
    # What groups are charged that `former` holds and `lease` does not.
    released: tuple[tuple[BackendGroup, int], ...] = ()
    hold: str = ""  # what `hold_of` put into the lease


class Balance(msgspec.Struct, frozen=True, gc=False):
    """Holds one pool's balance, as clients read it in headers."""

    group: BackendGroup
    unit: Unit
    limit: int  # per minute or day; for `concurrent`, at once
    remaining: int  # never negative
    reset_us: int  # until it is full again; 0 for `concurrent`


class Grant(msgspec.Struct, frozen=True, gc=False):
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


def no_slot(group: BackendGroup, limit: int, num_left: int = 0, shed: Shed | None = None) -> Grant:
    """Refuses a task for the tasks at once on a group, by whatever limits them."""
    return Grant(
        index=None,
        reservation=None,
        balances=(Balance(group, "concurrent", limit, num_left, 0),),
        wait_us=bucket.SLOT_WAIT_MS * 1_000,
        limited_by=(group, "concurrent"),
        shed=shed,
    )


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
    `hold`, as `hold_of` makes it, stands after the id. A repeated call makes the same lease and is
    charged once. Later versions may change what precedes the first `|`; the two numbers stay last,
    so that older gateways can release the lease.
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


def hold_of(tenant: Tenant, demands: Sequence[Demand]) -> str:
    """Encodes for a lease the key whose own limits count it, and the money that it holds."""
    key = f"#{tenant.key_id}" if tenant.key_limits else ""
    return key + money_of(most_nusd(demands), tenant.accounts) if tenant.accounts else key


def key_of(hold: str) -> str:
    """Returns the key that a `hold_of` names; empty if none."""
    return hold.partition("$")[0][1:] if hold else ""


def key_of_lease(lease: str) -> str:
    """Returns the key whose own limits count a lease of this version; empty if none do."""
    return lease.rsplit("|", 2)[0].partition("$")[0].partition("#")[2]


def reservation_id_of(lease: str) -> str:
    """Returns the id of the reservation that a lease of this version belongs to."""
    return lease.removeprefix("2:").rsplit("|", 2)[0].partition("$")[0].partition("#")[0]


def parse_lease(lease: str) -> dict[BackendGroup, int] | None:
    """Decodes the tokens that a lease of any version holds by group; None if it is no lease."""
    match = _LEASE.fullmatch(lease)
    if match is None:
        return None
    fast, deep = match.groups()
    held: dict[BackendGroup, int] = {}
    if fast != "-1":
        held["fast"] = int(fast)
    if deep != "-1":
        held["deep"] = int(deep)
    return held


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
    group: BackendGroup,
    state: bucket.BucketState,
    limits: GroupLimits,
    units: Sequence[Unit] = TENANT_UNITS,
) -> tuple[Balance, ...]:
    """Returns the balances of one group's pools, which must be refilled."""
    levels = state.requests_level, state.tokens_level, state.num_held
    most = limits.requests_per_min, limits.tokens_per_min, limits.max_concurrent
    of_day = (-1, 0, 0, 0)
    if limits.tokens_per_day is not None:
        left_ms = bucket.day_left_ms(state)
        of_day = limits.tokens_per_day, state.day_tokens, state.held_tokens, left_ms
    return balances_from(group, levels + most + of_day, units)


def balances_from(
    group: BackendGroup, state: Sequence[int], units: Sequence[Unit] = TENANT_UNITS
) -> tuple[Balance, ...]:
    """Makes balances from plain numbers, since every admission makes some.

    `state` has levels and limits of requests and tokens (levels in `bucket`'s units) and of slots,
    tokens per day (-1 without such a limit), those charged and reserved today, and what is left of
    the day in ms; `units` are the names, of a tenant's pools or of a key's.
    """
    requests, tokens, num_held, per_min, tokens_per_min, most, *of_day = state
    unit, max_per_min = bucket.LEVEL_PER_UNIT, bucket.MAX_PER_MIN
    whole = per_min if per_min < max_per_min else max_per_min
    requests_us = (unit - requests // whole) * 1_000 if whole else 0
    whole = tokens_per_min if tokens_per_min < max_per_min else max_per_min
    tokens_us = (unit - tokens // whole) * 1_000 if whole else 0
    num_requests = requests // unit if requests > 0 else 0
    num_tokens = tokens // unit if tokens > 0 else 0
    num_free = most - num_held if most > num_held else 0
    balances = (
        Balance(group, units[0], per_min, num_requests, requests_us),
        Balance(group, units[1], tokens_per_min, num_tokens, tokens_us),
        Balance(group, units[2], most, num_free, 0),
    )
    per_day, charged, held, left_ms = of_day
    if per_day < 0:
        return balances
    left = max(0, per_day - charged - held)
    return (*balances, Balance(group, units[3], per_day, left, left_ms * 1_000))


Ranked = Sequence[tuple[int, tuple[Demand, ...]]]  # each with its index
Buckets = Mapping[BackendGroup, bucket.BucketState]
Limits = Mapping[BackendGroup, GroupLimits]
NO_BUCKETS: Buckets = {}
NO_LIMITS: Limits = {}


def first_fitting(
    ranked: Iterable[tuple[int, tuple[Demand, ...]]],
    buckets: Buckets,
    limits: Limits,
    key_buckets: Buckets = NO_BUCKETS,
    key_limits: Limits = NO_LIMITS,
) -> tuple[int | None, Wait]:
    """Returns the index of the first demands that fit, or None and the shortest wait."""
    waits: list[Wait] = []
    for index, demands in ranked:
        for each in demands:
            group = each.group
            if not bucket.fits(buckets[group], limits[group], each.tokens):
                break
            if group in key_limits and not bucket.fits(
                key_buckets[group], key_limits[group], each.tokens
            ):
                break
        else:
            return index, (0, None)
        longest = longest_wait(demands, buckets, limits)
        of_key = longest_wait(demands, key_buckets, key_limits, KEY_UNITS)
        waits.append(of_key if of_key[0] > longest[0] else longest)
    return None, min(waits, key=itemgetter(0))


def longest_wait(
    demands: Iterable[Demand],
    buckets: Buckets,
    limits: Limits,
    units: Sequence[Unit] = TENANT_UNITS,
) -> Wait:
    """Returns the longest wait of the demands' pools; groups without limits have none."""
    return max(
        (
            (wait_ms, (demand.group, unit))
            for demand in demands
            if demand.group in limits
            for unit, wait_ms in zip(
                units,
                bucket.waits_ms(buckets[demand.group], limits[demand.group], demand.tokens),
                strict=True,
            )
        ),
        key=itemgetter(0),
        default=(0, None),
    )


def all_balances(
    buckets: Buckets, limits: Limits, units: Sequence[Unit] = TENANT_UNITS
) -> tuple[Balance, ...]:
    """Returns the balances of every group that has limits; they must be refilled."""
    found: list[Balance] = []
    for group in GROUPS:
        if group in limits:
            found += group_balances(group, buckets[group], limits[group], units)
    return tuple(found)
