"""Runs the scripts in node/."""

from pathlib import Path
from typing import Any

from tests.e2e.gateway_process import GatewayProcess
from tests.e2e.node_bin import node_bin
from tests.e2e.programs import last_line, run_program

FOLDER = Path(__file__).parent / "node"


def run_node(script: str, gateway: GatewayProcess) -> dict[str, Any]:
    """Run one of the scripts in `node/`; its last line is a JSON object."""
    told = run_program(node_bin() / "node", script, gateway=gateway, cwd=FOLDER)
    answer: dict[str, Any] = last_line(told)
    return answer
