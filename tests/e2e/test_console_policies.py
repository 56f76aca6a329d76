"""Tests *Policies* in a real browser: from a decision to a rule in force, and back."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect
from redis import Redis

from tests.e2e.admin_api import ask, run_task
from tests.e2e.browser import Tab, Theme, answering, chromium, needs_chromium, opened
from tests.e2e.gateway_process import GatewayProcess, redis_server

pytestmark = needs_chromium
VIEWS: list[tuple[int, Theme]] = [(1440, "light"), (1440, "dark"), (360, "light"), (360, "dark")]
NASTY = "<img src=x onerror=alert(1)>"
POLICY = f"""version = "canaried"
description = "{NASTY}"
record_text = true

[[rules]]
name = "hello-goes-deep"
when = {{ labels = ["interactive"] }}
percent = 40
route = "deep"
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def own(tmp_path: Path) -> Iterator[GatewayProcess]:
    """Gives a gateway whose policies are this test's."""
    gateway = GatewayProcess(tmp_path)
    try:
        gateway.wait_until_ready()
        yield gateway
    finally:
        assert gateway.stop() == 0, gateway.log


def write(page: Page, document: str) -> None:
    """Replaces the draft by keyboard, as a person does: filling it would paste styles."""
    page.get_by_label("Policy document").focus()
    page.keyboard.press("Control+a")
    page.keyboard.press("Delete")
    page.keyboard.insert_text(document)


def in_force(page: Page) -> Locator:
    return page.get_by_role("region", name="In force")


def back_test(tab: Tab) -> None:
    """Back-tests the draft, and compares what the page shows with what the gateway answered."""
    page, panel = tab.page, tab.page.get_by_role("tabpanel")
    page.get_by_role("tab", name="Back-test").click()
    asking = page.get_by_role("button", name="Run the back-test")
    expect(asking).to_be_enabled()  # the draft is checked first
    with page.expect_response("**/admin/backtest") as answered:
        asking.press("Enter")
    report = answered.value.json()
    (tested,) = report["policies"]
    assert tested["num_moved"] > 0
    words = f"{tested['num_moved']} of {report['num_tasks']} tasks would go another way."
    expect(panel.get_by_role("status")).to_contain_text(words)
    expect(panel).to_contain_text(f"by {tested['moved'][0]['rule']}")
    for figure in ("TTFT", "Whole answer", "Refused"):
        expect(panel.get_by_role("cell", name=figure).first).to_be_visible()
    for width, theme in VIEWS:
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=theme)
        assert tab.violations() == []
        assert not tab.overflows()
        panel.scroll_into_view_if_needed()
        tab.picture(f"policies-backtest-{width}-{theme}")
    page.set_viewport_size({"width": 1440, "height": 900})
    page.emulate_media(color_scheme="light")


def test_from_a_decision_to_a_rule_and_back(own: GatewayProcess, browser: Browser) -> None:
    run_task(own)
    with opened(browser, f"{own.url}/console/#live") as tab:
        page = tab.page
        rows = page.get_by_role("region", name="Decisions").locator("tbody tr")
        rows.first.get_by_role("button").click()
        page.get_by_role("link", name="Make a rule of this").click()
        expect(page.get_by_label("Policy document")).to_contain_text('name = "like-')
        expect(page.get_by_text("valid", exact=True)).to_be_visible()
        assert "rule=" not in page.url  # it is taken once

        write(page, POLICY)
        expect(page.get_by_text("valid", exact=True)).to_be_visible()
        page.get_by_role("tab", name="Canary").click()
        page.get_by_role("slider").fill("100")
        expect(page.get_by_label("Policy document")).to_contain_text("percent = 100")
        asked = answering(page, True, True, True)
        page.get_by_role("button", name="Store and activate").click()
        expect(in_force(page)).to_contain_text("In force: v1")

        assert "like-" not in page.get_by_label("Policy document").inner_text()

        run_task(own, model="auto")  # by a policy that records its prompt
        page.get_by_role("tab", name="Changes").click()
        page.get_by_role("tab", name="Canary").click()
        arms = page.get_by_role("tabpanel").get_by_role("row")
        expect(arms.nth(1)).to_contain_text("Canary1")
        # The task before the policy was not left by the rule for its share.
        expect(arms.nth(2)).to_contain_text("Control0")
        write(page, POLICY.replace('route = "deep"', 'route = "parallel"'))
        page.get_by_role("tab", name="Changes").click()
        expect(page.get_by_role("tabpanel")).to_contain_text("Against v1")
        page.get_by_role("tab", name="Dry run").click()
        page.get_by_role("button", name="Run it").click()
        expect(page.get_by_role("tabpanel")).to_contain_text("would go elsewhere")

        back_test(tab)
        page.get_by_role("button", name="Store", exact=True).click()
        versions = page.get_by_role("region", name="Versions")
        newest = versions.get_by_role("listitem").first
        expect(newest).to_contain_text("v2")
        newest.get_by_role("button", name="Shadow").click()
        expect(in_force(page)).to_contain_text("Shadow: v2")
        newest.get_by_role("button", name="Activate").click()
        expect(in_force(page)).to_contain_text("In force: v2")
        tab.picture("policies-in-force")
        page.get_by_role("button", name="Roll back").click()
        expect(in_force(page)).to_contain_text("In force: v1")
        expect(page.get_by_role("region", name="Audit")).to_contain_text("rollback")
        at_once = "decides for everybody's tasks at once."
        assert asked == [
            f"Put the draft in force instead of the configured policy? It {at_once}",
            f"Put v2 in force instead of v1? It {at_once}",
            f"Roll back v2? What was in force before it {at_once}",
        ]
    _, told = ask(own, "GET", "/admin/policies")
    assert told["active"] == 1


