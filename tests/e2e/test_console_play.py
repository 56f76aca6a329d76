"""Tests *Play* in a real browser: the race, its figures, variations, and steering."""

import json
import re
import urllib.request
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.browser import Theme, chromium, needs_chromium, opened
from tests.e2e.gateway_process import (
    CONFIG,
    DEVELOPMENT_KEY,
    ROOT,
    GatewayProcess,
    wait_until_at_rest,
)
from tests.threaded import serving

pytestmark = needs_chromium

PRICES = '[[prices]]\nmodel = "lanewise-fast"\ninput = 0\noutput = 1000.0\n'
NASTY = "<img src=x onerror=\"document.title='owned'\">"
VIEWS = [(1440, "light"), (1440, "dark"), (360, "light"), (360, "dark")]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


def run_of(page: Page, lane: str) -> dict[str, str]:
    """Returns the figures of one lane, by their names."""
    card = page.get_by_role("article", name=lane, exact=True)
    names, values = card.locator("dt").all_inner_texts(), card.locator("dd").all_inner_texts()
    return dict(zip(names, values, strict=True))


def joules(shown: str) -> float:
    value, unit = shown.split()
    return float(value) * {"mJ": 1e-3, "J": 1.0, "kJ": 1e3}[unit]


def race(page: Page, prompt: str) -> None:
    page.get_by_label("Prompt").fill(prompt)
    page.get_by_role("button", name="Race", exact=True).click()


def test_the_root_leads_to_it_and_shows_what_this_is(
    gateway: GatewayProcess, browser: Browser
) -> None:
    with opened(browser, gateway.url) as tab:
        assert tab.page.url == f"{gateway.url}/console/"
        expect(tab.page.get_by_text("side by side on one WebSocket")).to_be_visible()
        expect(tab.page.get_by_role("button", name="Run the demo")).to_be_visible()


def test_the_race_shows_what_the_events_carried(gateway: GatewayProcess, browser: Browser) -> None:
    """The tokens on the page are those of the terminal events, which the socket brought."""
    with opened(browser, gateway.url) as tab:
        page = tab.page
        ended: dict[str, dict[str, Any]] = {}

        def note(frame: str | bytes) -> None:
            event = json.loads(frame)
            if event["type"] == "response.completed":
                response = event["response"]
                ended[response["routing"]["route"]] = response

        page.on("websocket", lambda socket: socket.on("framereceived", note))
        race(page, "Reverse a string in Python.")
        for lane in ("Fast", "Deep"):
            card = page.get_by_role("article", name=lane, exact=True)
            expect(card.get_by_text("done", exact=True)).to_be_visible()
        assert set(ended) == {"fast", "deep"}
        for lane, response in ended.items():
            shown = run_of(page, lane.title())
            assert shown["Tokens"] == f"{response['usage']['output_tokens']:,}"
            assert joules(shown["Energy"]) == pytest.approx(
                response["routing"]["energy_joules"], rel=0.01
            )
            assert re.fullmatch(r"[\d.,]+ (ms|s)", shown["Time"])
            assert re.fullmatch(r"[\d.,]+ (ms|s)", shown["First word"])
        assert "lanes=fast%2Cdeep" in page.url
        tab.picture("play-race")
        again = page.url
    with opened(browser, again) as tab:  # the link reproduces it, and asks nothing by itself
        expect(tab.page.get_by_label("Prompt")).to_have_value("Reverse a string in Python.")
        assert tab.page.get_by_role("article").count() == 0
    wait_until_at_rest(gateway)


def test_what_auto_would_take_is_told_as_one_types(
    gateway: GatewayProcess, browser: Browser
) -> None:
    with opened(browser, gateway.url) as tab:
        told = tab.page.get_by_role("status")
        tab.page.get_by_label("Prompt").fill("Debug this deadlock in our lock service.")
        expect(told.filter(has_text="auto would take")).to_contain_text("deep")
        expect(told.filter(has_text="by class")).to_contain_text("service")


def test_variations_of_which_one_is_picked(gateway: GatewayProcess, browser: Browser) -> None:
    with opened(browser, gateway.url) as tab:
        page = tab.page
        page.get_by_label("Prompt").fill("Suggest a name for a cat.")
        page.get_by_label("How many variations").fill("5")
        page.get_by_role("button", name="Variations", exact=True).click()
        expect(page.get_by_text("done", exact=True)).to_be_visible()
        cells = page.get_by_role("region", name="Variation")
        expect(cells).to_have_count(5)
        assert len(set(cells.locator(".markdown").all_inner_texts())) > 1
        cells.nth(2).get_by_role("button", name="Pick").click()
        expect(page.get_by_role("button", name="Picked")).to_have_count(1)
        tab.picture("play-variations")


def test_it_is_steered_while_it_streams(gateway: GatewayProcess, browser: Browser) -> None:
    with opened(browser, gateway.url) as tab:
        page = tab.page
        page.get_by_role("button", name="Run the demo").click()
        words = page.get_by_label("Steer Deep")
        words.fill("Write a Go program of 900 lines instead.")
        words.press("Enter")
        deep = page.get_by_role("article", name="Deep", exact=True)
        expect(deep.get_by_text("Steered: Write a Go program of 900 lines")).to_be_visible()
        page.get_by_role("button", name="Stop all").click()
        expect(deep.get_by_text("stopped", exact=True)).to_be_visible()
    wait_until_at_rest(gateway)


