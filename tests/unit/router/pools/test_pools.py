"""Tests MemoryPools: ranked demands, all or nothing, leases, replay, balances."""

import msgspec

from backends.contract import BackendGroup
from router.classify.task import GroupLimits, Tenant
from router.pools.memory_pools import MemoryPools
from router.pools.pools import (
    LEASE_US,
    MAX_REAPED,
    Balance,
    Demand,
    Grant,
    Renewal,
    Reservation,
    Unit,
    extended,
    shrunk,
)

S = 1_000_000
TENANT = Tenant(
    id="acme",
    tier="pro",
    limits={
        "fast": GroupLimits(requests_per_min=60, tokens_per_min=6_000, max_concurrent=20),
        "deep": GroupLimits(requests_per_min=6, tokens_per_min=1_200, max_concurrent=1),
    },
)


def demands(**tokens: int) -> tuple[Demand, ...]:
    groups: tuple[BackendGroup, ...] = ("fast", "deep")
    return tuple(Demand(group=group, tokens=tokens[group]) for group in groups if group in tokens)


PARALLEL, FAST, DEEP = demands(fast=100, deep=500), demands(fast=100), demands(deep=500)


def remaining(balances: tuple[Balance, ...]) -> dict[tuple[BackendGroup, Unit], int]:
    return {(balance.group, balance.unit): balance.remaining for balance in balances}


def taken(grant: Grant) -> tuple[int, int, int, int, int, int]:
    """Returns what is missing from full pools: requests, tokens, places of fast, then of deep."""
    left = remaining(grant.balances)
    return (
        60 - left["fast", "requests"],
        6_000 - left["fast", "tokens"],
        20 - left["fast", "concurrent"],
        6 - left["deep", "requests"],
        1_200 - left["deep", "tokens"],
        1 - left["deep", "concurrent"],
    )


def test_takes_the_first_that_fits_whole() -> None:
    pools = MemoryPools()
    first = pools.reserve_first(TENANT, "a", [PARALLEL, FAST], 0)
    assert (first.index, taken(first)) == (0, (1, 100, 1, 1, 500, 1))
    second = pools.reserve_first(TENANT, "b", [PARALLEL, FAST], 0)
    assert (second.index, taken(second)) == (1, (2, 200, 2, 1, 500, 1))


def test_takes_nothing_of_a_demand_that_does_not_fit_whole() -> None:
    pools = MemoryPools()
    pools.reserve_first(TENANT, "a", [DEEP], 0)
    refused = pools.reserve_first(TENANT, "b", [PARALLEL], 0)
    assert refused.reservation is None
    assert refused.limited_by == ("deep", "concurrent")
    assert taken(refused) == (0, 0, 0, 1, 500, 1)


def test_names_the_pool_and_wait_of_the_soonest_route() -> None:
    pools = MemoryPools()
    for number in range(2):
        held = pools.reserve_first(TENANT, str(number), [demands(deep=600)], 0)
        assert held.reservation is not None
        pools.settle(held.reservation, {"deep": 600}, 0)
    refused = pools.reserve_first(TENANT, "x", [demands(deep=900), demands(deep=20)], 0)
    assert refused.limited_by == ("deep", "tokens")
    assert refused.wait_us == 1 * S  # 20 tokens at 20 a second
    early = pools.reserve_first(TENANT, "x", [demands(deep=20)], refused.wait_us - 1_000)
    assert early.index is None
    late = pools.reserve_first(TENANT, "x", [demands(deep=20)], refused.wait_us)
    assert late.index == 0


def test_the_same_reservation_id_is_charged_once() -> None:
    pools = MemoryPools()
    first = pools.reserve_first(TENANT, "a", [PARALLEL, FAST], 0)
    again = pools.reserve_first(TENANT, "a", [PARALLEL, FAST], 0)
    assert again == first


