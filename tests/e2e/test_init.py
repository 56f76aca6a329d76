"""Tests `lanewise init` in front of real servers: what it finds, asks, writes and says."""

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from backends.upstream.backend import UpstreamBackendConfig
from gateway.config.config import Config, load_config
from tests.e2e.gateway_process import DEVELOPMENT_KEY, LANEWISE, GatewayProcess
from tests.e2e.terminal_screen import Screen
from tests.ports import free_port

TIMEOUT_S = 120.0  # bounds a hang


def init(
    folder: Path, *arguments: str, environ: dict[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(LANEWISE), "init", *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env={**os.environ, **(environ or {})},
    )


def of_gateway(gateway: GatewayProcess, group: str, model: str) -> tuple[str, ...]:
    """Returns the arguments for a server that speaks the protocol: another gateway stands in."""
    url = f"127.0.0.1:{gateway.port}"
    key = (f"--{group}-key-env", "THEIR_KEY")
    return (f"--{group}", "openai", f"--{group}-url", url, f"--{group}-model", model, *key)


def read(path: Path) -> Config:
    return load_config(path.read_bytes(), {}, name=str(path))


def test_two_engines_are_written_tried_and_served(
    gateway: GatewayProcess, tmp_path: Path, redis_url: str
) -> None:
    fast = of_gateway(gateway, "fast", "lanewise-fast")
    deep = of_gateway(gateway, "deep", "lanewise-deep")
    port = free_port()
    environ = {"THEIR_KEY": DEVELOPMENT_KEY}
    told = init(tmp_path, *fast, *deep, "--port", str(port), "--json", environ=environ)
    assert told.returncode == 0, told.stderr
    answer = json.loads(told.stdout)
    assert [one["level"] for one in answer["engines"]] == ["ok", "ok"]
    path = tmp_path / "lanewise.toml"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert DEVELOPMENT_KEY not in path.read_text(), "an engine's key stays in the environment"
    served = GatewayProcess(tmp_path, "--config", str(path), "--redis", redis_url, environ=environ)
    # It is started with a port of its own, where its snippets do not lead.
    try:
        served.wait_until_ready()
        base_url = answer["base_url"]
        for text in answer["snippets"].values():
            assert base_url in text
        curl = answer["snippets"]["curl"].replace(base_url, served.url)
        events = subprocess.run(
            ["bash", "-c", curl], capture_output=True, text=True, timeout=TIMEOUT_S, check=True
        )
        assert "response.completed" in events.stdout
        program = answer["snippets"]["openai-python"].replace(base_url, served.url)
        said = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=True,
        )
        assert said.stdout.strip()
    finally:
        assert served.stop() == 0, served.log


def test_an_engine_that_does_not_answer_is_told(gateway: GatewayProcess, tmp_path: Path) -> None:
    fast = of_gateway(gateway, "fast", "gone")
    told = init(tmp_path, *fast, "--deep", "simulated", environ={"THEIR_KEY": DEVELOPMENT_KEY})
    assert told.returncode == 1
    assert re.search(r"^fail  engine openai: gone: .* -> is upstream_model", told.stdout, re.M)
    assert (tmp_path / "lanewise.toml").exists()


def test_a_key_that_is_not_set_is_told_by_its_name(tmp_path: Path) -> None:
    environ = {"CEREBRAS_API_KEY": ""}
    told = init(tmp_path, "--fast", "cerebras", "--deep", "simulated", environ=environ)
    assert told.returncode == 1
    assert "CEREBRAS_API_KEY is not set -> export it" in told.stdout
    (fast, _) = read(tmp_path / "lanewise.toml").backends
    assert fast.options.model == "gpt-oss-120b"


