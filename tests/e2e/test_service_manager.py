"""Tests what systemd is told: ready, reading the configuration again, ready, stopping."""

import signal
import socket
from pathlib import Path

import pytest

from tests.e2e.gateway_process import CONFIG, GatewayProcess

WAIT_S = 60.0  # bounds a hang


@pytest.mark.parametrize("arguments", [(), ("--workers", "2")])
def test_systemd_is_told_how_it_is(
    arguments: tuple[str, ...], folder: Path, tmp_path: Path, redis_url: str
) -> None:
    path = folder / f"notify-{len(arguments)}"
    config = tmp_path / "lanewise.toml"
    config.write_text(CONFIG)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path))
        manager.settimeout(WAIT_S)

        def told() -> str:
            return manager.recv(4096).decode()

        process = GatewayProcess(
            tmp_path,
            *("--config", str(config), "--redis", redis_url, *arguments),
            environ={"NOTIFY_SOCKET": str(path)},
        )
        try:
            assert told() == "READY=1"
            process.process.send_signal(signal.SIGHUP)
            reloading, _, at = told().partition("\nMONOTONIC_USEC=")
            assert reloading == "RELOADING=1"
            assert int(at) > 0
            assert told() == "READY=1"
            process.process.send_signal(signal.SIGTERM)
            assert told() == "STOPPING=1"
        finally:
            assert process.stop() == 0, process.log
