"""Runs a real Prometheus and a real Alertmanager as processes on loopback, and asks them."""

import contextlib
import http.server
import json
import math
import shutil
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.e2e.gateway_process import ROOT, free_port

UNPACKED = ROOT / ".venv" / "prometheus" / "usr" / "bin"
TIMEOUT_S = 60.0  # bounds a hang
RULES = ROOT / "dashboards" / "lanewise.rules.yml"


def tool(*names: str) -> str | None:
    """Returns the first of these programs that is installed or unpacked."""
    found = (shutil.which(name) or shutil.which(name, path=str(UNPACKED)) for name in names)
    return next((path for path in found if path is not None), None)


def alertmanager_binary() -> str | None:
    return tool("prometheus-alertmanager", "alertmanager")


needs_prometheus = pytest.mark.skipif(
    tool("prometheus") is None or tool("promtool") is None,
    reason="no Prometheus: `make setup` unpacks Debian's where apt-get is",
)
needs_alertmanager = pytest.mark.skipif(
    alertmanager_binary() is None or tool("amtool") is None,
    reason="no Alertmanager: `make setup` unpacks Debian's where apt-get is",
)


@contextlib.contextmanager
def _process(command: Sequence[str], log_path: Path, cwd: Path) -> Iterator[None]:
    with log_path.open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=cwd)
    try:
        yield
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)


@contextlib.contextmanager
def prometheus(
    folder: Path, targets: Sequence[str], *, interval: str = "1s", alertmanager: str | None = None
) -> Iterator[str]:
    """Scrapes the targets and evaluates all of our rules as often; gives its URL."""
    rules = yaml.safe_load(RULES.read_text())
    for group in rules["groups"]:
        group.pop("interval", None)  # so that nobody waits a minute for the first
    (folder / RULES.name).write_text(yaml.safe_dump(rules))
    document: dict[str, Any] = {
        "global": {"scrape_interval": interval, "evaluation_interval": interval},
        "rule_files": [RULES.name],
        "scrape_configs": [
            {"job_name": "lanewise", "static_configs": [{"targets": list(targets)}]}
        ],
    }
    if alertmanager is not None:
        document["alerting"] = {
            "alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]
        }
    config = folder / "prometheus.yml"
    config.write_text(yaml.safe_dump(document))
    address = f"127.0.0.1:{free_port()}"
    command = [
        str(tool("prometheus")),
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address={address}",
    ]
    with _process(command, folder / "prometheus.log", folder):
        url = f"http://{address}"
        deadline = time.monotonic() + TIMEOUT_S
        while not ask(url, "vector(1)"):
            assert time.monotonic() < deadline, (folder / "prometheus.log").read_text()
            time.sleep(0.1)
        yield url


def ask(url: str, expr: str) -> list[dict[str, Any]]:
    """Returns the samples of an instant query that hold a number."""
    query = urllib.parse.urlencode({"query": expr})
    try:
        with urllib.request.urlopen(f"{url}/api/v1/query?{query}") as answer:
            result = json.load(answer)["data"]["result"]
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 503:
                return []  # not ready yet
            raise AssertionError(f"{expr}: {error.read().decode()}") from error
    except (urllib.error.URLError, ConnectionError):
        return []  # not up yet
    return [sample for sample in result if not math.isnan(float(sample["value"][1]))]


class Told(NamedTuple):
    """Is an alert as the webhook was told of it."""

    at_s: float  # monotonic
    name: str
    is_firing: bool
    labels: dict[str, str]


class Webhook:
    """Receives what Alertmanager posts."""

    def __init__(self) -> None:
        self.told: list[Told] = []
        self.num_beats = 0
        webhook = self

        class Receiver(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                webhook.take(self.path, body)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def take(self, path: str, body: dict[str, Any]) -> None:
        """Keeps what a post says."""
        if path == "/heartbeat":
            self.num_beats += 1
            return
        for alert in body["alerts"]:
            labels = alert["labels"]
            told = Told(time.monotonic(), labels["alertname"], alert["status"] == "firing", labels)
            self.told.append(told)

    @contextlib.contextmanager
    def serving(self) -> Iterator["Webhook"]:
        thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def when(self, name: str, *, firing: bool, since_s: float) -> float | None:
        """Returns when it first heard so of the alert after a moment; None if not yet."""
        times = (
            told.at_s
            for told in self.told
            if told.name == name and told.is_firing is firing and told.at_s >= since_s
        )
        return next(times, None)


@contextlib.contextmanager
def alertmanager(folder: Path, webhook: Webhook) -> Iterator[str]:
    """Runs with deploy/alertmanager.yml, which posts to the webhook instead; gives its address."""
    text = (ROOT / "deploy" / "alertmanager.yml").read_text()
    config = folder / "alertmanager.yml"
    config.write_text(text.replace("http://host.docker.internal:9095", webhook.url))
    address = f"127.0.0.1:{free_port()}"
    command = [
        str(alertmanager_binary()),
        f"--config.file={config}",
        f"--storage.path={folder / 'alertmanager'}",
        f"--web.listen-address={address}",
        "--cluster.listen-address=",
    ]
    # The unpacked one finds its templates from there.
    cwd = UNPACKED.parents[1] if command[0].startswith(str(UNPACKED)) else folder
    with _process(command, folder / "alertmanager.log", cwd):
        deadline = time.monotonic() + TIMEOUT_S
        while not _is_ready(f"http://{address}/-/ready"):
            assert time.monotonic() < deadline, (folder / "alertmanager.log").read_text()
            time.sleep(0.1)
        yield address


def _is_ready(url: str) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(url):
        return True
    return False
