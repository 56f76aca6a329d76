"""Anthropic's TypeScript SDK, unchanged but for its address."""

import json
import os
import subprocess
from pathlib import Path

from tests.e2e.gateway_process import DEVELOPMENT_KEY, GatewayProcess
from tests.e2e.node_bin import node_bin


def test_a_task_with_a_tool_on_each_engine(gateway: GatewayProcess, node_modules: Path) -> None:
    told = subprocess.run(
        [str(node_bin() / "node"), "anthropic_sdk.mjs"],
        cwd=node_modules.parent,
        env={
            **os.environ,
            "ANTHROPIC_BASE_URL": gateway.url,
            "ANTHROPIC_API_KEY": DEVELOPMENT_KEY,
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    answers = json.loads(told.stdout.splitlines()[-1])
    assert all("42" in answer for answer in answers.values()), answers
