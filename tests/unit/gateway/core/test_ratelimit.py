"""Tests balances as headers: OpenAI's names, the IETF draft's fields, Go's durations."""

import re

import pytest

from gateway.core.ratelimit import go_duration, rate_limit_headers
from router.classify.task import GroupLimits, Tenant
from router.pools.memory_pools import MemoryPools
from router.pools.pools import Balance, Demand

DURATIONS = [
    (0, "0s"),
    (1, "1ms"),
    (999, "1ms"),
    (1_001, "2ms"),
    (120_000, "120ms"),
    (999_000, "999ms"),
    (999_001, "1s"),
    (1_000_000, "1s"),
    (1_500_000, "1.5s"),
    (1_234_567, "1.235s"),
    (59_999_000, "59.999s"),
    (59_999_001, "1m0s"),
    (60_000_000, "1m0s"),
    (61_250_000, "1m1.25s"),
    (360_000_000, "6m0s"),
    (3_600_000_000, "1h0m0s"),
    (3_720_000_000, "1h2m0s"),
    (90_061_001_000, "25h1m1.001s"),
]


@pytest.mark.parametrize(("duration_us", "written"), DURATIONS)
def test_durations(duration_us: int, written: str) -> None:
    assert go_duration(duration_us) == written


def test_durations_never_promise_too_much() -> None:
    unit_us = {"h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1_000}
    for duration_us in range(0, 4_000_000_000, 12_345_679):
        parts = re.findall(r"([\d.]+)(ms|[hms])", go_duration(duration_us))
        told_us = sum(round(float(number) * unit_us[unit]) for number, unit in parts)
        assert 0 <= told_us - duration_us < 1_000


def balance(group: str, unit: str, limit: int, remaining: int, reset_us: int = 0) -> Balance:
    return Balance(group=group, unit=unit, limit=limit, remaining=remaining, reset_us=reset_us)  # type: ignore[arg-type]


BOTH = (
    balance("fast", "requests", 60, 30, 30_000_000),
    balance("fast", "tokens", 1000, 1000),
    balance("fast", "concurrent", 8, 7),
    balance("deep", "requests", 10, 9, 6_000_001),
    balance("deep", "tokens", 500, 0, 60_000_000),
    balance("deep", "concurrent", 2, 0),
)


def test_one_groups_pools() -> None:
    assert rate_limit_headers(BOTH, ("fast",)) == {
        "x-lanewise-ratelimit-mode": "redis",
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "30",
        "x-ratelimit-reset-requests": "30s",
        "x-ratelimit-limit-tokens": "1000",
        "x-ratelimit-remaining-tokens": "1000",
        "x-ratelimit-reset-tokens": "0s",
        "ratelimit-policy": '"fast-requests";q=60;w=60, '
        '"fast-tokens";q=1000;w=60;lanewise-unit="tokens", '
        '"fast-concurrent";q=8;qu="concurrent-requests"',
        "ratelimit": '"fast-requests";r=30;t=30, "fast-tokens";r=1000;t=0, '
        '"fast-concurrent";r=7;t=0',
    }


def test_of_two_groups_the_tighter_one_is_named() -> None:
    headers = rate_limit_headers(BOTH, ("fast", "deep"))
    assert headers["x-ratelimit-limit-requests"] == "60", "half of 60 is tighter than 9 of 10"
    assert headers["x-ratelimit-limit-tokens"] == "500"
    assert headers["x-ratelimit-reset-tokens"] == "1m0s"
    assert headers["ratelimit"].count(";r=") == 6
    assert '"deep-requests";r=9;t=7' in headers["ratelimit"], "rounded up"


def test_no_pools_no_headers() -> None:
    headers = rate_limit_headers((), ("fast",), "degraded")
    assert headers == {"x-lanewise-ratelimit-mode": "degraded"}
    assert list(rate_limit_headers(BOTH[:3], ("deep",))) == ["x-lanewise-ratelimit-mode"]


def test_a_limit_of_zero() -> None:
    headers = rate_limit_headers((balance("fast", "requests", 0, 0),), ("fast",))
    assert headers["x-ratelimit-remaining-requests"] == "0"


def test_real_balances() -> None:
    limits = GroupLimits(requests_per_min=60, tokens_per_min=600, max_concurrent=1)
    tenant = Tenant(id="a", tier="t", limits={"fast": limits})
    balances = MemoryPools().balances(tenant, 0)
    headers = rate_limit_headers(balances, ("fast",))
    assert headers["x-ratelimit-remaining-tokens"] == "600"
    assert headers["x-ratelimit-reset-tokens"] == "0s"


def test_a_days_budget_is_named_and_counts_as_tokens_where_it_is_tighter() -> None:
    limits = GroupLimits(
        requests_per_min=60, tokens_per_min=600, max_concurrent=1, tokens_per_day=100
    )
    tenant = Tenant(id="a", tier="t", limits={"fast": limits})
    pools, noon_us = MemoryPools(), 20_000 * 86_400_000_000 + 43_200_000_000
    pools.reserve_first(tenant, "a", [(Demand("fast", 60),)], noon_us)
    headers = rate_limit_headers(pools.balances(tenant, noon_us), ("fast",))
    assert headers["x-ratelimit-limit-tokens"] == "100"
    assert headers["x-ratelimit-remaining-tokens"] == "40"
    assert headers["x-ratelimit-reset-tokens"] == "12h0m0s"
    policy = '"fast-tokens-day";q=100;w=86400;lanewise-unit="tokens"'
    assert policy in headers["ratelimit-policy"]
    assert '"fast-tokens-day";r=40;t=43200' in headers["ratelimit"]


def test_a_keys_own_limits_are_named_and_count_where_they_are_tighter() -> None:
    limits = GroupLimits(requests_per_min=60, tokens_per_min=600, max_concurrent=4)
    own = GroupLimits(requests_per_min=6, tokens_per_min=600, max_concurrent=1)
    tenant = Tenant(id="a", tier="t", limits={"fast": limits}, key_id="k", key_limits={"fast": own})
    pools = MemoryPools()
    grant = pools.reserve_first(tenant, "a", [(Demand("fast", 60),)], 0)
    headers = rate_limit_headers(grant.balances, ("fast",))
    assert headers["x-ratelimit-limit-requests"] == "6"
    assert headers["x-ratelimit-remaining-requests"] == "5"
    assert '"fast-key-requests";q=6;w=60' in headers["ratelimit-policy"]
    assert '"fast-key-concurrent";q=1;qu="concurrent-requests"' in headers["ratelimit-policy"]