def test_it_is_steered_before_its_first_word(gateway: GatewayProcess, browser: Browser) -> None:
    with opened(browser, f"{gateway.url}/console/#play?lanes=deep") as tab:
        page = tab.page
        race(page, "What goes wrong here?" + 40_000 * " log")  # which is to be read first
        words = page.get_by_label("Steer Deep")
        words.fill("Write a Go program of 900 lines instead.")
        words.press("Enter")
        deep = page.get_by_role("article", name="Deep", exact=True)
        expect(deep.get_by_text("Steered: Write a Go program")).to_be_visible()
        expect(deep.locator(".markdown")).to_be_visible()
        expect(deep.get_by_text("Steered: Write a Go program")).to_be_visible()
        page.get_by_role("button", name="Stop all").click()
        expect(deep.get_by_text("stopped", exact=True)).to_be_visible()
    wait_until_at_rest(gateway)


def test_commentary_stands_apart(gateway: GatewayProcess, browser: Browser) -> None:
    with opened(browser, f"{gateway.url}/console/#play?prompt=Why+stampede&lanes=breadth") as tab:
        page = tab.page
        page.get_by_role("button", name="Race", exact=True).click()
        expect(page.get_by_text("done", exact=True)).to_be_visible()
        expect(page.get_by_text("Commentary and drafts (5)")).to_be_visible()
        assert page.locator(".run > div > .markdown").count() == 1  # the answer, once


@pytest.mark.parametrize(("width", "theme"), VIEWS)
def test_it_is_for_everybody(
    gateway: GatewayProcess, browser: Browser, width: int, theme: Theme
) -> None:
    """It works by keyboard, with a prompt that is HTML, on a phone and in the dark."""
    with opened(browser, gateway.url, width=width, theme=theme) as tab:
        page = tab.page
        prompt = page.get_by_label("Prompt")
        prompt.focus()
        page.keyboard.type(f"Say {NASTY} twice.")
        page.keyboard.press("Control+Enter")
        for lane in ("Fast", "Deep"):
            card = page.get_by_role("article", name=lane, exact=True)
            expect(card.get_by_text("done", exact=True)).to_be_visible()
        assert tab.violations() == []
        assert not tab.overflows()
        assert page.locator("main img").count() == 0
        assert page.title() == "Play · Lanewise"
        tab.picture(f"play-{width}-{theme}")


def test_a_key_is_asked_for_and_kept_in_memory_alone(
    browser: Browser, tmp_path: Path, redis_url: str
) -> None:
    key = "sk-8c1f0e7ad93b4256"
    config = tmp_path / "own.toml"
    config.write_text(f"{CONFIG.replace(DEVELOPMENT_KEY, key)}\n{PRICES}")
    own = GatewayProcess(tmp_path, "--config", str(config), "--redis", redis_url)
    try:
        own.wait_until_ready()
        with opened(browser, own.url) as tab:
            page = tab.page
            page.get_by_role("button", name="Enter the key").click()
            page.get_by_label("Key", exact=True).fill(key)
            page.keyboard.press("Enter")
            race(page, "Say hi.")
            card = page.get_by_role("article", name="Fast", exact=True)
            expect(card.get_by_text("done", exact=True)).to_be_visible()
            shown = run_of(page, "Fast")
            # 1,000 dollars for a million tokens
            assert float(shown["Cost"].lstrip("$")) == int(shown["Tokens"]) / 1000
            kept = "JSON.stringify([localStorage, sessionStorage, document.cookie, location.href])"
            assert key not in page.evaluate(kept)
            page.reload()
            expect(page.get_by_text("This page needs an API key.")).to_be_visible()
    finally:
        assert own.stop() == 0, own.log


class ExamplePages(SimpleHTTPRequestHandler):
    """Serves the examples, and keeps no log."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments, directory=str(ROOT / "examples"))

    def log_message(self, *_: Any) -> None: ...


def test_the_example_page(browser: Browser, tmp_path: Path) -> None:
    """Forty lines stand on a server of their own, whose origin the gateway lists."""
    config = tmp_path / "lanewise.toml"
    # It listens from here on: a process of its own may come up after the gateway.
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), ExamplePages)) as pages:
        origin = f"http://localhost:{pages.server_port}"
        config.write_text(f"[server]\nallowed_origins = ['{origin}']\n")
        own = GatewayProcess(tmp_path, "--config", str(config))
        try:
            own.wait_until_ready()
            with opened(browser, "about:blank") as tab:
                tab.page.route("**/favicon.ico", lambda route: route.fulfill(status=204))
                tab.page.goto(f"{origin}/browser.html")
                tab.page.get_by_label("Gateway").fill(own.url)
                tab.page.get_by_label("Key").fill(DEVELOPMENT_KEY)
                tab.page.get_by_role("button", name="Ask").click()
                expect(tab.page.locator("pre")).to_contain_text("def ")
        finally:
            assert own.stop() == 0, own.log


def test_the_headers_forbid_all_else(gateway: GatewayProcess) -> None:
    with urllib.request.urlopen(f"{gateway.url}/console/") as answer:
        policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert "frame-ancestors 'none'" in policy
    assert "require-trusted-types-for 'script'" in policy
    assert "unsafe" not in policy
