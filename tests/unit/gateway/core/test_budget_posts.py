"""Tests notices of budgets, as they are logged, and posted to a webhook."""

import asyncio
import contextlib
import http.client
import http.server
import logging
import time
import urllib.request
from typing import Any, ClassVar

import msgspec
import pytest

from gateway.core import budget_posts
from gateway.core.budget_posts import BudgetNotice, BudgetPosts
from tests.threaded import serving

URL = "http://budgets.example/hook"


def notice(**more: Any) -> BudgetNotice:
    fields = {"scope": "tenant", "name": None, "window": "day"} | more
    return BudgetNotice(
        event="budget.exceeded", tenant="acme", used_usd=2.0, limit_usd=1.0, renews_s=None, **fields
    )


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
    with caplog.at_level(logging.WARNING):
        BudgetPosts(None).tell(notice(**more))
    assert f"budget.exceeded: {said}" in caplog.text


def test_small_amounts_are_logged_as_people_write_them(caplog: pytest.LogCaptureFixture) -> None:
    spent = msgspec.structs.replace(notice(), used_usd=8.5e-05, limit_usd=1e-05)
    with caplog.at_level(logging.WARNING):
        BudgetPosts(None).tell(spent)
    assert "$0.000085 of $0.00001" in caplog.text


class Webhook:
    """Stands for an opener: fails as told, then takes what it is sent."""

    def __init__(self, *faults: Exception) -> None:
        self._faults = list(faults)
        self.taken: list[str] = []

    def __call__(self, request: urllib.request.Request, timeout: float) -> Any:
        if self._faults:
            raise self._faults.pop(0)
        self.taken.append(request.full_url)
        return contextlib.nullcontext()


async def test_a_webhook_that_answers_no_http_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    webhook = Webhook(http.client.BadStatusLine("220 smtp"), ConnectionRefusedError())
    monkeypatch.setattr(urllib.request.OpenerDirector, "open", webhook)
    posts = BudgetPosts(URL, retries_s=(0.0, 0.0))
    posts.tell(notice())
    await posts.close()
    assert webhook.taken == [URL]


async def test_a_webhook_that_is_away_does_not_hold_up_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    webhook = Webhook(*[ConnectionRefusedError()] * 9)
    monkeypatch.setattr(urllib.request.OpenerDirector, "open", webhook)
    monkeypatch.setattr(budget_posts, "CLOSE_S", 0.0)
    posts = BudgetPosts(URL, retries_s=(60.0,))
    posts.tell(notice())
    began_s = time.monotonic()
    async with asyncio.timeout(10):
        await posts.close()
    assert time.monotonic() - began_s < 5
    assert "1 notices of budgets are not posted" in caplog.text


class Answering(http.server.BaseHTTPRequestHandler):
    """Takes all posts, and keeps where they were to go."""

    taken: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        self.taken.append(self.path)
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Says nothing."""


async def test_a_webhook_on_this_machine_is_reached_without_a_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    Answering.taken.clear()
    with serving(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answering)) as server:
        address = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("http_proxy", address)
        for url in (f"{address}/hook", URL):
            posts = BudgetPosts(url, retries_s=())
            posts.tell(notice())
            await posts.close()
    assert Answering.taken == ["/hook", URL], "a proxy is asked for the whole address"
