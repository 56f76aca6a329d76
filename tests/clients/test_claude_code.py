"""Tests Claude Code, unchanged but for its address: tasks with its own tools, on each engine."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.gateway_process import DEVELOPMENT_KEY, GatewayProcess

ENGINES = ["claude-lanewise-fast", "claude-lanewise-deep", "claude-opus-5-5"]
TIMEOUT_S = 180.0  # bounds a hang
QUIET = {
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_AUTOUPDATER": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CLAUDE_CODE_MAX_RETRIES": "1",
    "IS_SANDBOX": "1",  # root may let it work without asking
}
KEYS = [
    {"ANTHROPIC_API_KEY": DEVELOPMENT_KEY},
    {"ANTHROPIC_AUTH_TOKEN": DEVELOPMENT_KEY},
    {"ANTHROPIC_AUTH_TOKEN": DEVELOPMENT_KEY, "ANTHROPIC_API_KEY": "sk-ant-other"},
]


class ClaudeCode:
    """Runs `claude -p` in a folder of its own."""

    def __init__(self, gateway: GatewayProcess, node_modules: Path, folder: Path) -> None:
        self._gateway = gateway
        self._binary = node_modules / ".bin" / "claude"
        self.folder = folder

    def lines(self, prompt: str, model: str, **more: str) -> list[dict[str, Any]]:
        """Returns what it prints as `stream-json`, a document a line; its last is the result."""
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        variables = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "ANTHROPIC_BASE_URL": self._gateway.url,
            **QUIET,
            **(more or KEYS[0]),
        }
        told = subprocess.run(
            [
                *(str(self._binary), "-p", prompt, "--model", model),
                *("--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions"),
            ],
            cwd=self.folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert told.returncode == 0, told.stdout[-2000:] + told.stderr[-2000:]
        return [json.loads(line) for line in told.stdout.splitlines() if line.startswith("{")]


@pytest.fixture
def claude(gateway: GatewayProcess, node_modules: Path, tmp_path: Path) -> ClaudeCode:
    (tmp_path / "notes.txt").write_text("garnet 42\n")
    return ClaudeCode(gateway, node_modules, tmp_path)


def called(lines: list[dict[str, Any]]) -> list[str]:
    contents = [line["message"]["content"] for line in lines if line["type"] == "assistant"]
    return [b["name"] for content in contents for b in content if b["type"] == "tool_use"]


@pytest.mark.parametrize("model", ENGINES)
def test_a_task_of_two_calls(claude: ClaudeCode, model: str) -> None:
    prompt = "Use the Bash tool to run `cat notes.txt` and then `wc -c notes.txt`."
    lines = claude.lines(prompt, model, CLAUDE_CODE_GATEWAY_HINT_HEADERS="1", **KEYS[0])
    result = lines[-1]
    assert (result["subtype"], result["is_error"]) == ("success", False)
    assert called(lines) == ["Bash", "Bash"]
    assert "garnet 42" in result["result"]
    assert "10 notes.txt" in result["result"]
    usage = result["usage"]
    assert usage["cache_read_input_tokens"] > 0, "the second turn finds the first one's prefix"
    assert usage["output_tokens"] > 0


@pytest.mark.parametrize("keys", KEYS, ids=lambda keys: "+".join(keys))
def test_each_way_to_show_a_key(claude: ClaudeCode, keys: dict[str, str]) -> None:
    result = claude.lines("Reply with exactly garnet.", "claude-lanewise-fast", **keys)[-1]
    assert result["result"] == "garnet"


@pytest.mark.parametrize(
    ("model", "rule"),
    [("claude-haiku-5-5", "agents-housekeeping-goes-fast"), ("claude-opus-5-5", "class")],
)
def test_the_router_decides_by_the_task(
    claude: ClaudeCode, gateway: GatewayProcess, model: str, rule: str
) -> None:
    """Claude Code's own prompt speaks of security; that makes no task of it sensitive."""

    def num_fast() -> float:
        labels = {"rule": rule, "route": "fast"}
        return gateway.metrics().total("lanewise_route_decisions_total", **labels)

    before = num_fast()
    claude.lines("Reply with exactly garnet.", model)
    assert num_fast() > before


def test_an_unknown_model_is_told(claude: ClaudeCode) -> None:
    with pytest.raises(AssertionError, match="selected model"):
        claude.lines("Hi.", "nothing-known")
