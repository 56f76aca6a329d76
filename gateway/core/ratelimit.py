"""Writes pool balances as the headers that clients know: OpenAI's, and the IETF draft's."""

import math
from functools import lru_cache

from backends.contract import BackendGroup
from router.decide.decision import Refusal
from router.pools.pools import TOKEN_UNITS, Balance, PoolsMode, Unit

MODE_HEADER = "x-lanewise-ratelimit-mode"
# What OpenAI's headers call requests and tokens, of the tenant and of its key.
_OPENAI_UNITS: dict[str, tuple[Unit, ...]] = {
    "requests": ("requests", "key_requests"),
    "tokens": TOKEN_UNITS,
}
_OPENAI_UNIT = {unit: name for name, units in _OPENAI_UNITS.items() for unit in units}
# OpenAI names its headers after these units.
OPENAI_LIMITS = tuple(
    f"x-ratelimit-{figure}-{unit}"
    for unit in _OPENAI_UNITS
    for figure in ("limit", "remaining", "reset")
)


def rate_limit_headers(
    balances: tuple[Balance, ...],
    groups: tuple[BackendGroup, ...],
    mode: PoolsMode = "redis",
    refusal: Refusal | None = None,
) -> dict[str, str]:
    """Writes headers for the pools of `groups`; of several pools OpenAI's have the tightest.

    `mode` goes into a header of ours. With a `refusal`, the pool that refused says when to retry,
    as `retry-after` does, instead of when it is full.

    The IETF fields are those of draft-ietf-httpapi-ratelimit-headers-10; it has no unit for
    tokens yet, so theirs is a parameter of ours.
    """
    headers: dict[str, str] = {MODE_HEADER: mode}
    policies: list[str] = []
    states: list[str] = []
    tightest: dict[str, Balance] = {}
    for balance in balances:
        if balance.group not in groups:
            continue
        name, policy = _policy(balance.group, balance.unit, balance.limit)
        reset_s = math.ceil(balance.reset_us / 1e6)
        is_why = refusal is not None and refusal.limited_by == (balance.group, balance.unit)
        if is_why and refusal is not None and refusal.retry_after_us is not None:
            reset_s = max(1, math.ceil(refusal.retry_after_us / 1e6))
        policies.append(policy)
        states.append(f"{name};r={balance.remaining};t={reset_s}")
        unit = _OPENAI_UNIT.get(balance.unit)
        if unit is not None:
            known = tightest.get(unit)
            if known is None or _share(balance) < _share(known):
                tightest[unit] = balance
    for unit, balance in tightest.items():
        headers[f"x-ratelimit-limit-{unit}"] = str(balance.limit)
        headers[f"x-ratelimit-remaining-{unit}"] = str(balance.remaining)
        headers[f"x-ratelimit-reset-{unit}"] = go_duration(balance.reset_us)
    if policies:
        headers["ratelimit-policy"] = ", ".join(policies)
        headers["ratelimit"] = ", ".join(states)
    if refusal is not None and refusal.limited_by is not None and refusal.retry_after_us is None:
        headers["x-should-retry"] = "false"  # the limit is 0, and SDKs would go on to try
    return headers


def _share(balance: Balance) -> float:
    return balance.remaining / max(1, balance.limit)


@lru_cache(1_024)
def _policy(group: BackendGroup, unit: Unit, limit: int) -> tuple[str, str]:
    """Returns a pool's name and its limit, as the IETF fields have them."""
    name = f'"{policy_name(group, unit)}"'
    kind = unit.removeprefix("key_")
    if kind == "concurrent":
        return name, f'{name};q={limit};qu="concurrent-requests"'
    more = "" if kind == "requests" else ';lanewise-unit="tokens"'
    window_s = 86_400 if kind == "tokens_day" else 60
    return name, f"{name};q={limit};w={window_s}{more}"


def policy_name(group: BackendGroup, unit: Unit) -> str:
    """Names a pool for the IETF fields: `fast-requests`, `deep-key-tokens-day`."""
    return f"{group}-{unit.replace('_', '-')}"


def go_duration(duration_us: int) -> str:
    """Writes a duration as OpenAI does: `0s`, `12ms`, `1.5s`, `6m0s`, `1h2m0s`; rounds up to ms."""
    total_ms = math.ceil(duration_us / 1000)
    if total_ms == 0:
        return "0s"
    if total_ms < 1000:
        return f"{total_ms}ms"
    total_s, ms = divmod(total_ms, 1000)
    minutes, seconds = divmod(total_s, 60)
    hours, minutes = divmod(minutes, 60)
    tail = f"{seconds + ms / 1000:g}s"
    if hours:
        return f"{hours}h{minutes}m{tail}"
    return f"{minutes}m{tail}" if minutes else tail
