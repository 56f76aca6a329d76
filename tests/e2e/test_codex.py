"""Tests the real Codex CLI, over both transports: configured by a file alone."""

import json
from pathlib import Path

import pytest

from tests.e2e.codex_command import CODEX, EXEC_CONFIG, run_codex
from tests.e2e.gateway_process import DEVELOPMENT_KEY, GatewayProcess


class Codex:
    """Runs one `codex exec` in a folder of its own, and keeps what it told."""

    def __init__(
        self, gateway: GatewayProcess, folder: Path, prompt: str, *, model: str, websockets: bool
    ) -> None:
        work, last = folder / "work", folder / "last.txt"
        work.mkdir()
        (work / "note.txt").write_text("the harbour seal sings\n")
        config = EXEC_CONFIG.format(
            model=model, base_url=gateway.base_url, websockets=str(websockets).lower()
        )
        before = gateway.metrics()
        told = run_codex(
            *(folder / "home", work, config, DEVELOPMENT_KEY, "--json", "-o", str(last), prompt),
            RUST_LOG="codex_api=info",
        )
        after = gateway.metrics()
        self.log = told.stderr
        self.events = [json.loads(line) for line in told.stdout.splitlines() if line]
        self.sockets_opened = after.total("lanewise_ws_opened_total") - before.total(
            "lanewise_ws_opened_total"
        )
        assert told.returncode == 0, f"{told.stdout}\n{told.stderr}"
        self.answer = last.read_text()
        assert "Falling back" not in told.stdout, told.stdout

    def items(self, kind: str) -> list[dict[str, object]]:
        return [
            event["item"]
            for event in self.events
            if event["type"] == "item.completed" and event["item"]["type"] == kind
        ]


@pytest.fixture(autouse=True)
def _installed() -> None:
    assert CODEX.exists(), "run `make setup`"


@pytest.mark.parametrize("model", ["auto", "lanewise-fast", "lanewise-deep"])
@pytest.mark.parametrize("websockets", [True, False], ids=["socket", "http"])
def test_codex_answers(
    gateway: GatewayProcess, tmp_path: Path, websockets: bool, model: str
) -> None:
    codex = Codex(
        gateway,
        tmp_path,
        "The code word is walrus-4. What is the code word?",
        model=model,
        websockets=websockets,
    )
    assert "walrus-4" in codex.answer
    assert (codex.sockets_opened > 0) == websockets, "a success alone does not prove the transport"
    assert ("successfully connected" in codex.log.lower()) == websockets, codex.log


@pytest.mark.parametrize("websockets", [True, False], ids=["socket", "http"])
def test_codex_runs_a_command_and_answers_with_its_output(
    gateway: GatewayProcess, tmp_path: Path, websockets: bool
) -> None:
    codex = Codex(
        gateway,
        tmp_path,
        "Run the shell command `cat note.txt` and tell me what it prints.",
        model="lanewise-fast",
        websockets=websockets,
    )
    (command, *_) = codex.items("command_execution")
    assert "cat note.txt" in str(command["command"])
    assert "the harbour seal sings" in str(command["aggregated_output"])
    assert "the harbour seal sings" in codex.answer
    assert (codex.sockets_opened > 0) == websockets
