"""Drives Debian's Chromium by Playwright: pages fail their test by any error they report."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, Dialog, Page, expect, sync_playwright

from tests.e2e.gateway_process import ROOT

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: run `make setup`")

WAIT_MS = 30_000  # bounds a hang
expect.set_options(timeout=WAIT_MS)
AXE = ROOT / "console" / "node_modules" / "axe-core" / "axe.min.js"
# Screenshots of every page, kept for whoever looks at a run.
PICTURES = Path(os.environ.get("LANEWISE_TEST_PICTURES", ROOT / "build" / "screenshots"))

Theme = Literal["light", "dark"]


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """Gives a browser; its sandbox needs rights that root in a container does not have."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


def answering(page: Page, *answers: bool) -> list[str]:
    """Gives a page's questions these answers, one by one; the list gets what was asked."""
    asked: list[str] = []
    left = list(answers)

    def answer(dialog: Dialog) -> None:
        asked.append(dialog.message)
        dialog.accept() if left.pop(0) else dialog.dismiss()

    page.on("dialog", answer)
    return asked


class Tab:
    """Is one page, with what it reported: errors, and violations of its security policy."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.faults: list[str] = []
        page.set_default_timeout(WAIT_MS)
        page.on("pageerror", lambda error: self.faults.append(f"page error: {error}"))
        page.on("console", self._note)

    def _note(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.faults.append(f"{message.type}: {message.text}")

    def picture(self, name: str) -> None:
        PICTURES.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=PICTURES / f"{name}.png")

    def violations(self) -> list[str]:
        """Returns what axe finds wrong for people who use a keyboard or a screen reader."""
        assert AXE.exists(), "run `make setup`"
        self.page.evaluate(AXE.read_text())
        found = self.page.evaluate("axe.run()")
        return [
            f"{violation['id']}: {violation['help']} {node['target']} {node['failureSummary']}"
            for violation in found["violations"]
            for node in violation["nodes"]
        ]

    def overflows(self) -> bool:
        """Says whether the page is wider than its window."""
        return bool(
            self.page.evaluate("document.documentElement.scrollWidth > document.body.clientWidth")
        )


@contextlib.contextmanager
def opened(
    browser: Browser, url: str, *, width: int = 1440, theme: Theme = "light"
) -> Iterator[Tab]:
    """Gives a tab of its own at `url`; at the end it must have reported nothing."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
    try:
        tab = Tab(context.new_page())
        tab.page.goto(url)
        yield tab
        assert not tab.faults, "\n".join(tab.faults)
    finally:
        context.close()
