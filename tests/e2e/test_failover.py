"""Tests two upstreams of one group behind a gateway, of which one fails whatever it is asked."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.e2e.gateway_process import CONFIG, DEVELOPMENT_KEY, GatewayProcess, wait_until_at_rest
from tests.e2e.socket_client import SocketClient, text_of
from tests.integration.fault_server import FaultServer

KEY_ENV = "LANEWISE_TEST_UPSTREAM_KEY"
BACKEND = """
[[backends]]
kind = "upstream"
name = "{name}"
[backends.options]
group = "fast"
model = "shared"
upstream_model = "lanewise-fast"
base_url = "http://127.0.0.1:{port}/v1"
key_env = "{key_env}"
probe_interval_s = 0.2
slow_start_s = 0
retry_pause_s = 0.01
{more}
"""
# The living one's sockets are too old at once, so each turn has one of its own.
LIVING = 'protocol = "responses-ws"\nsocket_max_age_s = 0.001'
FAILING = 'protocol = "chat"\neject_after = 1000'


@pytest.fixture
async def failing() -> AsyncIterator[FaultServer]:
    async with FaultServer.running() as server:
        server.plan = ["status 500"]
        yield server


@pytest.fixture
async def front(
    tmp_path: Path, gateway: GatewayProcess, redis_url: str, failing: FaultServer
) -> AsyncIterator[GatewayProcess]:
    config = tmp_path / "front.toml"
    rows = (("a-failing", failing.http_port, FAILING), ("b-living", gateway.port, LIVING))
    backends = [
        BACKEND.format(name=name, port=port, key_env=KEY_ENV, more=more)
        for name, port, more in rows
    ]
    config.write_text(CONFIG + "".join(backends))
    arguments = ("--config", str(config), "--redis", redis_url)
    process = GatewayProcess(tmp_path, *arguments, environ={KEY_ENV: DEVELOPMENT_KEY})
    await asyncio.to_thread(_wait_for, process, len(rows))
    yield process
    await asyncio.to_thread(wait_until_at_rest, process)
    assert await asyncio.to_thread(process.stop) == 0, process.log
    assert "Traceback" not in process.log, process.log


def _wait_for(process: GatewayProcess, num_backends: int) -> None:
    process.wait_until_ready()
    deadline = time.monotonic() + 60.0
    while process.metrics().total("lanewise_backend_up") < num_backends:
        assert time.monotonic() < deadline, process.log
        time.sleep(0.05)


async def test_the_client_gets_its_answers_over_one_socket(
    gateway: GatewayProcess, front: GatewayProcess, failing: FaultServer
) -> None:
    """The first turn moves to the living upstream and the conversation stays there.

    Behind the client's one socket each turn has an upstream socket of its own.
    """
    num_sockets = gateway.metrics().total("lanewise_ws_opened_total")
    async with SocketClient.open(front) as connection:
        first = await connection.turn("Say hello.", model="shared", max_output_tokens=16)
        routing = first["routing"]
        (moved,) = routing["failovers"]
        assert (moved["from"], moved["to"]) == ("a-failing", "b-living")
        assert routing["answered_by"] == "b-living"
        assert list(routing["usage"]) == ["b-living"]
        num_asked = failing.num_requests
        assert num_asked == 3, "two retries of its own, before another was asked"
        last = first
        for _ in range(2):
            last = await connection.turn(
                "Go on.",
                model="shared",
                previous_response_id=last["id"],
                max_output_tokens=16,
            )
            assert text_of(last)
            assert last["routing"]["answered_by"] == "b-living"
            assert "failovers" not in last["routing"]
    assert failing.num_requests == num_asked
    assert gateway.metrics().total("lanewise_ws_opened_total") >= num_sockets + 2
    metrics = await asyncio.to_thread(front.metrics)
    assert metrics.total("lanewise_failovers_total") == 1
    assert metrics.total("lanewise_backend_errors_total", backend="a-failing") == 1


@pytest.mark.parametrize("plan", ["status 401", "status 302", "status 429"])
async def test_another_backend_answers_where_one_refuses_the_gateway(
    front: GatewayProcess, failing: FaultServer, plan: str
) -> None:
    """A revoked key, a redirect or a limit is the one server's; it is asked once."""
    failing.plan = [plan]
    async with SocketClient.open(front) as connection:
        answer = await connection.turn("Say hello.", model="shared", max_output_tokens=16)
    assert text_of(answer)
    (moved,) = answer["routing"]["failovers"]
    assert (moved["from"], moved["to"]) == ("a-failing", "b-living")
    assert failing.num_requests == 1
