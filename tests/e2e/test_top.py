"""Tests `lanewise top` on a terminal and in a pipe, against a real gateway."""

import json
import signal
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from gateway.cli.main import main
from tests.e2e.admin_api import run_task
from tests.e2e.gateway_process import LANEWISE, GatewayProcess, served
from tests.e2e.terminal_screen import Screen


def test_it_shows_what_happens_until_ctrl_c(tmp_path: Path) -> None:
    with served(tmp_path) as gateway, closing(Screen("top", "--url", gateway.admin_url)) as screen:
        screen.wait_for("Nothing is wrong|does not answer")
        screen.wait_for(r"wafer +fast +up")
        made = run_task(gateway)
        screen.wait_for(made[:16])
        screen.process.send_signal(signal.SIGINT)
        assert screen.wait_for_end() == 130


def test_in_a_pipe_it_prints_once(gateway: GatewayProcess) -> None:
    command = [str(LANEWISE), "top", "--url", gateway.admin_url]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert "ENGINE" in told.stdout
    told = subprocess.run(
        [*command, "--json", "--once"], capture_output=True, text=True, check=True, timeout=60
    )
    assert json.loads(told.stdout)["event"] == "snapshot"


def test_without_a_gateway_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--url", "http://127.0.0.1:1"]) == 2
    assert "no gateway answers at http://127.0.0.1:1" in capsys.readouterr().err
