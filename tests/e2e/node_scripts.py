"""Runs the scripts in node/."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.e2e.gateway_process import DEVELOPMENT_KEY, GatewayProcess
from tests.e2e.node_bin import node_bin

FOLDER = Path(__file__).parent / "node"


def run_node(script: str, gateway: GatewayProcess) -> dict[str, Any]:
    """Run one of the scripts in `node/`; its last line is a JSON object."""
    told = subprocess.run(
        [str(node_bin() / "node"), script],
        cwd=FOLDER,
        env={
            **os.environ,
            "OPENAI_BASE_URL": gateway.base_url,
            "OPENAI_API_KEY": DEVELOPMENT_KEY,
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    answer: dict[str, Any] = json.loads(told.stdout.splitlines()[-1])
    return answer
