"""Runs programs of clients against a gateway, each in a process of its own."""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.e2e.gateway_process import DEVELOPMENT_KEY, GatewayProcess

TIMEOUT_S = 120.0  # bounds a hang


def run_program(
    *command: str | Path,
    gateway: GatewayProcess,
    cwd: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> str:
    """Returns what a program prints, which must end well; it gets address and key as SDKs do."""
    told = subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env={
            **os.environ,
            "OPENAI_BASE_URL": gateway.base_url,
            "OPENAI_API_KEY": DEVELOPMENT_KEY,
            "ANTHROPIC_BASE_URL": gateway.url,
            "ANTHROPIC_API_KEY": DEVELOPMENT_KEY,
            **(environ or {}),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert told.returncode == 0, told.stdout[-2000:] + told.stderr[-4000:]
    return told.stdout


def last_line(printed: str) -> Any:
    """Returns the JSON document on the last line."""
    return json.loads(printed.splitlines()[-1])
