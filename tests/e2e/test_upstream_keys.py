"""Tests several keys of one upstream: used in turn but for refused ones, and reread on SIGHUP."""

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from openai import OpenAI

from tests.e2e.admin_api import ADMIN_KEY, ask
from tests.e2e.fronts import wait_for_backend
from tests.e2e.gateway_process import DEVELOPMENT_KEY, GatewayProcess

TENANT = """
[[tenants]]
id = "{id}"
keys = ["sk-of-{id}-1"]
limits.fast = {{ requests_per_min = 6000, tokens_per_min = 2000000, max_concurrent = 64 }}
"""
FRONT = """
[[backends]]
kind = "upstream"
name = "behind"
options.model = "behind"
options.upstream_model = "lanewise-fast"
options.group = "fast"
options.base_url = "http://127.0.0.1:{port}/v1"
options.protocol = "{protocol}"
options.key_file = "{path}"
options.max_idle_sockets = 1
options.chains = false
"""
WAIT_S = 60.0  # bounds a hang


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, "it never came to hold"
        time.sleep(0.05)


@pytest.mark.parametrize("protocol", ["chat", "responses-ws"])
def test_keys_of_a_file(tmp_path: Path, redis_url: str, protocol: str) -> None:
    ids = ("one", "two", "three")
    (tmp_path / "behind.toml").write_text("".join(TENANT.format(id=each) for each in ids))
    keys = tmp_path / "keys"
    keys.write_text("# the first is refused\nsk-of-nobody\nsk-of-one-1\nsk-of-two-1\n")
    arguments = ("--config", "behind.toml", "--redis", redis_url)
    behind = GatewayProcess(tmp_path, *arguments, environ={"LANEWISE_ADMIN_KEY": ADMIN_KEY})
    front: GatewayProcess | None = None
    try:
        behind.wait_until_ready()
        config = FRONT.format(port=behind.port, protocol=protocol, path=keys)
        (tmp_path / "front.toml").write_text(config)
        front = GatewayProcess(tmp_path, "--config", "front.toml", "--redis", redis_url)
        front.wait_until_ready()
        wait_for_backend(front, "behind", up=True)
        with OpenAI(base_url=front.base_url, api_key=DEVELOPMENT_KEY, max_retries=0) as client:

            def run(num_tasks: int) -> list[str]:
                """Runs tasks; returns whose keys were shown, in order."""
                for _ in range(num_tasks):
                    client.responses.create(model="behind", input="Hi.")
                _, rows = ask(behind, "GET", f"/admin/decisions?limit={num_tasks}")
                return [row["tenant"] for row in reversed(rows)]

            shown = run(4)
            if protocol == "chat":  # a socket keeps the key that it was opened with
                assert sorted(shown) == ["one", "one", "two", "two"]
            assert set(shown) <= {"one", "two"}
            keys.write_text("sk-of-three-1\n")
            front.process.send_signal(signal.SIGHUP)
            until(lambda: "is in force" in front.log)
            until(lambda: run(1) == ["three"])
            keys.unlink()
            front.process.send_signal(signal.SIGHUP)
            until(lambda: "stays as it was" in front.log)
            assert run(1) == ["three"], "a file that is gone changes nothing"
    finally:
        statuses = [each.stop() for each in (front, behind) if each is not None]
    assert not any(statuses)
    assert "sk-of-" not in front.log
