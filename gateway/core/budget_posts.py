"""Posts to a webhook that a budget is spent: once each, retried, beside the tasks.

This is an edge.
"""

import asyncio
import logging
import urllib.request
from collections.abc import Callable, Coroutine
from typing import Any, Literal

import msgspec

from router.money.prices import NUSD
from router.pools.budgets import WINDOWS, AccountBalance, Scope, Window

logger = logging.getLogger("lanewise")

TIMEOUT_S = 5.0
RETRIES_S = (1.0, 5.0, 30.0)  # between attempts
MAX_WAITING = 100  # posts under way; more are logged instead


class BudgetNotice(msgspec.Struct, frozen=True, kw_only=True):
    """That a budget was met for the first time in its window."""

    event: Literal["budget.soft_limit_reached", "budget.exceeded"]
    tenant: str
    scope: Scope
    name: str | None  # the key's id, or the run
    window: Window
    used_usd: float
    limit_usd: float
    renews_s: float | None  # None: never


def notice_of(
    tenant_id: str, balance: AccountBalance, window: int, kind: Literal["soft", "hard"]
) -> BudgetNotice:
    """Makes the notice of a budget that was just met."""
    limit = balance.account.soft[window] if kind == "soft" else balance.hard[window]
    renews_ms = balance.renews_ms[window] if window < len(balance.renews_ms) else None
    return BudgetNotice(
        event="budget.soft_limit_reached" if kind == "soft" else "budget.exceeded",
        tenant=tenant_id,
        scope=balance.scope,
        name=balance.account.name.partition(".")[2] or None,
        window=WINDOWS[window],
        used_usd=balance.spent[window] / NUSD,
        limit_usd=limit / NUSD,
        renews_s=None if renews_ms is None else renews_ms / 1e3,
    )


class BudgetPosts:
    """Sends notices; without a URL they are only logged."""

    def __init__(
        self,
        url: str | None,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        retries_s: tuple[float, ...] = RETRIES_S,
    ) -> None:
        self._url = url
        self._spawn = spawn
        self._retries_s = retries_s
        self._num_waiting = 0

    def tell(self, notice: BudgetNotice) -> None:
        """Logs a notice, and posts it; returns at once."""
        whose = notice.scope if notice.name is None else f"{notice.scope} {notice.name!r}"
        window = "" if notice.window == notice.scope else f", {notice.window}"  # a run's is the run
        logger.warning(
            "%s: %s%s, of tenant %s: $%.9g of $%.9g",
            *(notice.event, whose, window, notice.tenant),
            *(notice.used_usd, notice.limit_usd),
        )
        if self._url is None:
            return
        if self._num_waiting >= MAX_WAITING:
            logger.error("the budgets' webhook is too slow: this notice is not posted")
            return
        self._num_waiting += 1
        self._spawn(self._post(self._url, msgspec.json.encode(notice)))

    async def _post(self, url: str, content: bytes) -> None:
        try:
            for pause_s in (*self._retries_s, None):
                try:
                    await asyncio.to_thread(_sent, url, content)
                    return
                except (OSError, ValueError) as error:
                    if pause_s is None:
                        logger.error("the budgets' webhook took no notice: %s", error)
                        return
                    await asyncio.sleep(pause_s)
        finally:
            self._num_waiting -= 1


def _sent(url: str, content: bytes) -> None:
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(url, content, headers, method="POST")
    with urllib.request.urlopen(request, timeout=TIMEOUT_S):
        pass
