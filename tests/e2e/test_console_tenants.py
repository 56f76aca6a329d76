"""Tests *Tenants* in a real browser: a key from its making to its end, and limits changed live."""

import contextlib
import json
import re
import subprocess
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.e2e.admin_api import ask, run_task
from tests.e2e.browser import Theme, answering, chromium, needs_chromium, opened
from tests.e2e.gateway_process import GatewayProcess

pytestmark = needs_chromium
VIEWS = [(1440, "light"), (1440, "dark"), (360, "light"), (360, "dark")]
NASTY = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


def end_of(socket: ClientConnection) -> str:
    """Waits until the gateway closes a socket; the code of the error before that."""
    code = ""
    with contextlib.suppress(ConnectionClosed):
        while True:
            code = json.loads(socket.recv(timeout=60))["error"]["code"]
    return code


def test_a_key_is_made_used_and_revoked(gateway: GatewayProcess, browser: Browser) -> None:
    with opened(browser, f"{gateway.url}/console/#tenants") as tab:
        page = tab.page
        page.get_by_role("button", name="dev development").click()
        page.get_by_label("Name of the key").fill(NASTY)
        page.get_by_label("Expires").select_option("in a day")
        page.get_by_role("button", name="Make a key").click()
        page.get_by_label("For").select_option("curl")
        snippet = page.get_by_label("Snippet").inner_text()
        key = page.locator("code.key").inner_text()
        used = subprocess.run(["sh", "-c", snippet], capture_output=True, timeout=60, check=True)
        assert json.loads(used.stdout)["status"] == "completed"
        page.get_by_role("button", name="small").click()
        expect(page.get_by_role("heading", name="Keys of small")).to_be_visible()
        assert key not in page.content()
        page.get_by_role("button", name="dev development").click()
        expect(page.locator("code.key")).to_have_text(key)  # it was not kept yet
        page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
        page.get_by_role("button", name="Copy", exact=True).click()
        expect(page.get_by_role("button", name="this page cannot copy")).to_be_visible()
        page.get_by_role("button", name="I have kept it").click()
        assert key not in page.content()

        headers = {"authorization": f"Bearer {key}"}
        socket = connect(gateway.socket_url, additional_headers=headers)
        row = page.get_by_role("row").filter(has_text=NASTY).first
        expect(row).to_contain_text("active")
        asked = answering(page, False, True)
        row.get_by_role("button", name="Revoke").press("Enter")
        expect(row).to_contain_text("active")
        row.get_by_role("button", name="Revoke").press("Enter")
        expect(row).to_contain_text("revoked")
        assert end_of(socket) == "invalid_api_key"
        assert len(asked) == 2
        assert f"Revoke the key {NASTY} (" in asked[0], "as it is named, and no markup"
        assert page.locator("main img").count() == 0


def test_limits_are_changed_live(gateway: GatewayProcess, browser: Browser) -> None:
    with opened(browser, f"{gateway.url}/console/#tenants") as tab:
        page = tab.page
        page.get_by_label("Id of the new tenant").fill("studio")
        page.get_by_label("Its tier").select_option("pro")
        page.get_by_role("button", name="Add").click()
        expect(page.get_by_role("heading", name="Keys of studio")).to_be_visible()
        audit = page.get_by_role("region", name="Audit")
        expect(audit).to_contain_text("tenants.create studio")
        page.get_by_label("Requests/min, deep").fill("7")
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_text("In force from the next task on.")).to_be_visible()
        _, told = ask(gateway, "GET", "/admin/tenants/studio")
        assert told["limits"]["deep"]["requests_per_min"] == 7
        limit = page.get_by_label("Requests/min, deep")
        expect(limit).to_have_attribute("placeholder", "7")  # loaded again
        limit.fill("")
        page.get_by_role("button", name="Save").click()
        expect(limit).to_have_attribute("placeholder", "120")
        _, told = ask(gateway, "GET", "/admin/tenants/studio")
        assert told["limits"]["deep"]["requests_per_min"] == 120
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_text("Nothing differs from what is in force.")).to_be_visible()
    ask(gateway, "DELETE", "/admin/tenants/studio")


