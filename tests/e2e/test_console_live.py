"""Tests *Live* in a real browser: what runs, and what is wrong."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from redis import Redis

from tests.e2e.admin_api import ADMIN_KEY, run_task
from tests.e2e.browser import Theme, chromium, needs_chromium, opened
from tests.e2e.console_faults import FAULTS
from tests.e2e.gateway_process import (
    CONFIG,
    NARROW_KEY,
    GatewayProcess,
    lone_gateway,
    redis_server,
    served,
)

pytestmark = needs_chromium
VIEWS = [(1440, "light"), (1440, "dark"), (360, "light"), (360, "dark")]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayProcess]:
    with lone_gateway() as process:
        yield process


@pytest.mark.parametrize(("width", "theme"), VIEWS)
def test_it_shows_what_runs(
    gateway: GatewayProcess, browser: Browser, width: int, theme: Theme
) -> None:
    url = f"{gateway.url}/console/#live"
    with opened(browser, url, width=width, theme=theme) as tab:
        page = tab.page
        expect(page.get_by_text("Nothing is wrong.")).to_be_visible()
        made = run_task(gateway)
        rows = page.get_by_role("region", name="Decisions").locator("tbody tr")
        expect(rows.first).to_contain_text("dev")
        expect(page.get_by_role("article", name="wafer", exact=True)).to_contain_text("Batch")
        expect(page.get_by_role("article", name="Pools of dev")).to_contain_text("left")
        expect(page.get_by_role("img", name="Wafer 1", exact=True)).to_be_visible()
        assert tab.violations() == []
        assert not tab.overflows()
        tab.picture(f"live-{width}-{theme}")
        rows.first.get_by_role("button").press("Enter")
        story = page.get_by_role("dialog")
        expect(story).to_contain_text(made)
        expect(story).to_contain_text("weighted tokens")
        assert tab.violations() == []
        tab.picture(f"story-{width}-{theme}")
        page.keyboard.press("Escape")
        expect(story).not_to_be_visible()


def test_a_wrong_key_is_told_and_another_one_taken(
    gateway: GatewayProcess, browser: Browser
) -> None:
    with opened(browser, f"{gateway.url}/console/#live") as tab:
        page = tab.page
        wrong = page.get_by_role("region", name="What is wrong")
        expect(wrong).to_contain_text("Nothing is wrong.")
        page.get_by_role("button", name="Admin key").click()
        page.get_by_label("Key", exact=True).fill("sk-nobody")
        page.keyboard.press("Enter")
        expect(wrong).to_contain_text("Incorrect admin key.")
        expect(wrong).not_to_contain_text("asks again every second")
        expect(page.get_by_role("dialog")).to_be_visible()
        page.get_by_role("button", name="Cancel").click()
        wrong.get_by_role("button", name="Use another key").click()
        page.get_by_label("Key", exact=True).fill(ADMIN_KEY)
        page.keyboard.press("Enter")
        expect(wrong).to_contain_text("Nothing is wrong.")
        # The browser itself reports the answers that were no 200.
        tab.faults = [fault for fault in tab.faults if "401" not in fault]


ODD = [
    (
        502,
        "<html>Bad gateway</html>",
        "Something before the gateway answered 502, as a proxy does.",
    ),
    (200, "<html>Sign in</html>", "answered with what is no JSON, as a proxy does."),
]


@pytest.mark.parametrize(("status", "body", "said"), ODD)
def test_what_is_no_answer_of_the_gateway_is_told_as_none(
    gateway: GatewayProcess, browser: Browser, status: int, body: str, said: str
) -> None:
    with opened(browser, f"{gateway.url}/console/#play") as tab:
        tab.page.route("**/admin/tenants*", lambda to: to.fulfill(status=status, body=body))
        tab.page.get_by_role("link", name="Tenants").click()
        expect(tab.page.get_by_role("alert")).to_contain_text(said)
        tab.faults = [fault for fault in tab.faults if "502" not in fault]


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_killed_shows_and_goes(name: str, browser: Browser) -> None:
    with FAULTS[name]() as fault, opened(browser, f"{fault.gateway.url}/console/#live") as tab:
        wrong = tab.page.get_by_role("region", name="What is wrong")
        expect(wrong).to_contain_text("Nothing is wrong.")
        fault.strike()
        expect(wrong).to_contain_text(fault.words)
        expect(wrong).to_contain_text("since")
        tab.picture(f"live-{name.replace(' ', '-')}-away")
        fault.mend()
        expect(wrong).to_contain_text("Nothing is wrong.")


def test_a_tenant_whose_keys_cannot_be_used_hides_no_other(
    tmp_path: Path, browser: Browser
) -> None:
    (tmp_path / "lanewise.toml").write_text(CONFIG)
    with redis_server(tmp_path) as url:
        arguments = ("--config", "lanewise.toml", "--redis", url)
        with served(tmp_path, *arguments) as own, Redis.from_url(url) as redis:
            run_task(own)
            run_task(own, key=NARROW_KEY)
            for name in redis.scan_iter("lw1:{narrow}:p:*"):
                redis.delete(name)
                redis.set(name, "of another type")
            with opened(browser, f"{own.url}/console/#live") as tab:
                pools = tab.page.get_by_role("region", name="Pools", exact=True)
                expect(pools).to_contain_text("Redis cannot use its keys")
                expect(pools.get_by_role("article", name="Pools of dev")).to_contain_text("left")


def test_a_gateway_that_is_killed_is_told_by_the_page(tmp_path: Path, browser: Browser) -> None:
    with served(tmp_path) as own, opened(browser, f"{own.url}/console/#live") as tab:
        wrong = tab.page.get_by_role("region", name="What is wrong")
        expect(wrong).to_contain_text("Nothing is wrong.")
        own.process.send_signal(signal.SIGKILL)
        own.process.wait()
        expect(wrong).to_contain_text("This gateway does not answer")
        again = GatewayProcess(tmp_path, port=own.port)
        try:
            again.wait_until_ready()
            expect(wrong).to_contain_text("Nothing is wrong.")
        finally:
            again.stop()
        # The browser itself reports the connections that it could not make.
        tab.faults = [fault for fault in tab.faults if "ERR_" not in fault]
