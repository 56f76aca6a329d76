"""Tests the way from nothing to Codex on two real engines, by `lanewise init` and its snippet.

llama.cpp with a model made here stands for both engines.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("xllamacpp", reason="no wheel of llama.cpp for this machine")

from tests.e2e.codex_command import codex_says
from tests.e2e.gateway_process import LANEWISE, GatewayProcess, served
from tests.e2e.llama_model import ENGLISH, SENTENCE
from tests.e2e.llama_process import LlamaServer
from tests.ports import free_port

CONTEXT_TOKENS = 65_536  # Codex' own prompt has 40,000 characters
TIMEOUT_S = 120.0  # bounds a hang


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[LlamaServer]]:
    servers: list[LlamaServer] = []
    try:
        for name in ("fast", "deep"):
            folder = tmp_path_factory.mktemp(name)
            servers.append(LlamaServer(folder, context_tokens=CONTEXT_TOKENS, more=ENGLISH))
        yield servers
    finally:
        for server in servers:
            server.stop()


@pytest.fixture(scope="module")
def told(
    engines: list[LlamaServer], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any]]:
    """Returns what `lanewise init` wrote, and what it said."""
    path = tmp_path_factory.mktemp("init") / "lanewise.toml"
    fast, deep = (f"127.0.0.1:{server.port}" for server in engines)
    arguments = ["--fast", "llama-cpp", "--fast-url", fast, "--deep", "llama-cpp"]
    arguments += ["--deep-url", deep, "--output", str(path), "--port", str(free_port())]
    said = subprocess.run(
        [str(LANEWISE), "init", "--json", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert said.returncode == 0, said.stdout + said.stderr
    return path, json.loads(said.stdout)


@pytest.fixture(scope="module")
def front(
    told: tuple[Path, dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    """Serves as `make run ARGS="--config lanewise.toml"` does, with an embedded Redis."""
    path, answer = told
    port = int(answer["base_url"].rpartition(":")[2])
    with served(tmp_path_factory.mktemp("front"), "--config", str(path), port=port) as process:
        yield process
        assert "Traceback" not in process.log, process.log


@pytest.mark.parametrize("model", ["tiny-fast", "tiny-deep", "auto"])
def test_codex_answers_from_it(
    front: GatewayProcess, told: tuple[Path, dict[str, Any]], tmp_path: Path, model: str
) -> None:
    _, answer = told
    said = codex_says(
        tmp_path, answer["snippets"]["codex"], answer["key"], "Say the sentence.", model
    )
    assert said == "".join(SENTENCE)
    engines = ("tiny-fast", "tiny-deep") if model == "auto" else (model,)
    samples = front.metrics()
    used = [samples.total("lanewise_tokens_total", model=one, type="output") for one in engines]
    assert any(used), "no engine has said anything"
