"""Tests metrics, schema and admin beside a public address: at an address of their own."""

import contextlib
import json
import socket
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import websockets

from tests.e2e.gateway_command import lanewise
from tests.e2e.gateway_process import GatewayProcess
from tests.ports import free_port

KEY, ADMIN_KEY = "sk-8c1f0e7ad93b4256", "sk-31bd0f77c5a94e28"
SECRETS = {"LANEWISE_API_KEY": KEY, "LANEWISE_ADMIN_KEY": ADMIN_KEY}


def fetched(url: str, key: str = ADMIN_KEY) -> tuple[int, str]:
    request = urllib.request.Request(url, headers={"authorization": f"Bearer {key}"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def wait_until_ready(url: str) -> None:
    """Waits for a second worker that may still be starting; the test's own limit bounds it."""
    while fetched(f"{url}/readyz")[0] != 200:
        time.sleep(0.05)


@pytest.mark.parametrize("workers", [1, 2])
async def test_each_address_serves_its_own(tmp_path: Path, redis_url: str, workers: int) -> None:
    admin_port = free_port()
    gateway = GatewayProcess(
        tmp_path,
        *("--host", "0.0.0.0", "--admin-address", f"127.0.0.1:{admin_port}"),
        *("--workers", str(workers), "--redis", redis_url),
        admin_port=admin_port,
        environ=SECRETS,
    )
    try:
        gateway.wait_until_ready()
        wait_for_workers(gateway, workers)
        for path in ("metrics", "schema", "admin/health", "admin/", "//metrics", "metrics/"):
            status, body = fetched(f"{gateway.url}/{path}")
            assert status == 404, path
            message = json.loads(body)["error"]["message"]
            assert "admin address" in message
            assert str(admin_port) not in message
        assert fetched(f"{gateway.url}/v1/models", KEY)[0] == 200
        status, body = fetched(f"{gateway.admin_url}/v1/models", KEY)
        assert (status, "main address" in body) == (404, True)
        with pytest.raises(websockets.InvalidStatus) as refused:
            await websockets.connect(f"ws://127.0.0.1:{admin_port}/v1/responses")
        assert refused.value.response.status_code == 404
        for url in (gateway.url, gateway.admin_url):
            assert fetched(f"{url}/healthz")[0] == 200
            wait_until_ready(url)
        assert fetched(f"{gateway.admin_url}/schema")[0] == 200
        check_console(gateway)
        if workers > 1:
            assert gateway.metrics().total("lanewise_workers") == workers
    finally:
        assert gateway.stop() == 0, gateway.log
    assert (
        f"Console: {gateway.admin_url}/console/   Metrics: {gateway.admin_url}/metrics"
        in gateway.log
    )


def wait_for_workers(gateway: GatewayProcess, workers: int) -> None:
    """Returns once all answer: the first one may serve before the others."""
    while json.loads(fetched(f"{gateway.admin_url}/admin/health")[1])["workers"] != workers:
        time.sleep(0.05)


def check_console(gateway: GatewayProcess) -> None:
    """Checks the console on both; the admin address has what needs its key, and a tenants' API."""
    for url, is_admin in ((gateway.url, False), (gateway.admin_url, True)):
        assert "<title>Lanewise console" in fetched(f"{url}/")[1]
        site = json.loads(fetched(f"{url}/console/site.json")[1])
        assert site["serves_admin"] is is_admin
        assert "development_key" not in site
        status, models = fetched(f"{url}{site['api']}/models", KEY)
        assert (status, '"auto"' in models) == (200, True)
    assert fetched(f"{gateway.url}/console/v1/models", KEY)[0] == 404
    assert fetched(f"{gateway.admin_url}/console/v1/models", "sk-nobody")[0] == 401


def port_before_a_free_one() -> int:
    """Returns a free port; the next one is free, too."""
    for _ in range(50):
        port = free_port()
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port + 1)):
            return port
    raise AssertionError("no two free ports side by side")


def test_the_next_port_by_default(tmp_path: Path, redis_url: str) -> None:
    port = port_before_a_free_one()
    gateway = GatewayProcess(
        tmp_path,
        *("--host", "0.0.0.0", "--redis", redis_url),
        port=port,
        admin_port=port + 1,
        environ=SECRETS,
    )
    try:
        gateway.wait_until_ready()
        assert fetched(f"{gateway.url}/metrics")[0] == 404
    finally:
        assert gateway.stop() == 0, gateway.log


def test_an_admin_address_that_is_taken_is_told(gateway: GatewayProcess, tmp_path: Path) -> None:
    taken = f"127.0.0.1:{gateway.port}"
    refused = lanewise("serve", "--port", "0", "--admin-address", taken, folder=tmp_path)
    assert refused.returncode == 2
    assert f"server.admin_address: cannot listen on {taken}" in refused.stderr
