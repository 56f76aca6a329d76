"""Tests the process: how it starts, what it refuses, how it stops."""

import asyncio
import json
import os
import signal
import time
from pathlib import Path

import httpx
import pytest
import websockets
from redis.asyncio import Redis

from gateway.store.ledger import STREAM
from tests.e2e.gateway_command import lanewise
from tests.e2e.gateway_process import DEVELOPMENT_KEY, LANEWISE, GatewayProcess, redis_binary
from tests.e2e.socket_client import SocketClient


def command_of(pid: int) -> str:
    """Returns its command; empty when there is no such process."""
    path = Path(f"/proc/{pid}/cmdline")
    return path.read_text() if path.exists() else ""


def children(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in path.read_text().split()]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads /proc")
async def test_sigterm_ends_everything_cleanly(tmp_path: Path, short_path: Path) -> None:
    """It has the defaults of `make run`: an embedded Redis, in a folder of its own."""
    # The binary of the test's own Redis, so that the system's need not be there.
    path = f"{Path(redis_binary()).parent}:{os.environ['PATH']}"
    gateway = GatewayProcess(tmp_path, environ={"TMPDIR": str(short_path), "PATH": path})
    try:
        gateway.wait_until_ready()
        assert f"http://127.0.0.1:{gateway.port}" in gateway.log
        assert DEVELOPMENT_KEY in gateway.log
        (redis,) = children(gateway.process.pid)
        assert "redis" in command_of(redis)
        async with SocketClient.open(gateway) as connection:
            assert (await connection.turn("Hi.", max_output_tokens=16))["output"]
            await connection.create("Write a very long text.", max_output_tokens=400)
            await connection.next_type("response.output_text.delta")
            gateway.process.terminate()
            terminal = await connection.terminal()  # what runs may end
            assert terminal["response"]["usage"]["output_tokens"] > 0
            with pytest.raises(websockets.ConnectionClosed):
                await connection.receive()
            assert connection.socket.close_code in (1001, 1012)
    finally:
        status = gateway.stop()
    assert status == 0, gateway.log
    assert not command_of(redis), "the embedded Redis went with it"
    assert os.listdir(short_path) == [], "and so did its folder"
    assert "Traceback" not in gateway.log, gateway.log


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads /proc")
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_start_that_is_stopped_leaves_nothing(
    tmp_path: Path, short_path: Path, workers: str
) -> None:
    path = f"{Path(redis_binary()).parent}:{os.environ['PATH']}"
    environ = {"TMPDIR": str(short_path), "PATH": path}
    gateway = GatewayProcess(tmp_path, "--workers", workers, environ=environ)
    deadline = time.monotonic() + 60.0
    try:
        while not list(short_path.iterdir()):
            assert time.monotonic() < deadline, gateway.log
            time.sleep(0.001)
    finally:
        status = gateway.stop()
    assert status == 0, gateway.log
    assert list(short_path.iterdir()) == []
    assert "Traceback" not in gateway.log, gateway.log


@pytest.mark.parametrize(
    "numbers", [(signal.SIGTERM,), (signal.SIGINT,), (signal.SIGHUP, signal.SIGTERM)]
)
def test_a_start_is_stopped_before_the_server_is_imported(
    tmp_path: Path, numbers: tuple[int, ...]
) -> None:
    config = tmp_path / "lanewise.toml"
    os.mkfifo(config)
    gateway = GatewayProcess(tmp_path, "--config", str(config))
    with config.open("w"):  # returns once it reads its configuration, which never ends
        for number in numbers:
            gateway.process.send_signal(number)
        assert gateway.process.wait(60) == 0
    assert gateway.log == ""


def test_being_asked_again_cuts_nothing_off(tmp_path: Path) -> None:
    """SIGTERM upon SIGTERM shortens the drain; what was started is still taken down."""
    gateway = GatewayProcess(tmp_path)
    gateway.wait_until_ready()
    (redis,) = children(gateway.process.pid)
    deadline_s = time.monotonic() + 60
    while gateway.process.poll() is None and time.monotonic() < deadline_s:
        gateway.process.terminate()
        time.sleep(0.002)
    assert gateway.stop() == 0, gateway.log
    assert not command_of(redis)