def test_errors_stand_at_their_line(gateway: GatewayProcess, browser: Browser) -> None:
    with opened(browser, f"{gateway.url}/console/#policies") as tab:
        page = tab.page
        write(page, 'version = "x"\n[[rules]]\nname = "a"\nroute = "fsat"\n')
        expect(page.get_by_text("Line 4, column 9:")).to_be_visible()
        expect(page.get_by_role("button", name="Store and activate")).to_be_disabled()
        expect(page.locator(".cm-lint-marker-error")).to_have_count(1)


def test_what_is_told_of_an_earlier_draft_says_so(
    gateway: GatewayProcess, browser: Browser
) -> None:
    recorded = {"at": 1.0, "model": "auto", "text": "Rename x to y.", "route": "fast"}
    records = [recorded | {"id": name, "tenant": name} for name in ("dev", "gone")]
    with opened(browser, f"{gateway.url}/console/#policies") as tab:
        page, panel = tab.page, tab.page.get_by_role("tabpanel")
        page.route("**/admin/decisions?*", lambda to: to.fulfill(json=records))
        write(page, 'uncertain = { route = "deep" }\n')
        page.get_by_role("tab", name="Dry run").click()
        page.get_by_role("button", name="Run it").click()
        expect(panel).to_contain_text("of 1 recorded prompts would go elsewhere")
        expect(panel).to_contain_text("1 could not be asked again: No tenant 'gone'")
        tab.faults = [fault for fault in tab.faults if "404" not in fault]
        write(page, "uncertain = 1\n")
        expect(panel).to_contain_text("The draft has changed since this was run.")
        for name in ("Explain", "Changes"):
            page.get_by_role("tab", name=name).click()
            expect(panel).to_contain_text("This is of the draft as it last was valid.")
        write(page, 'uncertain = { route = "fast" }\n')
        expect(page.get_by_text("valid", exact=True)).to_be_visible()
        expect(panel).not_to_contain_text("as it last was valid")
        write(page, "")
        expect(page.get_by_text("it says nothing of tasks")).to_be_visible()
        expect(panel).to_contain_text("0 differences.")


def test_only_a_checked_draft_is_tried(gateway: GatewayProcess, browser: Browser) -> None:
    held: list[Route] = []
    with opened(browser, f"{gateway.url}/console/#policies") as tab:
        page = tab.page
        expect(page.get_by_text("valid", exact=True)).to_be_visible()
        page.get_by_role("tab", name="Back-test").click()
        asking = page.get_by_role("button", name="Run the back-test")
        expect(asking).to_be_enabled()
        page.route("**/admin/policies/check", lambda route: held.append(route))
        with page.expect_request("**/admin/policies/check"):
            write(page, POLICY)
        expect(page.get_by_text("checking", exact=True)).to_be_visible()
        expect(asking).to_be_disabled()
        expect(page.get_by_role("button", name="Store", exact=True)).to_be_disabled()
        for route in held:
            route.continue_()
        page.unroute("**/admin/policies/check")
        expect(asking).to_be_enabled()


def test_two_editors_cannot_undo_each_other(own: GatewayProcess, browser: Browser) -> None:
    with opened(browser, f"{own.url}/console/#policies") as tab:
        page = tab.page
        write(page, 'version = "mine"\n')
        expect(page.get_by_text("valid", exact=True)).to_be_visible()
        _, stored = ask(own, "POST", "/admin/policies", {"document": 'version = "theirs"\n'})
        ask(own, "POST", f"/admin/policies/{stored['version']}/activate", {"expected": 0})
        answering(page, True)
        page.get_by_role("button", name="Store and activate").click()
        expect(page.get_by_role("alert")).to_contain_text("The draft is stored as v2;")
        _, told = ask(own, "GET", "/admin/policies")
        assert told["active"] == stored["version"]
        tab.faults = [fault for fault in tab.faults if "409" not in fault]


