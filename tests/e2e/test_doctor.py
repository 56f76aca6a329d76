"""Tests `lanewise doctor` on real set-ups: a gateway, a Redis, engines and a certificate."""

import contextlib
import json
import os
import select
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
import trustme

from tests.e2e.gateway_process import CONFIG, DEVELOPMENT_KEY, LANEWISE, GatewayProcess, served
from tests.ports import free_port

TIMEOUT_S = 120.0  # bounds a hang
UPSTREAM = """
[[backends]]
kind = "upstream"
name = "theirs"
[backends.options]
group = "deep"
model = "theirs"
upstream_model = "{model}"
base_url = "{url}/v1"
protocol = "responses"
key_env = "THEIR_KEY"
"""


def doctor(
    *arguments: str, environ: dict[str, str] | None = None
) -> tuple[int, dict[str, dict[str, Any]]]:
    """Returns the exit status, and the findings by their checks."""
    told = subprocess.run(
        [str(LANEWISE), "doctor", "--json", *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env=None if environ is None else {**os.environ, **environ},
    )
    assert told.stderr == "", told.stderr
    answer = json.loads(told.stdout)
    assert answer["ok"] == (told.returncode == 0)
    return told.returncode, {one["check"]: one for one in answer["findings"]}


def levels(findings: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {check: one["level"] for check, one in findings.items()}


@pytest.fixture
def config(tmp_path: Path, gateway: GatewayProcess, redis_url: str) -> Path:
    """Returns the configuration of the gateway that runs."""
    path = tmp_path / "lanewise.toml"
    path.write_text(
        f'[server]\nport = {gateway.port}\n[redis]\nurl = "{redis_url}"\nbudget_ms = 5000\n{CONFIG}'
    )
    return path


def test_a_set_up_in_order(config: Path, redis_client: "redis.Redis[bytes]") -> None:
    redis_client.config_set("maxmemory", 256 << 20)
    redis_client.config_set("maxmemory-policy", "volatile-lru")
    try:
        status, found = doctor("--config", str(config), "--idle-s", "0.1")
    finally:
        redis_client.config_set("maxmemory", 0)
    assert status == 0, found
    assert {check for check, level in levels(found).items() if level != "ok"} <= {
        "file descriptors"
    }, found
    assert {"gateway", "key", "redis version", "clock of Redis", "engine wafer"} <= found.keys()
    assert found["websocket"]["text"] == "outlives 0.1 s of silence"


def test_a_redis_that_evicts_pools(config: Path, redis_client: "redis.Redis[bytes]") -> None:
    redis_client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        status, found = doctor("--config", str(config), "--no-engines")
    finally:
        redis_client.config_set("maxmemory-policy", "noeviction")
    assert status == 1
    assert found["redis eviction"]["level"] == "fail"
    assert "volatile-lru" in found["redis eviction"]["advice"]
    assert "engine wafer" not in found


def test_what_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "lanewise.toml"
    url = f"http://127.0.0.1:{free_port()}"
    path.write_text(
        f'[server]\nport = {free_port()}\n[redis]\nurl = "redis://127.0.0.1:{free_port()}"\n'
        + UPSTREAM.format(model="any", url=url)
    )
    status, found = doctor("--config", str(path), environ={"THEIR_KEY": "sk-theirs"})
    assert status == 1
    bad = {check for check, level in levels(found).items() if level == "fail"}
    assert bad == {"gateway", "redis", "engine theirs"}
    assert all(found[check]["advice"] for check in bad)


@pytest.mark.parametrize(
    ("model", "key", "advice"),
    [
        ("lanewise-fast", DEVELOPMENT_KEY, None),
        ("gone", DEVELOPMENT_KEY, "is upstream_model"),
        ("lanewise-fast", "sk-wrong", "is the key in key_env valid"),
        ("lanewise-fast", "", "export it"),
    ],
)
def test_an_engine_is_asked_once(
    gateway: GatewayProcess, tmp_path: Path, model: str, key: str, advice: str | None
) -> None:
    path = tmp_path / "lanewise.toml"
    path.write_text(UPSTREAM.format(model=model, url=gateway.url))
    before = gateway.metrics().total("lanewise_tasks_total")
    _, found = doctor("--config", str(path), "--url", gateway.url, environ={"THEIR_KEY": key})
    finding = found["engine theirs"]
    if advice is None:
        assert finding["level"] == "ok", finding
    else:
        assert finding["level"] == "fail"
        assert finding["advice"].startswith(advice), finding
    assert gateway.metrics().total("lanewise_tasks_total") - before <= 2, "and the stream's"


def test_a_wrong_key_and_a_wrong_configuration(gateway: GatewayProcess, tmp_path: Path) -> None:
    arguments = ("--url", f"127.0.0.1:{gateway.port}", "--no-engines")
    status, found = doctor(*arguments, "--key", "sk-wrong")
    assert status == 1
    assert found["key"]["level"] == "fail"
    path = tmp_path / "lanewise.toml"
    path.write_text("[server]\nprot = 80")
    status, found = doctor("--config", str(path))
    assert status == 1
    assert "did you mean 'port'" in found["configuration"]["text"]


@pytest.mark.parametrize(("days", "level"), [(60, "ok"), (5, "warn"), (-3, "fail")])
def test_a_certificate_is_judged_before_it_expires(tmp_path: Path, days: int, level: str) -> None:
    issued = trustme.CA().issue_cert(
        "127.0.0.1", not_after=datetime.now(UTC) + timedelta(days=days, hours=1)
    )
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    issued.private_key_pem.write_to_path(key)
    cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    path = tmp_path / "lanewise.toml"
    path.write_text(
        f'[server]\nport = {free_port()}\ntls_cert_path = "{cert}"\ntls_key_path = "{key}"\n'
    )
    _, found = doctor("--config", str(path), "--no-engines")
    assert found[f"certificate of {cert}"]["level"] == level, found


@contextlib.contextmanager
def proxy(serve: Callable[[socket.socket, socket.socket], None], port: int) -> Iterator[str]:
    """Gives a proxy in front of a gateway: `serve` has each connection, and one of its own."""
    listener = socket.create_server(("127.0.0.1", 0))

    def connected(client: socket.socket) -> None:
        with (
            contextlib.suppress(OSError),
            client,
            socket.create_connection(("127.0.0.1", port)) as upstream,
        ):
            serve(client, upstream)

    def accept() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=connected, args=(client,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def gather(client: socket.socket, upstream: socket.socket) -> None:
    """Passes an answer on once it is whole, and refuses sockets."""
    head = client.recv(65_536)
    if b"upgrade: websocket" in head.lower():
        client.sendall(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
        return

    def forward() -> None:
        with contextlib.suppress(OSError):
            while body := client.recv(65_536):
                upstream.sendall(body)

    upstream.sendall(head)
    threading.Thread(target=forward, daemon=True).start()
    client.sendall(b"".join(iter(lambda: upstream.recv(65_536), b"")))


def cut_silence(client: socket.socket, upstream: socket.socket) -> None:
    """Passes everything on, and cuts what is silent for a third of a second."""
    while ready := select.select([client, upstream], [], [], 0.3)[0]:
        for one in ready:
            arrived = one.recv(65_536)
            if not arrived:
                return
            (upstream if one is client else client).sendall(arrived)


def test_a_proxy_that_gathers_streams_and_refuses_sockets(gateway: GatewayProcess) -> None:
    with proxy(gather, gateway.port) as url:
        status, found = doctor("--url", url, "--model", "lanewise-deep")
    assert status == 1
    assert found["streaming"]["level"] == "fail", found
    assert "proxy_buffering" in found["streaming"]["advice"]
    assert found["websocket"]["level"] == "fail"
    assert "Upgrade" in found["websocket"]["advice"]


def test_a_gateway_that_serves_tls(tmp_path: Path, redis_url: str) -> None:
    """Its certificate is trusted by its file, and clients that do not have that are told."""
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    pem = tmp_path / "server.pem"
    issued.private_key_and_cert_chain_pem.write_to_path(pem)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    port = free_port()
    path = tmp_path / "lanewise.toml"
    path.write_text(
        f'[server]\nport = {port}\ntls_cert_path = "{pem}"\ntls_key_path = "{pem}"\n'
        f'[redis]\nurl = "{redis_url}"\n'
    )
    with served(tmp_path, "--config", str(path), port=port, trusting=trusting) as gateway:
        _, found = doctor("--config", str(path), "--no-engines")
        _, by_clients = doctor("--config", str(path), "--no-engines", "--url", gateway.url)
    for check in (f"certificate of {pem}", f"certificate of {gateway.url}", "gateway", "websocket"):
        assert found[check]["level"] == "ok", found
    untrusted = by_clients[f"certificate of {gateway.url}"]
    assert untrusted["level"] == "fail"
    assert untrusted["advice"] == "do clients trust it?"


def test_a_proxy_that_cuts_silent_sockets(gateway: GatewayProcess) -> None:
    with proxy(cut_silence, gateway.port) as url:
        status, found = doctor("--url", url, "--no-engines", "--idle-s", "2")
    assert status == 1
    assert found["websocket"]["level"] == "fail"
    assert "proxy_read_timeout" in found["websocket"]["advice"]
