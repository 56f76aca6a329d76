"""Every example runs as it stands, and is short enough to read."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.gateway_process import DEVELOPMENT_KEY, ROOT, GatewayProcess

MAX_LINES = 45
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PRINTED = {
    "agents_sdk.py": "120 lines",
    "batch.py": "the number 23, in one sentence.  fast",
    "hello.py": "fast: ",
    "hints.py": "both engines       parallel",
    "langchain_chat.py": "mutex",
    "sdk.py": "deep: ",
    "steer.py": "[resp_",
    "streams.py": "slow: ",
    "subtask.py": "(final_answer) That part has come back",
    "tools.py": "degrees in",
}


def run_example(path: Path, gateway: GatewayProcess) -> str:
    told = subprocess.run(
        [sys.executable, str(path)],
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
    return told.stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs(gateway: GatewayProcess, path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MAX_LINES
    assert PRINTED[path.name] in run_example(path, gateway)