def test_nothing_comes_in_force_without_being_asked(own: GatewayProcess, browser: Browser) -> None:
    for name in ("first", "second"):
        ask(own, "POST", "/admin/policies", {"document": f'version = "{name}"\n'})
    ask(own, "POST", "/admin/policies/1/activate", {"expected": 0})
    with opened(browser, f"{own.url}/console/#policies") as tab:
        page = tab.page
        expect(in_force(page)).to_contain_text("In force: v1")
        write(page, 'version = "draft"\n')
        expect(page.get_by_text("valid", exact=True)).to_be_visible()
        asked = answering(page, False, False, False)
        page.get_by_role("button", name="Store and activate").click()
        page.get_by_role("button", name="Activate", exact=True).first.click()
        page.get_by_role("button", name="Roll back").click()
        assert len(asked) == 3
    _, told = ask(own, "GET", "/admin/policies")
    assert (told["active"], len(told["versions"])) == (1, 2)


def test_a_draft_that_is_stored_nowhere_is_replaced_only_on_purpose(
    own: GatewayProcess, browser: Browser
) -> None:
    ask(own, "POST", "/admin/policies", {"document": 'version = "stored"\n'})
    with opened(browser, f"{own.url}/console/#policies") as tab:
        page, text = tab.page, tab.page.get_by_label("Policy document")
        asked = answering(page, False, True)
        opening = page.get_by_role("button", name="Open")
        write(page, 'version = "written"\n')
        with page.expect_event("dialog"):
            opening.press("Enter")
        expect(text).to_contain_text("written")
        opening.press("Enter")
        expect(text).to_contain_text("stored")
        assert asked == ["Replace the draft by v1? What you wrote is not stored."] * 2
        write(page, 'version = "stored, too"\n')
        page.get_by_role("button", name="Store", exact=True).click()
        expect(page.get_by_text("Stored; nothing has changed yet.")).to_be_visible()
        opening.last.click()  # of v1
        expect(text).not_to_contain_text("too")
        assert len(asked) == 2, "nothing was lost"


def test_a_lost_document_does_not_hide_the_way_back(browser: Browser, tmp_path: Path) -> None:
    """As where Redis evicted it, and no gateway has it any more."""
    with redis_server(tmp_path) as redis_url:
        first = GatewayProcess(tmp_path, "--redis", redis_url)
        try:
            first.wait_until_ready()
            _, stored = ask(first, "POST", "/admin/policies", {"document": 'version = "lost"\n'})
            version = stored["version"]
            ask(first, "POST", f"/admin/policies/{version}/activate", {"expected": 0})
        finally:
            assert first.stop() == 0, first.log
        with Redis.from_url(redis_url) as redis:
            redis.delete(f"lw1:{{policy}}:v:{version}")
        own = GatewayProcess(tmp_path, "--redis", redis_url)
        try:
            own.wait_until_ready()
            with opened(browser, f"{own.url}/console/#policies") as tab:
                page = tab.page
                expect(page.get_by_role("alert")).to_contain_text(f"no policy version {version}")
                expect(in_force(page)).to_contain_text(f"In force: v{version}")
                answering(page, True)
                page.get_by_role("button", name="Roll back").click()
                expect(in_force(page)).to_contain_text("In force: the configured policy")
                expect(page.get_by_role("alert")).to_have_count(0)
                tab.faults = [fault for fault in tab.faults if "404" not in fault]
        finally:
            assert own.stop() == 0, own.log


@pytest.mark.parametrize(("width", "theme"), VIEWS)
def test_it_is_for_everybody(
    gateway: GatewayProcess, browser: Browser, width: int, theme: Theme
) -> None:
    url = f"{gateway.url}/console/#policies"
    with opened(browser, url, width=width, theme=theme) as tab:
        page = tab.page
        write(page, POLICY)
        page.get_by_label("Prompt").fill(f"say hi {NASTY}")
        expect(page.get_by_role("tabpanel").get_by_role("status")).to_contain_text(
            re.compile("on (wafer|gpu)")
        )
        assert tab.violations() == []
        assert not tab.overflows()
        tab.picture(f"policies-{width}-{theme}")
        page.get_by_role("tab", name="Explain").focus()
        for name in ("Changes", "Dry run", "Back-test", "Canary"):
            page.keyboard.press("ArrowRight")
            expect(page.get_by_role("tab", name=name)).to_be_focused()
        assert page.locator("main img").count() == 0


def test_a_read_only_key_sees_no_buttons(browser: Browser, tmp_path: Path) -> None:
    key = "sk-31bd0f77c5a94e28"
    config = tmp_path / "read.toml"
    config.write_text(f'[[admin.keys]]\nname = "viewer"\nkey = "{key}"\nread_only = true\n')
    own = GatewayProcess(tmp_path, "--config", str(config))
    try:
        own.wait_until_ready()
        me = ask(own, "GET", "/admin/me", key=key)[1]
        assert (me["name"], me["read_only"]) == ("viewer", True)
        with opened(browser, f"{own.url}/console/#policies") as tab:
            page = tab.page
            page.get_by_role("button", name="Enter the key").click()
            page.get_by_label("Key", exact=True).fill(key)
            page.keyboard.press("Enter")
            expect(page.get_by_text("valid", exact=True)).to_be_visible()
            for name in ("Store", "Store and activate", "Roll back", "Activate", "Shadow"):
                assert page.get_by_role("button", name=name, exact=True).count() == 0
    finally:
        assert own.stop() == 0, own.log
