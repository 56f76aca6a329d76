"""Posts to a webhook that a budget is spent: once each, retried, beside the tasks.

This is an edge.
"""

import asyncio
import http.client
import logging
import urllib.request
from typing import Literal

import msgspec

from gateway.config.http_address import opener_for
from router.money.prices import NUSD, in_digits
from router.pools.budgets import WINDOWS, AccountBalance, Scope, Window
from router.redis.cancelling import cancelled

logger = logging.getLogger("lanewise")

TIMEOUT_S = 5.0
RETRIES_S = (1.0, 5.0, 30.0)  # between attempts
MAX_WAITING = 100  # posts under way; more are logged instead
CLOSE_S = 2.0  # for posts under way when the gateway stops


class BudgetNotice(msgspec.Struct, frozen=True, kw_only=True):
    """Tells that a budget was met for the first time in its window."""

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

    def __init__(self, url: str | None, retries_s: tuple[float, ...] = RETRIES_S) -> None:
        self._url = url
        self._retries_s = retries_s
        self._posts: set[asyncio.Task[None]] = set()

    def tell(self, notice: BudgetNotice) -> None:
        """Logs a notice, and posts it; returns at once."""
        whose = notice.scope if notice.name is None else f"{notice.scope} {notice.name!r}"
        # A run has one window, which is called as its scope is.
        window = "" if notice.window == notice.scope else f", {notice.window}"
        logger.warning(
            "%s: %s%s, of tenant %s: $%s of $%s",
            *(notice.event, whose, window, notice.tenant),
            *(in_digits(notice.used_usd), in_digits(notice.limit_usd)),
        )
        if self._url is None:
            return
        if len(self._posts) >= MAX_WAITING:
            logger.error("the budgets' webhook is too slow: this notice is not posted")
            return
        post = asyncio.create_task(self._post(self._url, msgspec.json.encode(notice)))
        self._posts.add(post)
        post.add_done_callback(self._posts.discard)

    async def close(self) -> None:
        """Waits a moment for posts under way, and gives the others up."""
        if not self._posts:
            return
        _, left = await asyncio.wait(self._posts, timeout=CLOSE_S)
        await cancelled(*left)
        if left:
            logger.error("%d notices of budgets are not posted: the gateway stops", len(left))

    async def _post(self, url: str, content: bytes) -> None:
        for pause_s in (*self._retries_s, None):
            try:
                await asyncio.to_thread(_sent, url, content)
                return
            except (OSError, ValueError, http.client.HTTPException) as error:
                if pause_s is None:
                    logger.error("the budgets' webhook took no notice: %s", error)
                else:
                    await asyncio.sleep(pause_s)


def _sent(url: str, content: bytes) -> None:
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(url, content, headers, method="POST")
    with opener_for(url).open(request, timeout=TIMEOUT_S):
        pass
