"""Computes the pools of one group of one tenant: requests, tokens, the day's tokens, and slots.

Integers only, and exact: a level is kept in sixty-thousandths of a request or token, because a
limit of N per minute refills exactly N of those per millisecond. Nothing is ever rounded away, so
a bucket touched ten thousand times a second fills as fast as an idle one. `pools.lua` holds the
same arithmetic; a differential test binds the two. In Lua numbers are doubles, hence the bounds:
every product that matters stays below 2**53.

A full bucket holds one minute's worth. A level may be negative: a task that used more than it had
reserved leaves a debt, which delays the tenant's next task and is never forgiven by waiting less.

The day's tokens are a plain count that starts at 0 with each UTC day. What a task used counts on
the day it ends; until then what it has reserved counts on every day it lives to see.
"""

import msgspec

from router.classify.task import GroupLimits

LEVEL_PER_UNIT = 60_000  # milliseconds in a minute
MAX_PER_MIN = 1_000_000_000  # the highest limit the arithmetic carries; more means the same
MAX_PER_DAY = 1_000_000_000_000_000
MAX_DEBT_MIN = 60  # a level falls at most this many minutes of refill below zero
SLOT_WAIT_MS = 1_000  # for a slot: a guess, as nobody knows when one is released
BLOCKED_WAIT_MS = 3_600_000  # the wait for a limit of 0, which admits nothing
DAY_MS = 86_400_000


class BucketState(msgspec.Struct, gc=False):
    """Holds the state of one tenant's pools for one group at `stamp_ms`. Mutable."""

    requests_level: int  # in 1 / LEVEL_PER_UNIT requests
    tokens_level: int  # in 1 / LEVEL_PER_UNIT tokens
    stamp_ms: int
    num_held: int  # slots taken by tasks in flight
    day: int = 0  # days since 1970: the one that `day_tokens` counts
    day_tokens: int = 0  # charged on it, to tasks that have ended
    held_tokens: int = 0  # reserved by tasks in flight


def new_state(limits: GroupLimits, now_ms: int) -> BucketState:
    """Returns full buckets, with no task in flight and nothing used today."""
    return BucketState(
        _per_min(limits.requests_per_min) * LEVEL_PER_UNIT,
        _per_min(limits.tokens_per_min) * LEVEL_PER_UNIT,
        now_ms,
        0,
        now_ms // DAY_MS,
    )


def refill(state: BucketState, limits: GroupLimits, now_ms: int) -> None:
    """Refills the levels until `now_ms`; a clock that stepped back only moves the stamp.

    A step back over one midnight keeps the later day until it is over. After a larger step the
    count goes on under the clock's date, so that no tenant is locked out.
    """
    elapsed_ms = now_ms - state.stamp_ms
    if elapsed_ms < 0:
        elapsed_ms = 0
    per_min = limits.requests_per_min
    if per_min > MAX_PER_MIN:
        per_min = MAX_PER_MIN
    level, whole = state.requests_level + elapsed_ms * per_min, per_min * LEVEL_PER_UNIT
    state.requests_level = level if level < whole else whole
    per_min = limits.tokens_per_min
    if per_min > MAX_PER_MIN:
        per_min = MAX_PER_MIN
    level, whole = state.tokens_level + elapsed_ms * per_min, per_min * LEVEL_PER_UNIT
    state.tokens_level = level if level < whole else whole
    state.stamp_ms = now_ms
    today, day = now_ms // DAY_MS, state.day
    if today > day:
        state.day_tokens = 0
        state.day = today
    elif today < day - 1:
        state.day = today
    if state.num_held == 0:
        state.held_tokens = 0  # a release that does not count them may have freed slots


def fits(state: BucketState, limits: GroupLimits, tokens: int) -> bool:
    """Returns whether one request of `tokens` fits now: all of `waits_ms` are 0."""
    if state.num_held >= limits.max_concurrent or state.requests_level < LEVEL_PER_UNIT:
        return False
    if limits.requests_per_min <= 0:
        return False
    if not tokens:
        return True
    per_min = _per_min(limits.tokens_per_min)
    wanted = tokens if tokens < per_min else per_min
    if per_min <= 0 or wanted * LEVEL_PER_UNIT > state.tokens_level:
        return False
    return limits.tokens_per_day is None or not _day_wait_ms(state, limits, tokens)


