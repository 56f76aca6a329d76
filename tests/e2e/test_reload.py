"""Tests SIGHUP: a changed file is in force in all processes, and no task fails for it."""

import json
import os
import signal
import ssl
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import openai
import pytest
import trustme
from openai import OpenAI

from tests.e2e.gateway_process import DEVELOPMENT_KEY, GatewayProcess, children, listening_on
from tests.e2e.socket_client import SocketClient

WAIT_S = 60.0  # bounds a hang; decides nothing
RELOADS = "lanewise_config_reloads_total"

TENANT = """
[[tenants]]
id = "{id}"
keys = ["{key}"]
limits.fast = {{ requests_per_min = {rpm}, tokens_per_min = 2000000, max_concurrent = 64 }}
limits.deep = {{ requests_per_min = {rpm}, tokens_per_min = 2000000, max_concurrent = 64 }}
"""
WAFER = '[[backends]]\nkind = "wafer"\nname = "wafer"\n'
GPU = '[[backends]]\nkind = "gpu"\nname = "gpu"\n'
SMALL_GPU = '[[backends]]\nkind = "gpu"\nname = "small"\noptions.model = "small-deep"\n'
ACME = TENANT.format(id="acme", key="sk-of-acme-1", rpm=600)
BETA = TENANT.format(id="beta", key="sk-of-beta-1", rpm=600)
FIRST = ACME + WAFER + GPU


def until(holds: Callable[[], bool]) -> None:
    """Returns once it holds."""
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, "it never came to hold"
        time.sleep(0.05)


class Reloading:
    """Holds a gateway and its file."""

    def __init__(
        self,
        folder: Path,
        redis_url: str,
        workers: int,
        config: str,
        trusting: ssl.SSLContext | None = None,
    ) -> None:
        self.path = folder / "lanewise.toml"
        self.path.write_text(config)
        own_url = f"{redis_url}?db=1"  # other tests make tenants of the same names
        self.gateway = GatewayProcess(
            folder,
            *("--config", self.path.name, "--redis", own_url, "--workers", str(workers)),
            trusting=trusting,
        )
        self.workers = workers

    def wait_until_ready(self) -> None:
        self.gateway.wait_until_ready()
        if self.workers > 1:
            until(lambda: self.gateway.metrics().total("lanewise_workers") == self.workers)

    def reload(self, config: str, *, result: str = "ok") -> None:
        """Replaces the file, and returns once the reload is counted."""
        before = self.gateway.metrics().total(RELOADS, result=result)
        done = "by all workers" if self.workers > 1 else "is in force"
        said = {"ok": done, "invalid": "stays as it was"}[result]
        num_said = self.gateway.log.count(said)
        self.path.write_text(config)
        self.gateway.process.send_signal(signal.SIGHUP)
        until(lambda: self.gateway.log.count(said) > num_said)
        # A scrape may share a collection that began before.
        until(lambda: self.gateway.metrics().total(RELOADS, result=result) > before)
        scraped = self.gateway.metrics()
        assert scraped.total(RELOADS, result=result) == before + 1
        assert scraped.total("lanewise_config_reload_failed") == (result == "invalid")

    def ask(self, key: str, model: str = "lanewise-fast") -> str:
        with OpenAI(base_url=self.gateway.base_url, api_key=key, max_retries=0) as client:
            made = client.responses.create(model=model, input="Hi.", max_output_tokens=16)
            return made.output_text


@pytest.fixture(scope="module", params=[1, 2], ids=["one process", "workers"])
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, redis_url: str
) -> Iterator[Reloading]:
    one = Reloading(tmp_path_factory.mktemp("reload"), redis_url, request.param, FIRST)
    try:
        one.wait_until_ready()
        yield one
    finally:
        status = one.gateway.stop()
    assert status == 0, one.gateway.log
    assert "Traceback" not in one.gateway.log, one.gateway.log


@pytest.fixture
def running(served: Reloading) -> Reloading:
    """Gives it with the file that it began with, whatever the test before left there."""
    if served.path.read_text() != FIRST:
        served.reload(FIRST)
    return served


async def test_a_changed_file_is_in_force(running: Reloading) -> None:
    gateway = running.gateway
    served_by = listening_on(gateway)
    async with SocketClient.open(gateway, key="sk-of-acme-1") as connection:
        await connection.create("Write a text of 500 tokens.", model="lanewise-deep")
        await connection.next_type("response.output_text.delta")
        running.reload(ACME + BETA + WAFER + SMALL_GPU)
        terminal = await connection.terminal()
        assert terminal["type"] in ("response.completed", "response.incomplete"), terminal
        assert terminal["response"]["usage"]["output_tokens"] > 0
        assert (await connection.turn("Hi.", max_output_tokens=16))["output"]
    assert running.ask("sk-of-beta-1")
    assert running.ask("sk-of-beta-1", "small-deep")
    with pytest.raises(openai.NotFoundError):
        running.ask("sk-of-acme-1", "lanewise-deep")
    assert listening_on(gateway) == served_by, "nobody was replaced"


async def test_a_key_that_was_removed_ends_its_sessions(running: Reloading) -> None:
    two = FIRST.replace('["sk-of-acme-1"]', '["sk-of-acme-1", "sk-of-acme-2"]')
    running.reload(two)
    async with (
        SocketClient.open(running.gateway, key="sk-of-acme-1") as goes,
        SocketClient.open(running.gateway, key="sk-of-acme-2") as stays,
    ):
        running.reload(two.replace('"sk-of-acme-1", ', ""))
        error = await goes.next_type("error")
        assert error["error"]["code"] == "invalid_api_key"
        assert (await stays.turn("Hi.", max_output_tokens=16))["output"]
    with pytest.raises(openai.AuthenticationError):
        running.ask("sk-of-acme-1")


