"""Tests Anthropic's TypeScript SDK, unchanged but for its address."""

from pathlib import Path

from tests.e2e.gateway_process import GatewayProcess
from tests.e2e.node_bin import node_bin
from tests.e2e.programs import last_line, run_program


def test_a_task_with_a_tool_on_each_engine(gateway: GatewayProcess, node_modules: Path) -> None:
    script = node_modules.parent / "anthropic_sdk.mjs"
    answers = last_line(run_program(node_bin() / "node", script, gateway=gateway))
    assert all("42" in answer for answer in answers.values()), answers