def test_what_is_found_is_taken(tmp_path: Path) -> None:
    keys = dict.fromkeys(
        ("OPENAI_API_KEY", "AZURE_OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENROUTER_API_KEY"), ""
    )
    keys |= {"GROQ_API_KEY": "gsk-mine", "CEREBRAS_API_KEY": "", "ANTHROPIC_API_KEY": "sk-mine"}
    told = init(tmp_path, "--yes", "--no-check", environ=keys)
    assert told.returncode == 0, told.stderr
    assert [one.name for one in read(tmp_path / "lanewise.toml").backends] == ["groq", "anthropic"]


@pytest.mark.parametrize("given", ["me.openai.azure.com", "https://me.openai.azure.com/"])
def test_the_address_of_a_resource_is_enough(given: str, tmp_path: Path) -> None:
    azure = ("--fast", "azure", "--fast-url", given, "--fast-model", "mine")
    output = ("--no-check", "--output", "a b.toml")
    told = init(tmp_path, *azure, "--deep", "simulated", *output)
    assert told.returncode == 0, told.stderr
    assert "serve --config 'a b.toml'" in told.stdout
    (fast, _) = read(tmp_path / "a b.toml").backends
    assert isinstance(fast, UpstreamBackendConfig)
    assert fast.options.base_url == "https://me.openai.azure.com/openai/v1"


def test_a_file_is_not_replaced_unasked(tmp_path: Path) -> None:
    simulated = ("--fast", "simulated", "--deep", "simulated")
    path = tmp_path / "lanewise.toml"
    path.write_text("# mine\n")
    told = init(tmp_path, *simulated)
    assert told.returncode == 2
    assert "--force" in told.stderr
    assert path.read_text() == "# mine\n"
    assert init(tmp_path, *simulated, "--force").returncode == 0
    assert read(path).backends
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["lanewise.toml"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "give --fast and --deep, or --yes"),
        (("--fast", "azure", "--deep", "simulated"), "--fast-url: Azure OpenAI needs the address"),
        (
            ("--fast", "azure", "--fast-url", "me.openai.azure.com", "--deep", "simulated"),
            "--fast-model: Azure OpenAI needs the name",
        ),
        (("--yes", "--fast", "simulated", "--fast-model", "m"), "--fast-model: the fast engine is"),
        (("--fast", "simulated", "--deep", "simulated", "--deep-url", "h"), "--deep-url: the deep"),
        (
            ("--fast", "groq", "--fast-key-env", "gsk-secret", "--deep", "simulated"),
            "--fast-key-env: expected the name of an environment variable, not a key$",
        ),
        (
            ("--fast", "vllm", "--fast-url", "127.0.0.1:9", "--deep", "simulated"),
            "no list of models at http://127.0.0.1:9/v1/models .*: start it",
        ),
        (("--fast", "simulated", "--deep", "simulated", "--output", "/proc/no/x"), "--output"),
    ],
)
def test_what_is_missing_is_told_and_nothing_written(
    tmp_path: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    told = init(tmp_path, *arguments)
    assert told.returncode == 2
    assert re.search(complaint, told.stderr), told.stderr
    assert not list(tmp_path.iterdir())


def test_a_person_is_asked(tmp_path: Path) -> None:
    environ: dict[str, Any] = {"CEREBRAS_API_KEY": "csk-mine"}
    path = tmp_path / "mine.toml"
    screen = Screen("init", "--output", str(path), "--no-check", environ=environ)
    try:
        screen.wait_for(r"Which engine is the fast one\?")
        screen.wait_for(r"1  Cerebras +CEREBRAS_API_KEY is set")
        screen.wait_for(r"number or name \[cerebras\]:")
        screen.type("\r")
        screen.wait_for(r"its model on Cerebras \[gpt-oss-120b\]:")
        screen.type("zai-glm-4.7\r")
        screen.wait_for(r"Which engine is the deep one\?")
        screen.type("99\r")
        screen.wait_for(r"expected 1 to")
        screen.type("simulated\r")
        screen.wait_for(r"--- claude-code")
        assert screen.wait_for_end() == 0
    finally:
        screen.close()
    fast, deep = read(path).backends
    assert (fast.name, fast.options.model, deep.name) == ("cerebras", "zai-glm-4.7", "gpu")