def test_settling_twice_is_harmless_and_debt_is_kept() -> None:
    pools = MemoryPools()
    grant = pools.reserve_first(TENANT, "a", [PARALLEL], 0)
    assert grant.reservation is not None
    assert pools.settle(grant.reservation, {"fast": 40, "deep": 2_400}, 0)
    once = pools.balances(TENANT, 0)
    assert not pools.settle(grant.reservation, {"fast": 40, "deep": 2_400}, 0)
    left = remaining(once)
    assert pools.balances(TENANT, 0) == once
    assert left["fast", "tokens"] == 5_960
    assert left["deep", "tokens"] == 0  # 1,200 in debt
    assert left["deep", "concurrent"] == 1
    refused = pools.reserve_first(TENANT, "b", [demands(deep=20)], 0)
    assert refused.wait_us == 61 * S


def test_a_group_not_named_in_the_settlement_used_nothing() -> None:
    pools = MemoryPools()
    grant = pools.reserve_first(TENANT, "a", [PARALLEL], 0)
    assert grant.reservation is not None
    pools.settle(grant.reservation, {"fast": 100}, 0)
    left = remaining(pools.balances(TENANT, 0))
    assert (left["fast", "tokens"], left["deep", "tokens"]) == (5_900, 1_200)


def test_an_expired_lease_gives_everything_back_and_settles_no_more() -> None:
    pools = MemoryPools()
    lost = pools.reserve_first(TENANT, "lost", [DEEP], 0)
    assert lost.reservation is not None
    assert lost.reservation.expires_us == LEASE_US
    early = pools.reserve_first(TENANT, "b", [DEEP], LEASE_US - 1_000)
    assert (early.index, early.num_reaped) == (None, 0)
    grant = pools.reserve_first(TENANT, "b", [DEEP], LEASE_US)
    assert (grant.index, grant.num_reaped) == (0, 1)
    before = remaining(grant.balances)
    assert not pools.settle(lost.reservation, {"deep": 99}, LEASE_US)
    assert remaining(pools.balances(TENANT, LEASE_US)) == before


def test_a_renewed_lease_lives_on() -> None:
    pools = MemoryPools()
    grant = pools.reserve_first(TENANT, "a", [DEEP], 0)
    assert grant.reservation is not None
    pools.renew([grant.reservation], LEASE_US - S)
    assert pools.reserve_first(TENANT, "b", [DEEP], LEASE_US).num_reaped == 0
    assert pools.reserve_first(TENANT, "b", [DEEP], 2 * LEASE_US - S).num_reaped == 1


def test_one_call_reaps_a_bounded_number() -> None:
    pools = MemoryPools()
    for number in range(MAX_REAPED + 3):
        assert pools.reserve_first(TENANT, str(number), [FAST], 0).index == 0
    assert pools.reserve_first(TENANT, "x", [FAST], LEASE_US).num_reaped == MAX_REAPED
    assert pools.reserve_first(TENANT, "y", [FAST], LEASE_US).num_reaped == 3


def test_a_warm_up_is_charged_no_tokens_even_in_debt() -> None:
    pools = MemoryPools()
    grant = pools.reserve_first(TENANT, "a", [DEEP], 0)
    assert grant.reservation is not None
    pools.settle(grant.reservation, {"deep": 5_000}, 0)
    assert pools.reserve_first(TENANT, "warm", [demands(deep=0)], 0).index == 0


def test_lowered_limits_hold_at_once_and_raised_ones_refill() -> None:
    pools = MemoryPools()
    pools.balances(TENANT, 0)
    small = Tenant(
        id="acme",
        tier="free",
        limits={"fast": GroupLimits(requests_per_min=2, tokens_per_min=50, max_concurrent=1)},
    )
    left = remaining(pools.balances(small, 0))
    assert (left["fast", "requests"], left["fast", "tokens"]) == (2, 50)
    left = remaining(pools.balances(TENANT, 0))
    assert (left["fast", "requests"], left["fast", "tokens"]) == (2, 50)
    assert remaining(pools.balances(TENANT, 30 * S))["fast", "requests"] == 32