ADMIN = '[[admin.keys]]\nname = "{name}"\nkey = "sk-of-{name}-1"\n'


def test_an_admin_key_that_was_removed_watches_no_more(running: Reloading) -> None:
    base = FIRST + ADMIN.format(name="ann")
    running.reload(base + ADMIN.format(name="bob"))
    headers = {"authorization": "Bearer sk-of-bob-1"}
    url = f"{running.gateway.admin_url}/admin/events"
    with httpx.stream("GET", url, headers=headers, timeout=WAIT_S) as events:
        lines = events.iter_lines()
        assert next(lines) == "event: snapshot"
        running.reload(base)
        deadline = time.monotonic() + WAIT_S
        for _ in lines:
            assert time.monotonic() < deadline, "it never ended"
    assert httpx.get(url, headers=headers).status_code == 401


def test_a_wrong_file_changes_nothing(running: Reloading) -> None:
    running.reload(BETA + '[[backends]]\nkind = "abacus"\n', result="invalid")
    assert "the configuration stays as it was" in running.gateway.log
    assert "abacus" in running.gateway.log
    running.reload("", result="invalid")  # as an editor leaves it for a moment
    assert "acme would give way to the tenant 'dev'" in running.gateway.log
    assert running.ask("sk-of-acme-1")
    for key in ("sk-of-beta-1", DEVELOPMENT_KEY):
        with pytest.raises(openai.AuthenticationError):
            running.ask(key)
    running.reload(BETA + WAFER + GPU)
    assert running.ask("sk-of-beta-1")


def test_a_worker_that_takes_no_configuration_goes_on_as_it_was(
    tmp_path: Path, redis_url: str
) -> None:
    """Its successor cannot start, at each try, and nothing waits for it."""
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.bytes()
    (tmp_path / "server.pem").write_bytes(issued)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    tls = "[server]\ntls_cert_path = 'server.pem'\ntls_key_path = 'server.pem'\n"
    behind = "lanewise_workers_behind"
    running = Reloading(tmp_path, redis_url, 2, tls + FIRST, trusting=trusting)
    gateway = running.gateway
    try:
        running.wait_until_ready()
        serving = listening_on(gateway)
        started = set(children(gateway.process.pid))
        os.kill(serving[0], signal.SIGSTOP)
        running.path.write_text(tls + BETA + WAFER + GPU)
        gateway.process.send_signal(signal.SIGHUP)
        until(lambda: "is in force" in gateway.log)  # in the other one
        (tmp_path / "server.pem").write_text("no certificate")
        until(lambda: set(children(gateway.process.pid)) != started)
        os.kill(serving[0], signal.SIGCONT)
        until(lambda: "but not by worker" in gateway.log)
        assert listening_on(gateway) == serving
        until(lambda: gateway.metrics().total(behind) == 1)
        assert gateway.metrics().total("lanewise_workers") == 2
        (tmp_path / "server.pem").write_bytes(issued)
        running.reload(tls + BETA + WAFER + GPU)
        assert listening_on(gateway) == serving
        assert gateway.metrics().total(behind) == 0
    finally:
        assert gateway.stop() == 0, gateway.log


def test_what_needs_a_restart_is_named_and_the_rest_applied(running: Reloading) -> None:
    fixed = "[server]\nheartbeat_s = 3\n[store]\nttl_s = 3600\n"
    running.reload(fixed + BETA + WAFER + GPU)
    (named,) = (line for line in running.gateway.log.splitlines() if "keep their value" in line)
    assert json.loads(named)["message"].endswith("server.heartbeat_s, store")
    assert running.ask("sk-of-beta-1")


async def test_a_certificate_is_taken_up(tmp_path: Path, redis_url: str) -> None:
    authority = trustme.CA()

    def issue(ends: datetime) -> str:
        issued = authority.issue_cert("127.0.0.1", not_after=ends)
        issued.private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
        return ssl.PEM_cert_to_DER_cert(issued.cert_chain_pems[0].bytes().decode()).hex()

    soon = datetime.now(UTC).replace(microsecond=0) + timedelta(days=3)
    later = soon + timedelta(days=30)
    first = issue(soon)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    tls = "[server]\ntls_cert_path = 'server.pem'\ntls_key_path = 'server.pem'\n"
    running = Reloading(tmp_path, redis_url, 2, tls + FIRST, trusting=trusting)
    try:
        running.wait_until_ready()
        address = ("127.0.0.1", running.gateway.port)

        def shown() -> str:
            return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate(address)).hex()

        def said_to_end() -> float:
            metric = "lanewise_certificate_expiry_timestamp_seconds"
            return running.gateway.metrics().total(metric)

        assert shown() == first
        assert said_to_end() == soon.timestamp()
        async with SocketClient.open(running.gateway, key="sk-of-acme-1") as connection:
            second = issue(later)
            running.reload(tls + FIRST)
            assert {shown() for _ in range(16)} == {second}
            assert said_to_end() == later.timestamp()
            assert (await connection.turn("Hi.", max_output_tokens=16))["output"]
        (tmp_path / "server.pem").write_text("no certificate")
        running.reload(tls + FIRST, result="invalid")
        assert shown() == second
    finally:
        assert running.gateway.stop() == 0, running.gateway.log
