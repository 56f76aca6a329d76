"""A real Prometheus scrapes a gateway under load: every panel of the dashboard shows something."""

import contextlib
import json
import math
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.e2e.gateway_process import (
    DEVELOPMENT_KEY,
    ROOT,
    SMALL_KEY,
    GatewayProcess,
    free_port,
)

UNPACKED = ROOT / ".venv" / "prometheus" / "usr" / "bin"
TIMEOUT_S = 60.0  # bounds a hang


def tool(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path=str(UNPACKED))


needs_prometheus = pytest.mark.skipif(
    tool("prometheus") is None or tool("promtool") is None,
    reason="no Prometheus: `make setup` unpacks Debian's where apt-get is",
)


@needs_prometheus
def test_rules_hold_and_page_for_what_they_should() -> None:
    for command in (
        ["check", "rules", "lanewise.rules.yml"],
        ["test", "rules", "lanewise.test.yml"],
    ):
        told = subprocess.run(
            [str(tool("promtool")), *command],
            cwd=ROOT / "dashboards",
            capture_output=True,
            text=True,
            check=False,
        )
        assert told.returncode == 0, told.stdout + told.stderr


@needs_prometheus
def test_metric_names_follow_the_conventions(gateway: GatewayProcess) -> None:
    with urllib.request.urlopen(f"{gateway.url}/metrics") as answer:
        text = answer.read().decode()
    # vLLM's names are its own affair.
    ours = "".join(f"{line}\n" for line in text.splitlines() if "vllm:" not in line)
    told = subprocess.run(
        [str(tool("promtool")), "check", "metrics"],
        input=ours,
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stdout + told.stderr


CONFIG = """
global:
  scrape_interval: 1s
rule_files: [{rules}]
scrape_configs:
  - job_name: lanewise
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


@contextlib.contextmanager
def prometheus(gateway: GatewayProcess, folder: Path) -> Iterator[str]:
    """Gives its URL."""
    config = folder / "prometheus.yml"
    rules = ROOT / "dashboards" / "lanewise.rules.yml"
    config.write_text(CONFIG.format(port=gateway.port, rules=rules))
    address = f"127.0.0.1:{free_port()}"
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                str(tool("prometheus")),
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'tsdb'}",
                f"--web.listen-address={address}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)


def ask(url: str, expr: str) -> list[dict[str, Any]]:
    """The samples of an instant query that hold a number."""
    query = urllib.parse.urlencode({"query": expr})
    try:
        with urllib.request.urlopen(f"{url}/api/v1/query?{query}") as answer:
            result = json.load(answer)["data"]["result"]
    except (urllib.error.URLError, ConnectionError):
        return []  # not up yet
    return [sample for sample in result if not math.isnan(float(sample["value"][1]))]


def load(gateway: GatewayProcess) -> None:
    """A bit of everything: both engines, both transports, compaction, refusals, fallbacks."""
    with OpenAI(base_url=gateway.base_url, api_key=DEVELOPMENT_KEY, max_retries=0) as client:
        for model in ("auto", "lanewise-fast", "lanewise-deep"):
            client.responses.create(model=model, input="Say hello.", max_output_tokens=40)
        client.responses.create(
            model="auto", input="Hi.", metadata={"route": "parallel"}, max_output_tokens=40
        )
        client.responses.compact(model="auto", input="Hi.")
        with client.responses.connect() as connection:
            connection.response.create(model="auto", input="Hi.", max_output_tokens=40)
            for event in connection:
                if event.type in ("response.completed", "response.incomplete"):
                    break
    with (
        OpenAI(base_url=gateway.base_url, api_key=SMALL_KEY, max_retries=0) as small,
        contextlib.suppress(openai.RateLimitError),
    ):
        for _ in range(8):
            small.responses.create(model="auto", input="Hi.", max_output_tokens=16)


@needs_prometheus
def test_every_panel_shows_something(gateway: GatewayProcess, tmp_path: Path) -> None:
    dashboard = json.loads((ROOT / "dashboards" / "overview.json").read_text())
    queries = {
        f"{panel['title']} {target['refId']}": target["expr"].replace("$__rate_interval", "30s")
        for panel in dashboard["panels"]
        for target in panel.get("targets", ())
    }
    with prometheus(gateway, tmp_path) as url:
        deadline = time.monotonic() + TIMEOUT_S
        while not ask(url, 'up{job="lanewise"} == 1'):
            assert time.monotonic() < deadline, (tmp_path / "prometheus.log").read_text()
            time.sleep(0.2)
        while queries:
            load(gateway)
            time.sleep(1.0)  # a scrape
            queries = {name: expr for name, expr in queries.items() if not ask(url, expr)}
            assert time.monotonic() < deadline, f"empty panels: {queries}"
