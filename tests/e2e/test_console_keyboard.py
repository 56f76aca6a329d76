"""Tests the console by keyboard alone: Tab reaches, shows and leaves all that can be used."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.admin_api import run_task
from tests.e2e.browser import chromium, needs_chromium, opened
from tests.e2e.gateway_process import GatewayProcess, wait_until_at_rest

pytestmark = needs_chromium
MAX_TABS = 300
# Page -> something that is there once it has loaded.
PAGES = {
    "play": "Prompt",
    "live": "Nothing is wrong.",
    "policies": "valid",  # the draft, which may be stored once it is checked
    "tenants": "Tenants",
}
# What a person may use, but for radios, of which Tab reaches one of each group.
_UNREACHED = """() => [...document.querySelectorAll(
    'a[href], button, input:not([type=radio]), select, textarea, summary, [tabindex="0"]')]
  .filter((each) => !each.disabled && each.tabIndex >= 0 && each.checkVisibility()
    && !each.closest('[inert]') && !window.reached.has(each))
  .map((each) => each.outerHTML.slice(0, 120))"""
_STEP = """() => {
  const at = document.activeElement;
  if (at === document.body || at === null) return 'left';
  window.reached ??= new Set();
  if (window.reached.has(at)) return 'again';
  window.reached.add(at);
  const shown = getComputedStyle(at);
  const isSeen = shown.outlineStyle !== 'none' || shown.boxShadow !== 'none';
  return isSeen ? 'seen' : 'unseen: ' + at.outerHTML.slice(0, 120);
}"""
NUM_WALKS = 3


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


def walk(page: Page) -> list[str]:
    """Presses Tab until the focus leaves the page; returns what was focused and not seen to be."""
    unseen = []
    for _ in range(MAX_TABS):
        page.keyboard.press("Tab")
        step = page.evaluate(_STEP)
        if step in ("left", "again"):
            return unseen
        if step != "seen":
            unseen.append(step)
    raise AssertionError(f"the focus did not leave the page in {MAX_TABS} steps")


@pytest.mark.parametrize("name", PAGES)
def test_tab_reaches_all_and_leaves(gateway: GatewayProcess, browser: Browser, name: str) -> None:
    run_task(gateway)
    with opened(browser, f"{gateway.url}/console/#{name}") as tab:
        page = tab.page
        if name == "play":
            expect(page.get_by_label(PAGES[name], exact=True)).to_be_visible()
        else:
            expect(page.get_by_text(PAGES[name], exact=True).first).to_be_visible()
        for _ in range(NUM_WALKS):  # some of a page comes while it is walked
            page.evaluate("() => { window.reached = undefined }")
            assert walk(page) == []
            if not page.evaluate(_UNREACHED):
                break
        assert page.evaluate(_UNREACHED) == []


def test_a_race_and_its_story_without_a_mouse(gateway: GatewayProcess, browser: Browser) -> None:
    with opened(browser, f"{gateway.url}/console/#play") as tab:
        page = tab.page

        def go_to(words: str) -> None:
            """Presses Tab until what has this name is focused."""
            for _ in range(MAX_TABS):
                page.keyboard.press("Tab")
                if page.evaluate("document.activeElement.textContent.trim()") == words:
                    return
            raise AssertionError(f"Tab never reached {words!r}")

        expect(page.get_by_label("Prompt", exact=True)).to_be_visible()
        page.get_by_label("Prompt", exact=True).focus()
        page.keyboard.type("Rename x to y.")
        go_to("Race")
        page.keyboard.press("Enter")
        expect(page.get_by_text("done", exact=True).first).to_be_visible()
        go_to("Live")
        page.keyboard.press("Enter")
        rows = page.get_by_role("region", name="Decisions").locator("tbody tr")
        rows.first.get_by_role("button").focus()
        page.keyboard.press("Enter")
        story = page.get_by_role("dialog")
        expect(story).to_contain_text("weighted tokens")
        page.keyboard.press("Escape")
        expect(story).not_to_be_visible()
    wait_until_at_rest(gateway)
