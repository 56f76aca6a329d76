"""Tests bucket arithmetic: exact refill, true waits, bounded debt, clocks that step."""

import random

import pytest

from router.classify.task import GroupLimits
from router.pools import bucket
from router.pools.bucket import LEVEL_PER_UNIT, BucketState

LIMITS = GroupLimits(requests_per_min=60, tokens_per_min=6_000, max_concurrent=2)


def state(requests: int = 60, tokens: int = 6_000, at_ms: int = 0, held: int = 0) -> BucketState:
    return BucketState(requests * LEVEL_PER_UNIT, tokens * LEVEL_PER_UNIT, at_ms, held)


@pytest.mark.parametrize(
    ("before", "now_ms", "requests", "tokens"),
    [
        (state(0, 0), 1_000, 1, 100),
        (state(0, 0), 60_000, 60, 6_000),
        (state(0, 0), 10**12, 60, 6_000),
        (state(10, -600), 30_000, 40, 2_400),
        (state(60, 6_000), 5, 60, 6_000),
        (state(5, 5, at_ms=60_000), 0, 5, 5),  # the clock stepped back: nothing gained or lost
    ],
)
def test_refill(before: BucketState, now_ms: int, requests: int, tokens: int) -> None:
    bucket.refill(before, LIMITS, now_ms)
    assert before.requests_level == requests * LEVEL_PER_UNIT
    assert before.tokens_level == tokens * LEVEL_PER_UNIT
    assert before.stamp_ms == now_ms


def test_a_clock_that_stepped_back_does_not_stop_the_refill() -> None:
    pool = state(0, 0, at_ms=60_000)
    bucket.refill(pool, LIMITS, 0)
    bucket.refill(pool, LIMITS, 1_000)
    assert pool.requests_level == LEVEL_PER_UNIT


def test_refill_is_exact_however_often_it_is_asked() -> None:
    limits = GroupLimits(requests_per_min=7, tokens_per_min=13, max_concurrent=1)
    pool = state(0, 0)
    for now_ms in range(1, 30_001):
        bucket.refill(pool, limits, now_ms)
    assert pool.requests_level == 7 * LEVEL_PER_UNIT // 2
    assert pool.tokens_level == 13 * LEVEL_PER_UNIT // 2


@pytest.mark.parametrize(
    ("pool", "tokens", "waits"),
    [
        (state(), 6_000, (0, 0, 0, 0)),
        (state(0, 100), 101, (1_000, 10, 0, 0)),
        (state(60, 6_000, held=2), 1, (0, 0, bucket.SLOT_WAIT_MS, 0)),
        (state(60, 6_000), 50_000, (0, 0, 0, 0)),  # more than a whole bucket: from a full one only
        (state(60, 5_999), 50_000, (0, 10, 0, 0)),
        (state(60, -6_000), 1, (0, 60_010, 0, 0)),
        (state(60, -6_000), 0, (0, 0, 0, 0)),  # a warm-up asks nothing of the tokens
    ],
)
def test_waits(pool: BucketState, tokens: int, waits: tuple[int, int, int, int]) -> None:
    assert bucket.waits_ms(pool, LIMITS, tokens) == waits


def test_a_limit_of_zero_admits_nothing() -> None:
    limits = GroupLimits(requests_per_min=0, tokens_per_min=0, max_concurrent=0)
    pool = bucket.new_state(limits, 0)
    bucket.refill(pool, limits, 10**9)
    assert bucket.waits_ms(pool, limits, 1) == (
        bucket.BLOCKED_WAIT_MS,
        bucket.BLOCKED_WAIT_MS,
        bucket.SLOT_WAIT_MS,
        0,
    )


def test_settling_charges_what_was_used() -> None:
    pool = state(60, 6_000)
    bucket.reserve(pool, LIMITS, 1_000)
    assert (pool.requests_level, pool.num_held) == (59 * LEVEL_PER_UNIT, 1)
    bucket.settle(pool, LIMITS, 1_000, 7_000)
    assert (pool.tokens_level, pool.num_held) == (-1_000 * LEVEL_PER_UNIT, 0)
    bucket.settle(pool, LIMITS, 100_000, 0)
    assert (pool.tokens_level, pool.num_held) == (6_000 * LEVEL_PER_UNIT, 0)


def test_debt_is_bounded() -> None:
    pool = state(60, 6_000)
    bucket.settle(pool, LIMITS, 0, 10**9)
    assert pool.tokens_level == -bucket.MAX_DEBT_MIN * 6_000 * LEVEL_PER_UNIT


def test_levels_fit_a_double_exactly() -> None:
    assert bucket.MAX_DEBT_MIN * bucket.MAX_PER_MIN * LEVEL_PER_UNIT < 2**53


def test_who_waits_as_told_gets_in_and_not_a_millisecond_sooner() -> None:
    seed = random.SystemRandom().randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    for _ in range(2_000):
        limits = GroupLimits(
            requests_per_min=chance.randrange(1, 500),
            tokens_per_min=chance.randrange(1, 10**6),
            max_concurrent=1,
        )
        pool = bucket.new_state(limits, 0)
        pool.requests_level -= chance.randrange(2 * pool.requests_level)
        pool.tokens_level -= chance.randrange(2 * pool.tokens_level)
        tokens = chance.randrange(2 * limits.tokens_per_min)
        wait_ms = max(bucket.waits_ms(pool, limits, tokens))
        if wait_ms:
            bucket.refill(pool, limits, wait_ms - 1)
            assert max(bucket.waits_ms(pool, limits, tokens)) == 1
        bucket.refill(pool, limits, wait_ms)
        assert bucket.waits_ms(pool, limits, tokens) == (0, 0, 0, 0)


def test_what_fits_is_what_has_nothing_to_wait_for() -> None:
    chance = random.Random(23)
    for _ in range(2_000):
        limits = GroupLimits(
            requests_per_min=chance.choice([0, 1, 60, 2_000_000_000]),
            tokens_per_min=chance.choice([0, 1, 1_000, 2_000_000_000]),
            max_concurrent=chance.choice([0, 1, 4]),
            tokens_per_day=chance.choice([None, 0, 500]),
        )
        state = BucketState(
            chance.choice([-1, 0, LEVEL_PER_UNIT - 1, LEVEL_PER_UNIT, 60 * LEVEL_PER_UNIT]),
            chance.randint(-1, 1_001 * LEVEL_PER_UNIT),
            0,
            chance.randint(0, 4),
            day_tokens=chance.randint(0, 500),
            held_tokens=chance.randint(0, 100),
        )
        tokens = chance.choice([0, 1, 100, 5_000])
        waits = bucket.waits_ms(state, limits, tokens)
        assert bucket.fits(state, limits, tokens) == (not any(waits)), (state, limits, tokens)
