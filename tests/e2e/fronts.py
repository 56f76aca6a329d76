"""Puts gateways before other gateways, which are their upstreams."""

import time
from collections.abc import Iterator
from pathlib import Path

from tests.e2e.gateway_process import (
    CONFIG,
    DEVELOPMENT_KEY,
    GatewayProcess,
    wait_until_at_rest,
)

KEY_ENV = "LANEWISE_TEST_UPSTREAM_KEY"

UPSTREAM = """
[[backends]]
kind = "upstream"
name = "{name}"
[backends.options]
group = "{group}"
model = "{name}"
upstream_model = "lanewise-{group}"
base_url = "http://127.0.0.1:{port}/v1"
key_env = "{key_env}"
accepts_images = true
probe_interval_s = 0.2
slow_start_s = 0
{more}
"""


def served(
    folder: Path, redis_url: str, backends: str, names: list[str]
) -> Iterator[GatewayProcess]:
    config = folder / "front.toml"
    config.write_text(CONFIG + backends)
    environ = {KEY_ENV: DEVELOPMENT_KEY}
    arguments = ("--config", str(config), "--redis", redis_url)
    process = GatewayProcess(folder, *arguments, environ=environ)
    process.wait_until_ready()
    for name in names:
        wait_for_backend(process, name, up=True)
    yield process
    wait_until_at_rest(process)
    assert process.stop() == 0, process.log
    assert "Traceback" not in process.log, process.log
    logged = [line for line in process.log.splitlines() if line.startswith("{")]  # JSON
    assert any("upstream" in line for line in logged)
    assert not any(DEVELOPMENT_KEY in line for line in logged), "only the greeting says it"


def wait_for_backend(gateway: GatewayProcess, name: str, *, up: bool) -> None:
    deadline = time.monotonic() + 60.0
    while gateway.metrics().total("lanewise_backend_up", backend=name) != up:
        assert time.monotonic() < deadline, gateway.log
        time.sleep(0.05)
