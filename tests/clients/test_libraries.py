"""Tests libraries and a command line over the API, unchanged but for address and key."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.e2e.gateway_process import DEVELOPMENT_KEY, GatewayProcess
from tests.e2e.programs import last_line, run_program

FOLDER = Path(__file__).parent / "libraries"
LITELLM = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}  # asks nobody for prices


def test_instructor(gateway: GatewayProcess, libraries: Path) -> None:
    told = last_line(run_program(libraries, FOLDER / "with_instructor.py", gateway=gateway))
    assert len(told["modes"]) == 6
    report = {"city": "Lisbon", "degrees": 21, "people": 545_000}
    assert all(reports == [report, report] for reports in told["modes"].values()), told


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_dspy(gateway: GatewayProcess, libraries: Path, tmp_path: Path, api: str) -> None:
    environ = {**LITELLM, "DSPY_CACHEDIR": str(tmp_path)}
    script = FOLDER / "with_dspy.py"
    told = last_line(run_program(libraries, script, api, gateway=gateway, environ=environ))
    agent = ["get_weather", "get_population"]
    assert told == [["Lisbon", True, calls] for calls in ([], [], agent)] * 3


def test_litellm(gateway: GatewayProcess, libraries: Path) -> None:
    script = FOLDER / "with_litellm.py"
    told = last_line(run_program(libraries, script, gateway=gateway, environ=LITELLM))
    assert "beryl" in told.pop("chained")
    assert told == {
        "report": {"city": "Lisbon", "degrees": 21},
        "called": ["get_weather", "get_population"],
        "called_by_messages": ["get_weather", "get_population"],
        "chunks": "stop",
        "last_event": "response.completed",
        "message": "message",
        "overflow": 400,
    }


class Llm:
    """Runs the command line `llm`, in a folder of its own."""

    def __init__(self, gateway: GatewayProcess, python: Path, folder: Path) -> None:
        self._command = python.parent / "llm"
        self._environ = {**os.environ, "LLM_USER_PATH": str(folder)}
        (folder / "extra-openai-models.yaml").write_text(
            "- model_id: lanewise\n  model_name: auto\n"
            f'  api_base: "{gateway.base_url}"\n  api_key_name: lanewise\n'
            "  supports_tools: true\n  supports_schema: true\n"
        )
        self("keys", "set", "lanewise", "--value", DEVELOPMENT_KEY)

    def __call__(self, *words: str) -> str:
        told = subprocess.run(
            [str(self._command), *words],
            env=self._environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert told.returncode == 0, told.stderr
        return told.stdout


def test_llm(gateway: GatewayProcess, agents: Path, tmp_path: Path) -> None:
    llm = Llm(gateway, agents, tmp_path)
    llm("-m", "lanewise", "The code word is beryl.")
    assert "beryl" in llm("-c", "What is the code word?")
    schema = ("--schema", "city, degrees int")
    assert llm("-m", "lanewise", *schema, "It is 21 degrees in Lisbon.").strip() == (
        '{"city":"Lisbon","degrees":21}'
    )
    function = "def get_weather(city: str) -> str:\n    return '21 degrees in ' + city"
    said = llm("-m", "lanewise", "--functions", function, "Use get_weather for Lisbon.")
    assert "21 degrees in Lisbon" in said
