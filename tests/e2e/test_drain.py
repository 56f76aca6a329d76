"""Tests `lanewise backends drain`: no new tasks there on any gateway, and what runs goes on."""

import json
import signal
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from openai import InternalServerError, OpenAI

from tests.e2e.admin_api import ADMIN_KEY, ask
from tests.e2e.gateway_process import CONFIG, DEVELOPMENT_KEY, GatewayProcess, redis_server
from tests.e2e.shell import Shell

WAIT_S = 60.0  # bounds a hang; decides nothing


@pytest.fixture
def gateways(tmp_path: Path) -> Iterator[list[GatewayProcess]]:
    """Gives two gateways of one Redis: one of two workers, and one process."""
    with tempfile.TemporaryDirectory(prefix="lw-drain-") as name, redis_server(Path(name)) as url:
        (tmp_path / "lanewise.toml").write_text(CONFIG)
        started: list[GatewayProcess] = []
        try:
            for workers in ("2", "1"):
                arguments = ("--config", "lanewise.toml", "--redis", url, "--workers", workers)
                started.append(GatewayProcess(tmp_path, *arguments))
            for gateway in started:
                gateway.wait_until_ready()
            yield started
        finally:
            for gateway in started:
                gateway.stop()


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, "it never came to hold"
        time.sleep(0.05)


def drained(gateway: GatewayProcess) -> float:
    """Says in how many of its processes the wafer is drained; a scrape has the worst of all."""
    return gateway.metrics().total("lanewise_backend_drained", backend="wafer")


def problems(gateway: GatewayProcess) -> list[str]:
    """Returns what stands first on the console."""
    headers = {"authorization": f"Bearer {ADMIN_KEY}"}
    request = urllib.request.Request(f"{gateway.admin_url}/admin/events", headers=headers)
    with closing(urllib.request.urlopen(request, timeout=WAIT_S)) as answer:
        line = next(line for line in answer if line.startswith(b"data: "))
    return [problem["name"] for problem in json.loads(line[6:])["problems"]]


def test_drain_and_resume(
    gateways: list[GatewayProcess], capsys: pytest.CaptureFixture[str]
) -> None:
    fleet, other = gateways
    shell = Shell(other, capsys)
    client = OpenAI(base_url=fleet.base_url, api_key=DEVELOPMENT_KEY, max_retries=0)
    with client, ThreadPoolExecutor(1) as threads:
        running = threads.submit(
            client.responses.create, model="lanewise-fast", input="Write a book of 16,000 tokens."
        )
        until(lambda: fleet.metrics().total("lanewise_backend_inflight", backend="wafer") >= 1)
        assert "gets no new tasks" in shell("backends drain wafer")
        shell("backends drain wafer")  # again changes nothing
        until(lambda: drained(fleet) == 1)
        # The scrape takes the worst: each worker has to follow before this holds for good.
        ask_auto = lambda: client.responses.create(model="auto", input="Hi.")  # noqa: E731
        until(lambda: all(ask_auto().model == "lanewise-deep" for _ in range(4)))
        with pytest.raises(InternalServerError, match="is down"):
            client.responses.create(model="lanewise-fast", input="Hi.")
        assert running.result(WAIT_S).status == "completed", "what ran goes on"

        fleet.process.send_signal(signal.SIGHUP)
        until(lambda: "by all workers" in fleet.log)
        for gateway in gateways:
            assert drained(gateway) == 1, "a reload changes nothing"
            assert gateway.metrics().total("lanewise_group_backends_up", group="fast") == 0
            assert gateway.metrics().total("lanewise_backend_up", backend="wafer") == 1
            assert problems(gateway) == ["engine_drained wafer"]
            with urllib.request.urlopen(f"{gateway.url}/readyz") as ready:
                assert json.load(ready)["backends_drained"] == ["wafer"]
        assert "drained since" in shell("backends list")
        _, (entry, *_) = ask(other, "GET", "/admin/audit?limit=1")
        assert (entry["action"], entry["subject"]) == ("backends.drain", "wafer")
        assert "No backend 'wafr'" in shell.refused("backends drain wafr")

        shell("backends resume wafer")
        until(lambda: drained(fleet) == 0)
        until(lambda: ask_auto().model == "lanewise-fast")
        assert problems(other) == []