def test_balances_say_when_a_pool_is_full_again() -> None:
    pools = MemoryPools()
    grant = pools.reserve_first(TENANT, "a", [demands(fast=600)], 0)
    resets = {(b.group, b.unit): (b.limit, b.reset_us) for b in grant.balances}
    assert resets["fast", "requests"] == (60, 1 * S)
    assert resets["fast", "tokens"] == (6_000, 6 * S)
    assert resets["fast", "concurrent"] == (20, 0)
    assert resets["deep", "tokens"] == (1_200, 0)


DAILY = Tenant(
    id="daily",
    tier="free",
    limits={
        "fast": GroupLimits(
            requests_per_min=600, tokens_per_min=60_000, max_concurrent=9, tokens_per_day=1_000
        )
    },
)
DAY_US = 86_400 * S


def reserved(pools: MemoryPools, name: str, tokens: int, now_us: int) -> Reservation:
    grant = pools.reserve_first(DAILY, name, [demands(fast=tokens)], now_us)
    assert grant.reservation is not None
    return grant.reservation


def left_today(pools: MemoryPools, now_us: int) -> tuple[int, int]:
    """Returns what the day's budget still has, and seconds until it is whole."""
    balances = pools.balances(DAILY, now_us)
    balance = next(b for b in balances if b.unit == "tokens_day")
    return balance.remaining, balance.reset_us // S


