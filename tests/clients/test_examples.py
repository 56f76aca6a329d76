"""The examples that need large packages, and `make example` itself."""

import shutil
from pathlib import Path

import pytest

from tests.e2e.gateway_process import ROOT, GatewayProcess
from tests.e2e.node_bin import node_bin
from tests.e2e.programs import run_program

EXAMPLES = ROOT / "examples"


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("langgraph_agent.py", "It is 21 degrees in Lisbon."),
        ("pydantic_ai_agent.py", "degrees=21 people=545000"),
    ],
)
def test_an_example_runs(gateway: GatewayProcess, agents: Path, name: str, printed: str) -> None:
    assert printed in run_program(agents, EXAMPLES / name, gateway=gateway)


def test_the_vercel_ai_sdk(gateway: GatewayProcess, node_modules: Path, tmp_path: Path) -> None:
    (tmp_path / "node_modules").symlink_to(node_modules)  # where packages are looked for
    script = shutil.copy(EXAMPLES / "vercel_ai.mjs", tmp_path)
    told = run_program(node_bin() / "node", script, gateway=gateway)
    assert "{ city: 'Lisbon', degrees: 21 }" in told


def test_make_example(gateway: GatewayProcess, examples: None) -> None:
    assert "fast: " in run_program("make", "example", "NAME=hello", gateway=gateway, cwd=ROOT)


def test_an_example_that_is_not_there(gateway: GatewayProcess) -> None:
    with pytest.raises(AssertionError, match="one of: agents_sdk batch"):
        run_program("make", "-s", "example", "NAME=nothing", gateway=gateway, cwd=ROOT)