async def test_what_outlasts_the_drain_is_told_and_settled(tmp_path: Path, redis_url: str) -> None:
    (tmp_path / "lanewise.toml").write_text("[server]\ndrain_timeout_s = 0.2\n")
    gateway = GatewayProcess(tmp_path, "--config", "lanewise.toml", "--redis", redis_url)
    try:
        gateway.wait_until_ready()
        async with SocketClient.open(gateway) as connection:
            await connection.create("Write a text of 2,000 tokens.", model="lanewise-deep")
            await connection.next_type("response.output_text.delta")
            gateway.process.terminate()
            terminal = await connection.terminal()
            assert terminal["type"] == "response.failed"
            assert terminal["response"]["error"]["code"] == "server_error"
            assert "stopped" in terminal["response"]["error"]["message"]
            assert terminal["response"]["usage"]["output_tokens"] > 0
            await connection.socket.wait_closed()
            assert connection.socket.close_code == 1012
    finally:
        assert gateway.stop() == 0, gateway.log
    assert "Traceback" not in gateway.log, gateway.log


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_what_a_second_signal_cuts_off_is_settled(
    tmp_path: Path, redis_url: str, workers: str
) -> None:
    gateway = GatewayProcess(tmp_path, "--redis", redis_url, "--workers", workers)
    try:
        gateway.wait_until_ready()
        headers = {"authorization": f"Bearer {DEVELOPMENT_KEY}"}
        body = {"model": "lanewise-deep", "input": "Write a text of 2,000 tokens.", "stream": True}
        async with (
            httpx.AsyncClient(base_url=gateway.base_url, headers=headers) as client,
            client.stream("POST", "/responses", json=body) as answer,
            Redis.from_url(redis_url, decode_responses=True) as books,
        ):
            lines = answer.aiter_lines()
            event = await anext(line async for line in lines if line.startswith("data: "))
            response_id = json.loads(event[6:])["response"]["id"]
            await anext(line async for line in lines if "output_text.delta" in line)

            async def num_leases() -> int:
                keys = [key async for key in books.scan_iter("*:lease")]
                leases = [each for key in keys for each in await books.zrange(key, 0, -1)]
                return sum(response_id in each for each in leases)

            assert await num_leases() == 1
            for _ in range(2):
                gateway.process.terminate()
                await asyncio.sleep(0.1)
            await asyncio.to_thread(gateway.process.wait)
            assert await num_leases() == 0
            entries = [fields["e"] for _, fields in await books.xrange(STREAM)]
            assert sum(response_id in entry for entry in entries) == 1
    finally:
        assert gateway.stop() == 0, gateway.log
    assert "Traceback" not in gateway.log, gateway.log


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com"])
def test_the_development_key_never_meets_a_public_address(tmp_path: Path, host: str) -> None:
    refused = lanewise("serve", "--host", host, "--port", "0", folder=tmp_path)
    assert refused.returncode == 2
    assert "development key" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ("[server]\nprot = 1", "prot"),
        ("[server]\nport = 'x'", "port"),
        ("[server\n", "configuration"),
        ("[[backends]]\nkind = 'abacus'", "abacus"),
        ("[redis]\nurl = 'redis://localhost?banana=1'", "banana"),
        ("[[tenants]]\nid = 'A B'\nkeys = ['sk-12345678']\nlimits = {}", "A B"),
    ],
)
def test_a_configuration_that_is_wrong_is_named(
    tmp_path: Path, config: str, complaint: str
) -> None:
    refused = lanewise("serve", config=config, folder=tmp_path)
    assert refused.returncode == 2
    assert complaint in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize("workers", ["1", "2"])