def test_limits_change_all_at_once_and_undo_nobody(
    gateway: GatewayProcess, browser: Browser
) -> None:
    limits = {"deep": {"requests_per_min": 9, "max_concurrent": 3}}
    ask(gateway, "POST", "/admin/tenants", {"id": "whole", "tier": "pro", "limits": limits})
    with opened(browser, f"{gateway.url}/console/#tenants") as tab:
        page, sent = tab.page, list[object]()
        page.get_by_role("button", name="whole").click()
        other = {"limits": {"fast": {"max_concurrent": 5}}}  # of another admin, meanwhile
        assert ask(gateway, "PATCH", "/admin/tenants/whole", other)[0] == 200
        page.on(
            "request",
            lambda each: sent.append(each.post_data_json) if each.method == "PATCH" else None,
        )
        page.get_by_label("Requests/min, deep").fill("")
        page.get_by_label("At once, deep").fill("4")
        page.get_by_label("Tokens/min, fast").fill("1000")
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_text("In force from the next task on.")).to_be_visible()
        deep = {"requests_per_min": "tier", "max_concurrent": 4}
        assert sent == [{"limits": {"fast": {"tokens_per_min": 1000}, "deep": deep}}]
    _, told = ask(gateway, "GET", "/admin/tenants/whole")
    assert told["own_limits"] == {
        "fast": {"max_concurrent": 5, "tokens_per_min": 1000},
        "deep": {"max_concurrent": 4},
    }
    ask(gateway, "DELETE", "/admin/tenants/whole")


def test_one_of_many_tenants_is_found(gateway: GatewayProcess, browser: Browser) -> None:
    ids = [f"many-{number}" for number in range(25)]
    for each in ids:
        ask(gateway, "POST", "/admin/tenants", {"id": each, "tier": "pro"})
    with opened(browser, f"{gateway.url}/console/#tenants", width=360) as tab:
        page = tab.page
        listed = page.get_by_role("button", name=re.compile("many-"))
        expect(page.get_by_text("type a part of another's id")).to_be_visible()
        page.get_by_label("Find").fill("y-24")
        expect(page.get_by_role("heading", name="Keys of many-24")).to_be_visible()
        expect(listed).to_have_count(1)
        page.get_by_label("Find").fill("none-such")
        expect(page.get_by_text("No tenant's id has this in it.")).to_be_visible()
        page.get_by_label("Id of the new tenant").fill("another")
        page.get_by_role("button", name="Add").click()
        expect(page.get_by_role("heading", name="Keys of another")).to_be_visible()
        expect(page.get_by_label("Find")).to_have_value("another")
        assert tab.violations() == []
        assert not tab.overflows()
    for each in (*ids, "another"):
        ask(gateway, "DELETE", f"/admin/tenants/{each}")


def test_a_limit_of_nothing_is_shown_and_saved(gateway: GatewayProcess, browser: Browser) -> None:
    blocked = {"id": "blocked", "tier": "pro", "limits": {"fast": {"requests_per_min": 0}}}
    assert ask(gateway, "POST", "/admin/tenants", blocked)[0] == 201
    with opened(browser, f"{gateway.url}/console/#tenants") as tab:
        page = tab.page
        page.get_by_role("button", name="blocked").click()
        expect(page.get_by_role("region", name="Left in its pools")).to_contain_text("0 of 0 left")
        expect(page.get_by_label("Requests/min, fast")).to_have_value("0")
        page.get_by_label("At once, deep").fill("0")
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_text("In force from the next task on.")).to_be_visible()
    _, told = ask(gateway, "GET", "/admin/tenants/blocked")
    assert told["limits"]["fast"]["requests_per_min"] == 0
    assert told["limits"]["deep"]["max_concurrent"] == 0
    ask(gateway, "DELETE", "/admin/tenants/blocked")


def test_a_part_of_a_cent_is_no_nothing(gateway: GatewayProcess, browser: Browser) -> None:
    row = {"day": "2026-11-21", "model": "lanewise-fast", "tasks": 1, "cost_usd": 2.13e-05}
    with opened(browser, f"{gateway.url}/console/#play") as tab:
        page = tab.page
        page.route(
            "**/admin/usage?*", lambda to: to.fulfill(json={"by": ["day", "model"], "rows": [row]})
        )
        page.get_by_role("link", name="Tenants").click()
        usage = page.get_by_role("region", name="Usage")
        expect(usage.get_by_role("cell", name="$0.0000213")).to_be_visible()


@pytest.mark.parametrize(("width", "theme"), VIEWS)
def test_it_is_for_everybody(
    gateway: GatewayProcess, browser: Browser, width: int, theme: Theme
) -> None:
    run_task(gateway)
    url = f"{gateway.url}/console/#tenants"
    with opened(browser, url, width=width, theme=theme) as tab:
        page = tab.page
        page.get_by_role("button", name="dev development").press("Enter")
        expect(page.get_by_role("region", name="Usage")).to_contain_text("lanewise-fast")
        expect(page.get_by_role("region", name="Left in its pools")).to_contain_text("left")
        assert tab.violations() == []
        assert not tab.overflows()
        tab.picture(f"tenants-{width}-{theme}")
        with page.expect_download() as download:
            page.get_by_role("button", name="CSV").press("Enter")
        assert download.value.path().read_text().startswith('"day","model","tasks"')
