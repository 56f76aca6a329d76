"""The console: first paint, size, the tab's memory, watchers, and how soon a fault shows."""

import contextlib
import statistics
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, expect

from tests.e2e.admin_api import ADMIN_KEY
from tests.e2e.browser import CHROMIUM, chromium, opened
from tests.e2e.console_faults import FAULTS, Fault
from tests.e2e.gateway_process import GatewayProcess, lone_gateway

LIMIT_S = 1_800
MAX_PAINT_MS = 300.0
MAX_KB = 60.0
MAX_WATCHERS_SHARE = 0.02  # of a core, for ten
MAX_IDLE_SHARE = 0.005  # more than a gateway that nobody ever watched: what such a measure wavers
MAX_FAULT_S = 3.0
MAX_GROWN_MB = 40.0  # of the tab's heap, over a million tokens
TOKENS = 1_000_000
NUM_LOADS, NUM_WATCHERS, WATCH_S = 9, 10, 20.0
BOOK = "Write a book of 16,000 tokens."


def main() -> bool:
    """Prints a line with a verdict for each; all have to hold."""
    if CHROMIUM is None:
        print("no Chromium: run `make setup`")
        return False
    held = []
    with chromium() as browser:
        with lone_gateway() as gateway:
            held += [_watchers(gateway), _paint(gateway, browser), _memory(gateway, browser)]
        held += [_fault(browser, name) for name in FAULTS]
    return all(held)


def _said(words: str, holds: bool) -> bool:
    print(f"{'held' if holds else 'FAILED'}: {words}", flush=True)
    return holds


def _paint(gateway: GatewayProcess, browser: Browser) -> bool:
    """Measures first paints; each load is of a new context, whose cache is empty."""
    paints, sizes = [], []
    for _ in range(NUM_LOADS):
        with opened(browser, f"{gateway.url}/console/") as tab:
            expect(tab.page.get_by_label("Prompt")).to_be_visible()
            paints.append(tab.page.evaluate(_PAINT_MS))
            tab.page.goto(f"{gateway.url}/console/#live")
            expect(tab.page.get_by_text("Nothing is wrong.")).to_be_visible()
            sizes.append(tab.page.evaluate(_SENT_BYTES) / 1e3)
    paint_ms, kb = statistics.median(paints), max(sizes)
    words = f"first paint {paint_ms:.0f} ms (median of {NUM_LOADS}; {max(paints):.0f} at most)"
    is_quick = _said(f"{words}; limit {MAX_PAINT_MS:.0f}", paint_ms < MAX_PAINT_MS)
    return (
        _said(f"{kb:.1f} KB sent for Play and Live; limit {MAX_KB:.0f}", kb <= MAX_KB) and is_quick
    )


_PAINT_MS = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
_SENT_BYTES = """[...performance.getEntriesByType('navigation'),
  ...performance.getEntriesByType('resource').filter((each) => each.name.includes('/console/'))]
  .reduce((sum, each) => sum + each.encodedBodySize, 0)"""


def _watchers(gateway: GatewayProcess) -> bool:
    """Runs first: before anybody has watched."""
    before = _cpu_share(gateway, WATCH_S)
    with contextlib.ExitStack() as stack:
        for _ in range(NUM_WATCHERS):
            stack.enter_context(_watching(gateway))
        time.sleep(2.0)  # the first snapshot, and the page's files
        during = _cpu_share(gateway, WATCH_S)
    time.sleep(2.0)
    after = _cpu_share(gateway, WATCH_S)
    shares = f"{before:.2%} of a core before, {during:.2%} with {NUM_WATCHERS}, {after:.2%} after"
    cost = during - before
    words = f"{NUM_WATCHERS} watchers cost {cost:.2%} ({shares}); limit {MAX_WATCHERS_SHARE:.0%}"
    is_cheap = _said(words, cost <= MAX_WATCHERS_SHARE)
    return _said("none cost nothing", after - before <= MAX_IDLE_SHARE) and is_cheap


@contextlib.contextmanager
def _watching(gateway: GatewayProcess) -> Iterator[None]:
    headers = {"authorization": f"Bearer {ADMIN_KEY}"}
    request = urllib.request.Request(f"{gateway.admin_url}/admin/events", headers=headers)
    answer = urllib.request.urlopen(request, timeout=60)

    def read() -> None:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            for _ in answer:
                pass

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        yield
    finally:
        answer.fp.raw._sock.shutdown(2)
        reader.join(10)
        answer.close()


def _cpu_share(gateway: GatewayProcess, seconds: float) -> float:
    began_s, used_s = time.monotonic(), _cpu_s(gateway)
    time.sleep(seconds)
    return (_cpu_s(gateway) - used_s) / (time.monotonic() - began_s)


def _cpu_s(gateway: GatewayProcess) -> float:
    fields = Path(f"/proc/{gateway.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def _memory(gateway: GatewayProcess, browser: Browser) -> bool:
    """Measures memory while Play streams ten answers at once, and Live shows it in its own tab."""
    with (
        opened(browser, f"{gateway.url}/console/#live") as live,
        opened(browser, f"{gateway.url}/console/") as play,
    ):
        _variations(play.page)  # what the first one loads stays
        first = [_heap_mb(tab.page) for tab in (play, live)]
        begun = _generated(gateway)
        while (streamed := _generated(gateway) - begun) < TOKENS:
            _variations(play.page)
        last = [_heap_mb(tab.page) for tab in (play, live)]
    held = []
    for name, before, after in zip(("Play", "Live"), first, last, strict=True):
        words = f"{name}: {before:.1f} MB of heap, {after:.1f} after {streamed:,.0f} tokens"
        limit = f"; limit {MAX_GROWN_MB:.0f} MB more"
        held.append(_said(words + limit, after - before <= MAX_GROWN_MB))
    return all(held)


def _variations(page: Page) -> None:
    page.get_by_label("Prompt").fill(BOOK)
    page.get_by_label("How many variations").fill("10")
    page.get_by_role("button", name="Variations", exact=True).click()
    expect(page.get_by_text("done", exact=True)).to_be_visible(timeout=300_000)


def _generated(gateway: GatewayProcess) -> float:
    return gateway.metrics().total("vllm:generation_tokens_total")


def _heap_mb(page: Page) -> float:
    """Returns what is used once everything that nobody holds is collected."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    used: dict[str, Any] = session.send("Runtime.getHeapUsage")
    return float(used["usedSize"]) / 1e6


def _fault(browser: Browser, name: str) -> bool:
    with FAULTS[name]() as fault, opened(browser, f"{fault.gateway.url}/console/#live") as tab:
        wrong = tab.page.get_by_role("region", name="What is wrong")
        expect(wrong).to_contain_text("Nothing is wrong.")
        shown_s = _seconds_until(fault.strike, lambda: expect(wrong).to_contain_text(fault.words))
        gone_s = _gone(fault, lambda: expect(wrong).to_contain_text("Nothing is wrong."))
    words = f"{name} killed: shown after {shown_s:.1f} s, gone {gone_s:.1f} s after it was back"
    return _said(f"{words}; limit {MAX_FAULT_S:.0f} each", max(shown_s, gone_s) <= MAX_FAULT_S)


def _seconds_until(strike: Callable[[], None], holds: Callable[[], None]) -> float:
    strike()
    began_s = time.monotonic()
    holds()
    return time.monotonic() - began_s


def _gone(fault: Fault, holds: Callable[[], None]) -> float:
    """Returns the seconds from when what was killed serves again."""
    fault.mend()
    fault.wait_until_back()
    return _seconds_until(lambda: None, holds)
