"""Budgets in answers: a header, and the refusal of a task."""

import math
from collections.abc import Iterable

from gateway.core.ratelimit import MODE_HEADER
from gateway.wire.errors import ProtocolError
from router.classify.durations import LEAST_WAIT_US
from router.money.prices import in_digits
from router.pools.budget_use import budget_uses, use_of
from router.pools.budgets import AccountBalance
from router.pools.pools import Grant

BUDGET_HEADER = "x-lanewise-budget-warning"
MAX_RETRIED_US = 60_000_000  # beyond that SDKs need not try again by themselves


def budget_headers(accounts: Iterable[AccountBalance]) -> dict[str, str]:
    """Writes a warning of the soft budgets that are spent; no header if none is."""
    over = [use for use in budget_uses(accounts) if use.over_soft]
    if not over:
        return {}
    words = (
        f"{use.scope}-{use.window};used={in_digits(use.used_usd)}"
        f";soft={in_digits(use.soft_usd or 0)}"
        + ("" if use.renews_s is None else f";t={math.ceil(use.renews_s)}")
        for use in over
    )
    return {BUDGET_HEADER: ", ".join(words)}


def over_budget(grant: Grant) -> ProtocolError:
    """Makes the refusal of a task that a hard budget does not afford."""
    assert grant.over_budget is not None, "a budget refused it"
    index, window = grant.over_budget
    balance = grant.accounts[index]
    use = use_of(balance, window)
    assert use.hard_usd is not None, "only hard budgets refuse"
    whose = f"{use.scope}'s budget"
    if use.scope != use.window:
        whose += f" of the {use.window}"
    if use.renews_s is None:
        ends = "It does not renew; an admin can raise it."
    else:
        ends = f"It renews in {_span(use.renews_s)}, at 00:00 UTC."
    if grant.mode == "degraded":
        ends += (
            " While Redis is away each gateway has a part of half of what was left; with Redis"
            " it is whole again."
        )
    message = (
        f"This task could exceed the {whose}: ${in_digits(use.hard_usd)}, of which "
        f"${in_digits(use.used_usd)} are spent and ${in_digits(use.held_usd)} held by tasks that "
        f"run. {ends} A lower 'max_output_tokens' holds less."
    )
    wait_us = max(LEAST_WAIT_US, grant.wait_us)
    if grant.mode == "degraded":
        wait_us = min(wait_us, MAX_RETRIED_US)
    headers: dict[str, str] = {MODE_HEADER: grant.mode}
    if wait_us > MAX_RETRIED_US:
        headers["x-should-retry"] = "false"
    if use.renews_s is None and wait_us > MAX_RETRIED_US:
        return ProtocolError("budget_exceeded", message, headers=headers)
    return ProtocolError("budget_exceeded", message, retry_after_us=wait_us, headers=headers)


def _span(span_s: float) -> str:
    """Writes days, hours or minutes for people."""
    for unit, unit_s in (("days", 86_400), ("hours", 3_600)):
        if span_s >= 2 * unit_s:
            return f"{span_s / unit_s:.1f} {unit}"
    return f"{math.ceil(span_s / 60)} min"