def test_a_days_budget_lasts_until_midnight_utc() -> None:
    pools, noon_us = MemoryPools(), 20_000 * DAY_US + DAY_US // 2
    pools.settle(reserved(pools, "a", 600, noon_us), {"fast": 700}, noon_us)
    assert left_today(pools, noon_us) == (300, 43_200)
    refused = pools.reserve_first(DAILY, "b", [demands(fast=301)], noon_us)
    assert (refused.limited_by, refused.wait_us) == (("fast", "tokens_day"), DAY_US // 2)
    assert reserved(pools, "c", 300, noon_us)
    midnight_us = noon_us + refused.wait_us
    assert pools.reserve_first(DAILY, "d", [demands(fast=301)], midnight_us - 1_000).index is None
    assert reserved(pools, "d", 301, midnight_us)


def test_a_task_counts_on_the_day_it_ends() -> None:
    pools, late_us = MemoryPools(), 20_001 * DAY_US - S
    pools.settle(reserved(pools, "a", 300, late_us), {"fast": 300}, late_us)
    unused, outgrown = reserved(pools, "b", 300, late_us), reserved(pools, "c", 300, late_us)
    early_us = late_us + 2 * S
    assert left_today(pools, early_us)[0] == 400  # what they hold is held on this day, too
    pools.settle(unused, {}, early_us)
    assert left_today(pools, early_us)[0] == 700
    pools.settle(outgrown, {"fast": 450}, early_us)
    assert left_today(pools, early_us)[0] == 550


def test_a_demand_beyond_a_whole_day_waits_for_an_untouched_one() -> None:
    pools = MemoryPools()
    pools.settle(reserved(pools, "a", 1, 0), {"fast": 1}, 0)
    refused = pools.reserve_first(DAILY, "b", [demands(fast=5_000)], 0)
    assert refused.wait_us == DAY_US
    assert reserved(pools, "b", 5_000, DAY_US)
    assert left_today(pools, DAY_US) == (0, 86_400)


def test_a_clock_back_over_midnight_keeps_the_day_and_one_by_days_locks_nobody_out() -> None:
    pools, morning_us = MemoryPools(), 20_000 * DAY_US + S
    pools.settle(reserved(pools, "a", 900, morning_us), {"fast": 900}, morning_us)
    assert left_today(pools, morning_us - 61 * S) == (100, 86_460)
    assert left_today(pools, morning_us - 3 * DAY_US) == (100, 86_399)


def test_an_extension_holds_more_and_leaves_a_debt_where_it_must() -> None:
    pools = MemoryPools()
    held = reserved(pools, "a", 100, 0)
    grown = extended(held, {"fast": 5_000})
    pools.extend(grown, 0)
    pools.extend(grown, 0)  # its answer was lost
    left = remaining(pools.balances(DAILY, 0))
    assert (left["fast", "tokens"], left["fast", "concurrent"]) == (55_000, 8)
    assert left["fast", "tokens_day"] == 0
    assert not pools.settle(held, {"fast": 1}, 0)  # it is under the new lease
    assert pools.settle(grown, {"fast": 700}, 0)
    left = remaining(pools.balances(DAILY, 0))
    assert (left["fast", "tokens"], left["fast", "tokens_day"]) == (59_300, 300)


def test_an_extension_that_did_not_get_through_is_settled_under_its_former_lease() -> None:
    pools = MemoryPools()
    grown = extended(reserved(pools, "a", 100, 0), {"fast": 5_000})
    assert pools.settle(grown, {"fast": 100}, 0)
    assert left_today(pools, 0)[0] == 900


BOTH = (Demand("fast", 500), Demand("deep", 700))


def test_a_group_that_a_task_is_through_with_comes_back_alone() -> None:
    pools = MemoryPools()
    before = remaining(pools.balances(TENANT, 0))
    grant = pools.reserve_first(TENANT, "a", [BOTH], 0)
    assert grant.reservation is not None
    rest = shrunk(grant.reservation, {"fast": 120})
    assert pools.extend(rest, 0)
    assert pools.extend(rest, 0)  # its answer was lost
    left = remaining(pools.balances(TENANT, 0))
    assert left["fast", "concurrent"] == before["fast", "concurrent"]
    assert left["fast", "tokens"] == before["fast", "tokens"] - 120
    assert left["deep", "concurrent"] == before["deep", "concurrent"] - 1
    assert left["deep", "tokens"] == before["deep", "tokens"] - 700
    used: dict[BackendGroup, int] = {"fast": 120, "deep": 300}
    assert pools.settle(rest, used, 0)
    assert not pools.settle(rest, used, 0)
    assert not pools.extend(rest, 0)
    left = remaining(pools.balances(TENANT, 0))
    assert left["fast", "tokens"] == before["fast", "tokens"] - 120
    assert left["deep", "tokens"] == before["deep", "tokens"] - 300
    assert left["deep", "concurrent"] == before["deep", "concurrent"]


def test_a_group_whose_return_did_not_get_through_comes_back_with_the_rest() -> None:
    pools = MemoryPools()
    before = remaining(pools.balances(TENANT, 0))
    grant = pools.reserve_first(TENANT, "a", [BOTH], 0)
    assert grant.reservation is not None
    rest = shrunk(grant.reservation, {"fast": 120})
    assert pools.settle(rest, {"fast": 120, "deep": 300}, 0)
    left = remaining(pools.balances(TENANT, 0))
    assert left["fast", "tokens"] == before["fast", "tokens"] - 120
    assert left["deep", "tokens"] == before["deep", "tokens"] - 300
    assert left["fast", "concurrent"] == before["fast", "concurrent"]


def test_renewing_takes_anew_what_was_given_back_too_early() -> None:
    pools = MemoryPools()
    held = reserved(pools, "a", 100, 0)
    assert pools.reap("daily", 8, LEASE_US) == 1
    assert pools.renew([held], LEASE_US) == Renewal(0, 1)
    assert pools.renew([held], LEASE_US) == Renewal(1, 0)
    assert left_today(pools, LEASE_US)[0] == 900
    assert pools.settle(held, {"fast": 40}, LEASE_US)
    assert left_today(pools, LEASE_US)[0] == 960


def test_renewing_extends_what_may_not_be_extended_yet() -> None:
    pools = MemoryPools()
    grown = extended(reserved(pools, "a", 100, 0), {"fast": 5_000})
    assert pools.renew([grown], S) == Renewal(0, 0)
    assert pools.settle(grown, {"fast": 100}, S)
    assert remaining(pools.balances(DAILY, S))["fast", "concurrent"] == 9


def test_a_renewal_that_comes_after_an_extension_takes_no_place_for_good() -> None:
    pools = MemoryPools()
    held = reserved(pools, "a", 100, 0)
    grown = extended(held, {"fast": 5_000})
    assert pools.extend(grown, 0)
    assert pools.renew([held], S) == Renewal(0, 1)
    assert remaining(pools.balances(DAILY, S))["fast", "concurrent"] == 7
    assert pools.extend(grown, S)  # its answer was lost
    assert remaining(pools.balances(DAILY, S))["fast", "concurrent"] == 8
    assert pools.settle(grown, {"fast": 700}, S)
    left = remaining(pools.balances(DAILY, S))
    assert (left["fast", "concurrent"], left["fast", "tokens_day"]) == (9, 300)


def test_what_a_restarted_redis_forgot_is_adopted_not_renewed() -> None:
    held = reserved(MemoryPools(), "a", 100, 0)
    empty = MemoryPools()
    assert empty.renew([held], S) == Renewal(0, 0)
    assert remaining(empty.adopt(DAILY, held, S).balances)["fast", "concurrent"] == 8
    assert remaining(empty.adopt(DAILY, held, S).balances)["fast", "concurrent"] == 8
    assert empty.renew([held], S) == Renewal(1, 0)


def test_reaping_is_bounded_and_gives_everything_back() -> None:
    pools = MemoryPools()
    for number in range(9):
        reserved(pools, str(number), 10, 0)
    assert pools.reap("daily", 4, LEASE_US) == 4
    assert pools.reap("daily", 100, LEASE_US) == 5
    assert pools.reap("nobody", 100, LEASE_US) == 0
    assert left_today(pools, LEASE_US)[0] == 1_000


OF_KEY = GroupLimits(requests_per_min=3, tokens_per_min=250, max_concurrent=2)


def with_key(key: str) -> Tenant:
    key_limits: dict[BackendGroup, GroupLimits] = {"fast": OF_KEY}
    return msgspec.structs.replace(TENANT, key_id=key, key_limits=key_limits)


def test_a_keys_own_limits_refuse_it_and_no_other_key() -> None:
    pools, mine = MemoryPools(), with_key("mine")
    first = pools.reserve_first(mine, "a", [FAST], 0)
    assert remaining(first.balances)["fast", "key_tokens"] == 150
    assert remaining(first.balances)["fast", "tokens"] == 5_900
    second = pools.reserve_first(mine, "b", [FAST], 0)
    refused = pools.reserve_first(mine, "c", [FAST], 0)
    assert refused.limited_by == ("fast", "key_tokens")
    assert refused.wait_us == 12_000_000  # 50 tokens at 250 a minute
    assert pools.reserve_first(with_key("other"), "d", [FAST], 0).index == 0
    assert pools.reserve_first(TENANT, "e", [FAST], 0).index == 0
    assert first.reservation is not None
    assert second.reservation is not None
    pools.settle(first.reservation, {"fast": 0}, 0)
    assert pools.reserve_first(mine, "f", [FAST], 0).index == 0  # the place, and its tokens
    refused = pools.reserve_first(mine, "g", [demands(fast=0)], 0)
    assert refused.limited_by == ("fast", "key_requests")


def test_a_dead_gateways_lease_gives_back_to_its_key() -> None:
    pools, mine = MemoryPools(), with_key("mine")
    pools.reserve_first(mine, "a", [FAST], 0)
    pools.reserve_first(mine, "b", [FAST], 0)
    later = pools.balances(mine, LEASE_US)
    assert remaining(later)["fast", "key_concurrent"] == 2
    assert remaining(later)["fast", "key_tokens"] == 250


def test_a_key_falls_back_to_a_group_where_it_has_room() -> None:
    pools, mine = MemoryPools(), with_key("mine")
    ranked = [demands(fast=200), DEEP]
    assert pools.reserve_first(mine, "a", ranked, 0).index == 0
    assert pools.reserve_first(mine, "b", ranked, 0).index == 1
