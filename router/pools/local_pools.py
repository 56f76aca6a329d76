"""Keeps pools in this process while Redis is away: an equal part of half of each tenant's limits.

Half, because part of the limits may have been used just before, and because the number of gateways
may have changed. Each part is at least one. Slots count all tasks that this process runs, whoever
granted them.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, TypeVar

from backends.contract import BackendGroup
from router.classify.task import GroupLimits, Tenant
from router.pools import bucket
from router.pools.pools import (
    Balance,
    Demand,
    Grant,
    Reservation,
    all_balances,
    first_fitting,
    lease_of,
)

# While Redis is away a group has local pools, takes no task, or is limited by its slots alone.
WhenAway = Literal["local", "closed", "open"]
# A gateway that has never reached Redis refuses tasks, or goes on as the only one.
OnBlind = Literal["closed", "local"]

PARTS = 2  # of each limit, half is used
MAX_TENANTS = 10_000  # remembered; the first to come is forgotten first

_Kept = TypeVar("_Kept")


class LocalPools:
    """Reserves and settles in this process. `now_us` is Unix time, for daily budgets."""

    def __init__(self) -> None:
        self._buckets: dict[str, dict[BackendGroup, bucket.BucketState]] = {}
        # A tenant's pools as Redis last reported them, and when.
        self._known: dict[str, tuple[tuple[Balance, ...], int]] = {}
        self._held: dict[tuple[str, BackendGroup], int] = {}

    def note(self, tenant_id: str, balances: tuple[Balance, ...], now_us: int) -> None:
        """Remembers Redis's last balances, with which local pools begin."""
        _remember(self._known, tenant_id, (balances, now_us))

    def forget_rates(self) -> None:
        """Drops local levels when Redis is back; the next outage begins with newer balances."""
        self._buckets.clear()

    def hold(self, reservation: Reservation) -> None:
        """Counts the slots of a task that runs here; `release` must follow."""
        for demand in reservation.demands:
            key = reservation.tenant_id, demand.group
            self._held[key] = self._held.get(key, 0) + 1

    def release(self, reservation: Reservation) -> None:
        """Stops counting a task's slots."""
        for demand in reservation.demands:
            key = reservation.tenant_id, demand.group
            self._held[key] -= 1
            if not self._held[key]:
                del self._held[key]

    def num_held(self, tenant_id: str, group: BackendGroup) -> int:
        """Returns the number of a tenant's tasks that run here on a group."""
        return self._held.get((tenant_id, group), 0)

    def reserve_first(
        self,
        tenant: Tenant,
        reservation_id: str,
        ranked_demands: Sequence[tuple[Demand, ...]],
        *,
        when_away: Mapping[BackendGroup, WhenAway],
        num_gateways: int,
        now_us: int,
    ) -> Grant | None:
        """Reserves all of the first ranked demands that fit; None if all groups are closed.

        Demands on one group go before those on two. The caller must `hold` what is granted.
        """
        states, limits = self._at(tenant, when_away, num_gateways, now_us)
        possible = [
            (index, demands)
            for index, demands in enumerate(ranked_demands)
            if all(demand.group in limits for demand in demands)
        ]
        if any(len(demands) == 1 for _, demands in possible):
            possible = [(index, demands) for index, demands in possible if len(demands) == 1]
        if not possible:
            return None
        index, (wait_ms, limited_by) = first_fitting(possible, states, limits)
        reservation = None
        if index is not None:
            demands = ranked_demands[index]
            for demand in demands:
                bucket.reserve(states[demand.group], limits[demand.group], demand.tokens)
            lease = lease_of(reservation_id, demands)
            # Redis knows nothing of it yet: it does not expire.
            reservation = Reservation(reservation_id, tenant.id, demands, lease, expires_us=0)
        return Grant(
            index,
            reservation,
            all_balances(states, limits),
            wait_ms * 1_000,
            limited_by,
            mode="degraded",
        )

    def extend(self, before: Reservation, after: Reservation) -> None:
        """Charges the tokens that an extension adds."""
        states = self._buckets.get(before.tenant_id, {})
        for held, grown in zip(before.demands, after.demands, strict=True):
            state = states.get(held.group)
            if state is not None:
                more = grown.tokens - held.tokens
                state.tokens_level -= more * bucket.LEVEL_PER_UNIT
                state.held_tokens += more

    def settle(self, reservation: Reservation, actual_tokens: Mapping[BackendGroup, int]) -> None:
        """Charges what a task used instead of what it had reserved here."""
        states = self._buckets.get(reservation.tenant_id, {})
        for demand in reservation.demands:
            state = states.get(demand.group)
            if state is not None:
                used = actual_tokens.get(demand.group, 0)
                state.tokens_level += (demand.tokens - used) * bucket.LEVEL_PER_UNIT
                state.held_tokens = max(0, state.held_tokens - demand.tokens)
                state.day_tokens += used

    def _at(
        self,
        tenant: Tenant,
        when_away: Mapping[BackendGroup, WhenAway],
        num_gateways: int,
        now_us: int,
    ) -> tuple[dict[BackendGroup, bucket.BucketState], dict[BackendGroup, GroupLimits]]:
        """Returns the tenant's buckets at `now_us`, and the local limits of groups not closed."""
        states = self._buckets.get(tenant.id)
        if states is None:
            states = {}
            _remember(self._buckets, tenant.id, states)
        limits: dict[BackendGroup, GroupLimits] = {}
        for group, whole in tenant.limits.items():
            rule = when_away.get(group, "local")
            if rule == "closed":
                continue
            limits[group] = here = local_limits(whole, num_gateways, without_rates=rule == "open")
            if group not in states:
                states[group] = self._first_state(tenant.id, group, here, num_gateways, now_us)
            bucket.refill(states[group], here, now_us // 1_000)
            states[group].num_held = self.num_held(tenant.id, group)
        return states, limits

    def _first_state(
        self, tenant_id: str, group: BackendGroup, here: GroupLimits, num_gateways: int, now_us: int
    ) -> bucket.BucketState:
        """Makes a bucket with our part of what the shared one should hold by now."""
        state = bucket.new_state(here, now_us // 1_000)
        balances, noted_us = self._known.get(tenant_id, ((), now_us))
        elapsed_ms = max(0, now_us - noted_us) // 1_000
        for balance in balances:
            if balance.group != group or balance.unit == "concurrent":
                continue
            if balance.unit == "tokens_day":
                left = balance.remaining // (PARTS * num_gateways)
                state.day_tokens = max(0, (here.tokens_per_day or 0) - left)
                continue
            whole = balance.remaining * bucket.LEVEL_PER_UNIT + elapsed_ms * balance.limit
            part = whole // (PARTS * num_gateways)
            if balance.unit == "requests":
                # Never less than one: a gateway among many must not begin with nothing at all.
                part = max(part, bucket.LEVEL_PER_UNIT)
                state.requests_level = min(state.requests_level, part)
            elif balance.unit == "tokens":
                state.tokens_level = min(state.tokens_level, part)
        return state


def local_limits(
    limits: GroupLimits, num_gateways: int, *, without_rates: bool = False
) -> GroupLimits:
    """Returns one gateway's part of a tenant's limits, with `without_rates` of slots alone."""

    def part(limit: int) -> int:
        return limit and max(1, limit // (PARTS * max(1, num_gateways)))

    rates = (bucket.MAX_PER_MIN, bucket.MAX_PER_MIN)
    if not without_rates:
        rates = part(limits.requests_per_min), part(limits.tokens_per_min)
    return GroupLimits(
        requests_per_min=rates[0],
        tokens_per_min=rates[1],
        max_concurrent=part(limits.max_concurrent),
        tokens_per_day=None if limits.tokens_per_day is None else part(limits.tokens_per_day),
    )


def _remember(kept: dict[str, _Kept], tenant_id: str, value: _Kept) -> None:
    if tenant_id not in kept and len(kept) >= MAX_TENANTS:
        del kept[next(iter(kept))]
    kept[tenant_id] = value