def test_nobody_has_to_read_the_greeting(tmp_path: Path, workers: str) -> None:
    """A full disk stops no gateway that comes up again."""
    full = ("sh", "-c", 'exec "$0" "$@" > /dev/full', str(LANEWISE))
    gateway = GatewayProcess(tmp_path, "--workers", workers, program=full)
    try:
        gateway.wait_until_ready()
        deadline = time.monotonic() + 60.0
        while "No space left on device" not in gateway.log:  # once all workers serve
            assert gateway.process.poll() is None, gateway.log
            assert time.monotonic() < deadline, gateway.log
            time.sleep(0.05)
    finally:
        status = gateway.stop()
    assert status == 0, gateway.log
    assert "Traceback" not in gateway.log, gateway.log


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_limit_of_too_few_files_is_named(tmp_path: Path, workers: str) -> None:
    few = ("sh", "-c", 'ulimit -n 16 && exec "$0" "$@"', str(LANEWISE))
    gateway = GatewayProcess(tmp_path, "--workers", workers, program=few)
    assert gateway.process.wait(60) == 2
    expected = "may have 16 file descriptors open at once, and needs 64 at least: raise the limit"
    assert expected in gateway.log
    assert gateway.log.count("\n") == 1, gateway.log


def test_a_low_limit_that_may_be_raised_is_raised(tmp_path: Path) -> None:
    low = ("sh", "-c", 'ulimit -S -n 16 && exec "$0" "$@"', str(LANEWISE))
    gateway = GatewayProcess(tmp_path, program=low)
    try:
        gateway.wait_until_ready()
    finally:
        assert gateway.stop() == 0, gateway.log


def test_a_port_that_is_taken_is_told(gateway: GatewayProcess, tmp_path: Path) -> None:
    second = lanewise("serve", "--port", str(gateway.port), folder=tmp_path)
    assert second.returncode != 0
    assert str(gateway.port) in second.stderr
    assert "Address already in use; stop what listens there" in second.stderr
    assert "Address(" not in second.stderr
    assert "Traceback" not in second.stderr


def test_route_explains_without_running(tmp_path: Path) -> None:
    told = lanewise("route", "Rename x to y.", folder=tmp_path)
    assert told.returncode == 0, told.stderr
    assert "fast" in told.stdout
    deep = lanewise(
        "route", "Find the deadlock in our lock manager and prove the fix.", folder=tmp_path
    )
    assert "deep" in deep.stdout


async def test_a_connection_that_is_too_old_is_told_and_closed(
    folder: Path, redis_url: str, tmp_path: Path
) -> None:
    config = tmp_path / "lanewise.toml"
    config.write_text(
        "[server]\nconnection_max_age_s = 0.5\nallowed_origins = ['http://ok.test']\n"
    )
    gateway = GatewayProcess(folder, "--config", str(config), "--redis", redis_url)
    try:
        await asyncio.to_thread(gateway.wait_until_ready)
        async with SocketClient.open(gateway) as connection:
            await connection.create("Write a guide of 1,500 tokens.")  # outlives the connection
            terminal = await connection.terminal()
            assert terminal["response"]["status"] == "completed", "what runs may end"
            error = await connection.error()
            assert error["error"]["code"] == "websocket_connection_limit_reached"
            assert "stream_id" not in error
            await connection.socket.wait_closed()
            assert connection.socket.close_code == 1012
        for origin, status in (("http://evil.test", 403), ("http://ok.test", 101)):
            assert await handshake_status(gateway, origin) == status
    finally:
        assert gateway.stop() == 0


async def handshake_status(gateway: GatewayProcess, origin: str) -> int:
    """Returns what a browser's page from there gets."""
    headers = {"authorization": f"Bearer {DEVELOPMENT_KEY}", "origin": origin}
    try:
        async with websockets.connect(gateway.socket_url, additional_headers=headers) as socket:
            assert socket.response is not None
            return socket.response.status_code
    except websockets.InvalidStatus as refused:
        return refused.response.status_code