def waits_ms(state: BucketState, limits: GroupLimits, tokens: int) -> tuple[int, int, int, int]:
    """Returns how long until one request of `tokens` fits, in the order of `pools.UNITS`.

    A demand larger than a bucket waits for a full one and then leaves a debt; one larger than a
    day's budget waits for an unused day. A demand of 0 tokens never waits for tokens.
    """
    return (
        _wait_ms(state.requests_level, limits.requests_per_min, 1),
        _wait_ms(state.tokens_level, limits.tokens_per_min, tokens),
        0 if state.num_held < limits.max_concurrent else SLOT_WAIT_MS,
        _day_wait_ms(state, limits, tokens),
    )


def reserve(state: BucketState, limits: GroupLimits, tokens: int) -> None:
    """Takes one request, `tokens` and a slot, which fit according to `waits_ms`."""
    state.requests_level = _bounded(state.requests_level - LEVEL_PER_UNIT, limits.requests_per_min)
    extend(state, limits, tokens)
    state.num_held += 1


def adopt(state: BucketState, limits: GroupLimits, tokens: int) -> None:
    """Takes `tokens` and a slot for a task that the pools forgot, even if they do not fit."""
    extend(state, limits, tokens)
    state.num_held += 1


def extend(state: BucketState, limits: GroupLimits, tokens: int) -> None:
    """Takes more tokens for a running task, even if they do not fit."""
    level = state.tokens_level - tokens * LEVEL_PER_UNIT
    state.tokens_level = _bounded(level, limits.tokens_per_min)
    state.held_tokens = _day_bounded(state.held_tokens + tokens)


def settle(state: BucketState, limits: GroupLimits, reserved_tokens: int, tokens: int) -> None:
    """Releases the slot and charges what was used instead of what was reserved."""
    change = (reserved_tokens - tokens) * LEVEL_PER_UNIT
    state.tokens_level = _bounded(state.tokens_level + change, limits.tokens_per_min)
    state.held_tokens = _day_bounded(state.held_tokens - reserved_tokens)
    state.day_tokens = _day_bounded(state.day_tokens + tokens)
    if state.num_held > 0:
        state.num_held -= 1


def day_left_ms(state: BucketState) -> int:
    """Returns how long until the counted day is over and its budget is whole again."""
    return (state.day + 1) * DAY_MS - state.stamp_ms


# These run many times for every task of a back-test; a comparison costs a third of `min`.


def _per_min(limit: int) -> int:
    return limit if limit < MAX_PER_MIN else MAX_PER_MIN


def _bounded(level: int, limit: int) -> int:
    whole = (limit if limit < MAX_PER_MIN else MAX_PER_MIN) * LEVEL_PER_UNIT
    if level > whole:
        return whole
    least = -MAX_DEBT_MIN * whole
    return level if level > least else least


def _day_bounded(tokens: int) -> int:
    if tokens <= 0:
        return 0
    return tokens if tokens < MAX_PER_DAY else MAX_PER_DAY


def _wait_ms(level: int, limit: int, amount: int) -> int:
    if amount == 0:
        return 0
    per_min = _per_min(limit)
    if per_min <= 0:
        return BLOCKED_WAIT_MS
    missing = min(amount, per_min) * LEVEL_PER_UNIT - level
    return 0 if missing <= 0 else -(-missing // per_min)


def _day_wait_ms(state: BucketState, limits: GroupLimits, tokens: int) -> int:
    if limits.tokens_per_day is None or tokens == 0:
        return 0
    limit = min(limits.tokens_per_day, MAX_PER_DAY)
    if limit <= 0:
        return BLOCKED_WAIT_MS
    if state.day_tokens + state.held_tokens + min(tokens, limit) <= limit:
        return 0
    return day_left_ms(state)
