"""Keeps pools in this process while Redis is away: an equal part of half of each tenant's limits.

Half, because part of the limits may have been used just before, and because the number of gateways
may have changed. Each part is at least one. Slots count all tasks that this process runs, whoever
granted them.

A tenant that other gateways fill, by the last balances that Redis reported, has no place here for
as long as their leases would live. And while these balances are new, a reservation that Redis was
too late for is decided by them alone: `reserve_by_last_reply`.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeVar

import msgspec

from backends.contract import BackendGroup
from router.classify.task import GroupLimits, Tenant
from router.pools import bucket
from router.pools.local_budgets import PARTS, LocalBudgets
from router.pools.local_keys import LocalKeys
from router.pools.pools import (
    KEY_UNITS,
    LEASE_US,
    Balance,
    Demand,
    Grant,
    Ranked,
    Reservation,
    all_balances,
    first_fitting,
    hold_of,
    lease_of,
)

# While Redis is away a group has local pools, takes no task, or is limited by its slots alone.
WhenAway = Literal["local", "closed", "open"]
# A gateway that has never reached Redis refuses tasks, or goes on as the only one.
OnBlind = Literal["closed", "local"]

NEW_US = 1_000_000  # a reply at most this old decides for a late one
MIN_UNANSWERED = 4  # tasks of a tenant that a gateway admits on one reply, at least
MAX_TENANTS = 10_000  # remembered; the first to come is forgotten first

_Kept = TypeVar("_Kept")


class LocalPools:
    """Reserves and settles in this process. `now_us` is Unix time, for daily budgets."""

    def __init__(self) -> None:
        # A tenant's own buckets, and since when; a newer reply of Redis replaces them.
        self._buckets: dict[str, tuple[dict[BackendGroup, bucket.BucketState], int]] = {}
        # A tenant's pools as Redis last reported them, and when.
        self._known: dict[str, tuple[tuple[Balance, ...], int]] = {}
        self._held: defaultdict[tuple[str, BackendGroup], int] = defaultdict(int)
        self._held_before: dict[tuple[str, BackendGroup], int] | None = None  # the outage began
        self._by_reply: dict[str, _ByReply] = {}
        self.budgets = LocalBudgets()
        self._keys = LocalKeys()

    def note(self, tenant_id: str, balances: tuple[Balance, ...], now_us: int) -> None:
        """Remembers Redis's last balances, with which local pools begin; not those of a key."""
        if balances and balances[-1].unit in KEY_UNITS:
            balances = tuple(each for each in balances if each.unit not in KEY_UNITS)
        _remember(self._known, tenant_id, (balances, now_us))

    def cut_off(self) -> None:
        """Notes that an outage begins: what runs here now is part of what Redis last reported."""
        self._held_before = dict(self._held)
        self._buckets.clear()
        self._keys.clear()
        self._by_reply.clear()

    def forget_rates(self) -> None:
        """Drops local levels when Redis is back; the next outage begins with newer balances."""
        self._held_before = None
        self._buckets.clear()
        self._keys.clear()

    def hold(self, reservation: Reservation) -> None:
        """Counts the slots of a task that runs here; `release` must follow."""
        for demand in reservation.demands:
            self._held[reservation.tenant_id, demand.group] += 1

    def release(self, reservation: Reservation) -> None:
        """Stops counting a task's slots."""
        for demand in reservation.demands:
            key = reservation.tenant_id, demand.group
            num_left = self._held[key] - 1
            if num_left:
                self._held[key] = num_left
            else:
                del self._held[key]

    def num_held(self, tenant_id: str, group: BackendGroup) -> int:
        """Returns the number of a tenant's tasks that run here on a group."""
        return self._held.get((tenant_id, group), 0)

    def knows(self, tenant_id: str, now_us: int) -> bool:
        """Returns whether Redis has reported this tenant's balances within `NEW_US`."""
        known = self._known.get(tenant_id)
        return known is not None and 0 <= now_us - known[1] <= NEW_US

    def reserve_by_last_reply(
        self,
        tenant: Tenant,
        reservation_id: str,
        ranked_demands: Sequence[tuple[Demand, ...]],
        *,
        unanswered: Iterable[Reservation],
        when_away: Mapping[BackendGroup, WhenAway],
        num_gateways: int,
        now_us: int,
    ) -> Grant | None:
        """Decides as Redis would have at its last reply to this tenant, which must be new.

        Args:
            unanswered: What was granted here and Redis does not know yet, of all tenants.

        Returns:
            None if it fits, but this gateway has admitted its number of tasks on that reply: at
            least `MIN_UNANSWERED`, and as many places as it has in an outage.
        """
        known = self._known[tenant.id]
        view = self._by_reply.get(tenant.id)
        if view is None or view.known is not known:
            states = _states_of(tenant, known[0], known[1] // 1_000)
            mine = [each for each in unanswered if each.tenant_id == tenant.id]
            for demand in (demand for each in mine for demand in each.demands):
                if demand.group in states:
                    limits = tenant.limits[demand.group]
                    bucket.reserve(states[demand.group], limits, demand.tokens)
            view = _ByReply(known, states, len(mine))
            _remember(self._by_reply, tenant.id, view)
        limits_of = {group: tenant.limits[group] for group in view.states}
        for group, state in view.states.items():
            bucket.refill(state, limits_of[group], now_us // 1_000)
        possible: Ranked = [
            (index, demands)
            for index, demands in enumerate(ranked_demands)
            if all(
                demand.group in view.states and when_away.get(demand.group) != "closed"
                for demand in demands
            )
        ]
        if not possible:
            return None
        possible, refusal = self._within_own(tenant, possible, num_gateways, now_us)
        if refusal is not None:
            return refusal
        index, (wait_ms, limited_by) = first_fitting(possible, view.states, limits_of)
        if index is None:
            balances = all_balances(view.states, limits_of)
            return Grant(None, None, balances, wait_ms * 1_000, limited_by, mode="degraded")
        demands = ranked_demands[index]
        parts = (local_limits(limits_of[demand.group], num_gateways) for demand in demands)
        most = min(part.max_concurrent for part in parts)
        if view.num_unanswered >= max(MIN_UNANSWERED, most):
            return None
        view.num_unanswered += 1
        for demand in demands:
            bucket.reserve(view.states[demand.group], limits_of[demand.group], demand.tokens)
        granted = self._reserved(tenant, reservation_id, demands, now_us)
        return Grant(index, granted, all_balances(view.states, limits_of), mode="degraded")

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
        possible: Ranked = [
            (index, demands)
            for index, demands in enumerate(ranked_demands)
            if all(demand.group in limits for demand in demands)
        ]
        if any(len(demands) == 1 for _, demands in possible):
            possible = [(index, demands) for index, demands in possible if len(demands) == 1]
        if not possible:
            return None
        possible, refusal = self._within_own(tenant, possible, num_gateways, now_us)
        if refusal is not None:
            return refusal
        index, (wait_ms, limited_by) = first_fitting(possible, states, limits)
        reservation = None
        if index is not None:
            demands = ranked_demands[index]
            for demand in demands:
                bucket.reserve(states[demand.group], limits[demand.group], demand.tokens)
            # Redis knows nothing of it yet: it does not expire.
            reservation = self._reserved(tenant, reservation_id, demands, now_us)
        return Grant(
            index,
            reservation,
            all_balances(states, limits),
            wait_ms * 1_000,
            limited_by,
            mode="degraded",
        )

    def _within_own(
        self, tenant: Tenant, possible: Ranked, num_gateways: int, now_us: int
    ) -> tuple[Ranked, Grant | None]:
        """Returns the demands that the key's limits and the budgets let through, or a refusal."""
        refusal = None
        if tenant.key_limits:
            parts = {
                group: local_limits(limits, num_gateways)
                for group, limits in tenant.key_limits.items()
            }
            possible, refusal = self._keys.fitting(tenant, possible, parts, now_us // 1_000)
        if tenant.accounts and refusal is None:
            return self.budgets.affordable(tenant, possible, num_gateways, now_us // 1_000)
        return possible, refusal

    def _reserved(
        self, tenant: Tenant, reservation_id: str, demands: tuple[Demand, ...], now_us: int
    ) -> Reservation:
        hold = hold_of(tenant, demands)
        lease = lease_of(reservation_id, demands, hold)
        if hold:
            self.budgets.hold(tenant.id, lease, now_us // 1_000)
        made = Reservation(reservation_id, tenant.id, demands, lease, expires_us=0, hold=hold)
        if tenant.key_limits:
            self._keys.hold(made)
        return made

    def extend(self, before: Reservation, after: Reservation) -> None:
        """Charges the tokens that an extension adds."""
        states, _ = self._buckets.get(before.tenant_id, ({}, 0))
        for held, grown in zip(before.demands, after.demands, strict=True):
            state = states.get(held.group)
            if state is not None:
                more = grown.tokens - held.tokens
                state.tokens_level -= more * bucket.LEVEL_PER_UNIT
                state.held_tokens += more

    def settle(
        self,
        reservation: Reservation,
        actual_tokens: Mapping[BackendGroup, int],
        nusd: int = 0,
        now_us: int = 0,
    ) -> None:
        """Charges what a task used and spent instead of what it had reserved here."""
        if reservation.hold:
            tenant_id, lease = reservation.tenant_id, reservation.lease
            self.budgets.settle(tenant_id, lease, nusd, now_us // 1_000)
            self._keys.settle(reservation, actual_tokens)
        states, _ = self._buckets.get(reservation.tenant_id, ({}, 0))
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
        states, begun_us = self._buckets.get(tenant.id, (None, 0))
        if states is None or self._known.get(tenant.id, ((), 0))[1] > begun_us:
            states = {}
            _remember(self._buckets, tenant.id, (states, now_us))
        limits: dict[BackendGroup, GroupLimits] = {}
        for group, whole in tenant.limits.items():
            rule = when_away.get(group, "local")
            if rule == "closed":
                continue
            limits[group] = here = local_limits(whole, num_gateways, without_rates=rule == "open")
            if group not in states:
                states[group] = self._first_state(tenant.id, group, here, num_gateways, now_us)
            bucket.refill(states[group], here, now_us // 1_000)
            free = self._num_free_elsewhere(tenant.id, group, whole, now_us)
            num_held = self.num_held(tenant.id, group)
            states[group].num_held = max(num_held, here.max_concurrent - max(0, free - num_held))
        return states, limits

    def _num_free_elsewhere(
        self, tenant_id: str, group: BackendGroup, whole: GroupLimits, now_us: int
    ) -> int:
        """Returns the places that other gateways leave, as Redis last reported them.

        After a lease nobody knows whether those still run.
        """
        balances, noted_us = self._known.get(tenant_id, ((), 0))
        if now_us - noted_us > LEASE_US:
            return whole.max_concurrent
        held = self._held if self._held_before is None else self._held_before
        for balance in balances:
            if balance.group == group and balance.unit == "concurrent":
                num_taken = balance.limit - balance.remaining
                num_elsewhere = max(0, num_taken - held.get((tenant_id, group), 0))
                return whole.max_concurrent - num_elsewhere
        return whole.max_concurrent

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
            whole = _level_of(balance) + elapsed_ms * min(balance.limit, bucket.MAX_PER_MIN)
            part = whole // (PARTS * num_gateways)
            if balance.unit == "requests":
                # Never less than one of what is left: a gateway among many must not begin with
                # nothing at all, unless there is nothing.
                part = max(part, min(whole, bucket.LEVEL_PER_UNIT))
                state.requests_level = min(state.requests_level, part)
            elif balance.unit == "tokens":
                state.tokens_level = min(state.tokens_level, part)
        return state


class _ByReply(msgspec.Struct):
    """Holds a tenant's pools as they are if nobody else asked Redis since its last reply."""

    known: tuple[tuple[Balance, ...], int]  # the reply, and when it came
    states: dict[BackendGroup, bucket.BucketState]
    num_unanswered: int  # tasks admitted here since


def _states_of(
    tenant: Tenant, balances: tuple[Balance, ...], now_ms: int
) -> dict[BackendGroup, bucket.BucketState]:
    """Makes buckets of the balances that Redis reported."""
    states: dict[BackendGroup, bucket.BucketState] = {}
    for balance in balances:
        limits = tenant.limits.get(balance.group)
        if limits is None:
            continue
        state = states.get(balance.group)
        if state is None:
            state = states[balance.group] = bucket.new_state(limits, now_ms)
        if balance.unit == "requests":
            state.requests_level = _level_of(balance)
        elif balance.unit == "tokens":
            state.tokens_level = _level_of(balance)
        elif balance.unit == "concurrent":
            state.num_held = balance.limit - balance.remaining
        else:
            state.day_tokens = balance.limit - balance.remaining
    return states


def _level_of(balance: Balance) -> int:
    """Returns the level of a pool that Redis reported, also of one with a debt."""
    if balance.remaining:
        return balance.remaining * bucket.LEVEL_PER_UNIT
    per_min = min(balance.limit, bucket.MAX_PER_MIN)
    return per_min * bucket.LEVEL_PER_UNIT - balance.reset_us // 1_000 * per_min


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
