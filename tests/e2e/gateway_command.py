"""Runs the command line with a configuration of its own."""

import subprocess
from pathlib import Path

from tests.e2e.gateway_process import LANEWISE


def lanewise(*arguments: str, config: str = "", folder: Path) -> "subprocess.CompletedProcess[str]":
    path = folder / "lanewise.toml"
    path.write_text(config)
    return subprocess.run(
        [str(LANEWISE), *arguments, "--config", str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
