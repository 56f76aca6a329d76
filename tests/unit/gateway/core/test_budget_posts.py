"""Notices of budgets, as they are logged where no webhook takes them."""

import logging
from collections.abc import Coroutine
from typing import Any

import pytest

from gateway.core.budget_posts import BudgetNotice, BudgetPosts


def never(coroutine: Coroutine[Any, Any, None]) -> None:
    raise AssertionError("nothing is posted without a URL")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"scope": "tenant", "name": None, "window": "day"}, "tenant, day, of tenant acme: $2 of"),
        ({"scope": "key", "name": "4fJ0", "window": "month"}, "key '4fJ0', month, of tenant acme"),
        ({"scope": "run", "name": "nightly-42", "window": "run"}, "run 'nightly-42', of tenant"),
    ],
)
def test_the_log_says_whose_budget_it_is(
    caplog: pytest.LogCaptureFixture, more: dict[str, Any], said: str
) -> None:
    notice = BudgetNotice(
        event="budget.exceeded", tenant="acme", used_usd=2.0, limit_usd=1.0, renews_s=None, **more
    )
    with caplog.at_level(logging.WARNING):
        BudgetPosts(None, never).tell(notice)
    assert f"budget.exceeded: {said}" in caplog.text
