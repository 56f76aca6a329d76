"""Every example runs as it stands, is short enough to read, and says what it lacks."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.gateway_process import DEVELOPMENT_KEY, LANEWISE, ROOT, GatewayProcess, served
from tests.e2e.programs import run_program

MAX_LINES = 50
FOLDER = ROOT / "examples"
PROGRAMS = sorted(FOLDER.glob("*.py"))
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
# tests/clients runs these, which need more than the tests' environment has; a page runs nowhere.
ELSEWHERE = {"browser.html", "langgraph_agent.py", "pydantic_ai_agent.py", "vercel_ai.mjs"}
NOTHING_ADMITTED = f"""
[[tenants]]
id = "dev"
keys = ["{DEVELOPMENT_KEY}"]
limits.fast = {{ requests_per_min = 0, tokens_per_min = 0, max_concurrent = 1 }}
limits.deep = {{ requests_per_min = 0, tokens_per_min = 0, max_concurrent = 1 }}
"""


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_runs(gateway: GatewayProcess, name: str) -> None:
    assert PRINTED[name] in run_program(sys.executable, FOLDER / name, gateway=gateway)


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """Gives a gateway that admits nothing."""
    folder = tmp_path_factory.mktemp("refusing")
    (folder / "lanewise.toml").write_text(NOTHING_ADMITTED)
    with served(folder, "--config", str(folder / "lanewise.toml")) as process:
        yield process


@pytest.mark.parametrize("name", ["batch", "streams", "steer", "subtask"])
def test_an_example_on_a_socket_ends_where_it_is_refused(
    refusing: GatewayProcess, name: str
) -> None:
    """A stream that is refused has no terminal event to wait for."""
    environ = {"OPENAI_BASE_URL": refusing.base_url, "OPENAI_API_KEY": DEVELOPMENT_KEY}
    told = subprocess.run(
        [sys.executable, str(FOLDER / f"{name}.py")],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in told.stderr, told.stderr
    assert "limit" in told.stdout + told.stderr


def test_the_index_has_every_example() -> None:
    examples = {each.name for kind in ("py", "mjs", "html") for each in FOLDER.glob(f"*.{kind}")}
    assert examples == {*PRINTED} | ELSEWHERE
    listed = re.findall(r"^\| \[(\w+)\]\((.+)\) \|", (FOLDER / "README.md").read_text(), re.M)
    assert all(Path(file).stem == name for name, file in listed)
    assert {file for _, file in listed} == examples
    for name in examples:
        assert len((FOLDER / name).read_text().splitlines()) <= MAX_LINES, name


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_an_example_says_what_is_missing(path: Path) -> None:
    """It runs without any package, as in an environment that `make run` did not make."""
    command = [sys.executable, "-I", "-S", str(path)]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert told.returncode == 1
    pattern = rf"No module named '\w+': `make example NAME={path.stem}` brings it\.\n"
    assert re.fullmatch(pattern, told.stderr), told.stderr


def test_an_sdk_that_cannot_steer_is_told(tmp_path: Path) -> None:
    for module in ("websockets", "openai"):
        (tmp_path / f"{module}.py").write_text("VERSION, OpenAI = '3.51.9', None\n")
    for name in ("batch", "steer", "streams", "subtask"):
        code = f"import sys, runpy; sys.path.insert(0, {str(tmp_path)!r}); "
        code += f"runpy.run_path({str(FOLDER / name)!r} + '.py')"
        command = [sys.executable, "-I", "-S", "-c", code]
        told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert told.returncode == 1
        assert told.stderr.startswith("openai 3.51.9 is older than 3.52: `make example"), (
            told.stderr
        )


def test_the_browsers_configuration_is_valid() -> None:
    command = [str(LANEWISE), "config", "check", str(FOLDER / "browser.toml")]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert told.returncode == 0, told.stderr
