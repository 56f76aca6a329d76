"""Tests every snippet of README.md and docs/: what one pastes works, but for the address."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import promql_parser
import pytest

from gateway.config.config import load_config
from router.policy.policy import parse_policy
from tests.e2e.gateway_process import (
    CONFIG,
    DEVELOPMENT_KEY,
    LANEWISE,
    ROOT,
    GatewayProcess,
    redis_server,
    served,
)
from tests.e2e.node_bin import node_bin
from tests.e2e.programs import run_program
from tests.e2e.snippets import SHELLS, Snippet, shell_script, snippets

SNIPPETS = list(snippets())
ADMIN_KEY = "sk-lanewise-admin-dev"
# Tenants that the pages speak of.
TENANTS = "".join(
    f'\n[[tenants]]\nid = "{name}"\ntier = "pro"\nkeys = ["sk-{name}-for-the-tests"]\n'
    for name in ("studio", "nightly", "ci", "batch")
)
TENANTS += "budgets.run = { hard_usd = 2 }\n"  # of the last one

# Blocks that are not run, by page and how their first line begins, with the reason.
SHOWN = {
    ("README.md", "make run "): "it makes what this test runs in, and serves until it is stopped",
    ("README.md", "LANEWISE_API_KEY="): "a dialogue; test_codex.py runs Codex with these settings",
    ("README.md", "ANTHROPIC_BASE_URL="): "a dialogue; tests/clients runs Claude Code",
    ("README.md", "printf '[recording]"): "a log of the reader's own; test_backtest.py has one",
    ("docs/messages.md", "ANTHROPIC_BASE_URL="): "the same",
    ("docs/decision-log.md", "import pandas"): "pandas is not among the tests' packages",
    ("docs/deployment.md", "kubectl create namespace"): "it needs a cluster; test_deployment.py",
    ("docs/engines.md", 'name = "MI300X"'): "a card's file, no configuration",
    ("docs/engines.md", "fast       deep   times"): "what engine_speeds.py prints",
    ("docs/engines.md", "step = max("): "a formula",
    ("docs/engines.md", "lanewise engine wafer --listen"): "servers; test_engine_link.py runs both",
    ("docs/learning.md", "POST /v1/responses/"): "a request's shape; test_feedback.py sends it",
    ("docs/logs.md", "2026-11-22 22:00:06 INFO"): "a line of the log",
    ("docs/planning.md", "# slo.toml"): "a plan's file; tests/unit/gateway/planning reads such",
    ("docs/planning.md", "# prices.toml"): "the same",
    ("docs/planning.md", "195 fleets"): "what `plan` prints",
    ("docs/planning.md", "dask scheduler"): "servers; test_sweeps.py runs both",
    ("docs/policies.md", "policy.toml:8:19: "): "what `policy check` prints",
    ("docs/tradeoff.md", "An ask that might"): "what a response's routing says",
}
MEASURES = "it measures, for minutes or for a commit before: `make bench`, `make accept`"
# Commands that are not run, by how they begin.
NOT_RUN = {
    "make bench": MEASURES,
    "make init": "it sets up what this test runs in; test_init.py runs the command",
    "make run ARGS": "the same, and it serves until it is stopped",
    "lanewise init --fast": "engines of the reader's own; test_init.py has such",
    "lanewise doctor --config": "of the reader's own set-up; test_doctor.py has such",
    ".venv/bin/python tests/bench/": MEASURES,
    "git worktree add ../before": MEASURES,
    "lanewise usage reconcile openai-usage.json": "a provider's file; test_reconcile.py has such",
    "python tests/bench/": MEASURES,
    "python -m wafer_engine calibrate": MEASURES,
    "python -m wafer_engine validate": MEASURES,
    "python -m wafer_engine place": "half a minute; tests/unit/wafer_engine/mesh has its parts",
    "python -m backends.gpu_engine": MEASURES,
    "lanewise backtest --log": "a log of the reader's own; test_backtest.py has one",
    "lanewise plan --trace": "the same; tests/unit/router/planning has some",
    "lanewise engine fit --log": "a log of the reader's own",
    "lanewise engine predict --rows FILE.csv": "FILE.csv is the reader's own",
    "lanewise engine replay --requests": "the same",
}
DIALOGUES = {".venv/bin/lanewise chat"}  # tests/e2e/test_terminal.py has them
# What else a command may end with.
STATUSES = {"policy diff": 1}  # a difference
FIRST_ID = "python -c 'import json, sys; print(json.load(sys.stdin)[0][\"id\"])'"
# What a block has that is the reader's own, by its page.
READERS = {
    "docs/tenants.md": {
        "LANEWISE_ADMIN_KEY=...": f"LANEWISE_ADMIN_KEY={ADMIN_KEY}",
        "4fJ0x9QzL2b": f"$(lanewise keys list acme --json | {FIRST_ID})",
    },
    "docs/money.md": {
        "budgets show acme": "budgets show batch",
        "budgets raise acme": "budgets raise batch",
    },
    "docs/protocol.md": {
        'fetch("/v1': 'fetch("http://127.0.0.1:8080/v1',
        "wss://gateway.example": "ws://127.0.0.1:8080",
    },
}
# What comes before a block, by its page: in Python, what earlier text has made.
BEFORE = {
    "docs/context.md": "last = client.responses.create(model='auto', input='One step?')\n",
    "docs/protocol.md": f"const key = '{DEVELOPMENT_KEY}';\n",
}
CLIENT = "from openai import OpenAI\nclient = OpenAI()\n"
RECORD = '{"id": "1", "text": "Fix the typo.", "label": "interactive"}\n'


def _is_shown(snippet: Snippet) -> bool:
    return any(page == snippet.page and snippet.first.startswith(start) for page, start in SHOWN)


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="lw-snip-") as name, redis_server(Path(name)) as url:
        yield url


@pytest.fixture(scope="module")
def gateway(redis_url: str) -> Iterator[GatewayProcess]:
    """Gives one of its own: snippets make tenants and change the policy."""
    with tempfile.TemporaryDirectory(prefix="lw-snip-") as name:
        config = Path(name) / "lanewise.toml"
        config.write_text(CONFIG + TENANTS)
        environ = {"LANEWISE_KEY_PEPPERS": f"v1:{'ab' * 32}", "LANEWISE_ADMIN_KEY": ADMIN_KEY}
        arguments = ("--config", str(config), "--redis", redis_url)
        with served(Path(name), *arguments, environ=environ) as process:
            yield process
            assert "Traceback" not in process.log, process.log


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Returns a reader's folder: a git repository with changes, the environment, and files."""
    (tmp_path / ".venv").symlink_to(LANEWISE.parents[1])
    (tmp_path / "asks.jsonl").write_text('{"id": "1", "text": "Fix the typo."}\n')
    (tmp_path / "records.jsonl").write_text(RECORD * 3)
    shutil.copy(ROOT / "README.md", tmp_path)
    for words in ("init -q", "add README.md", "-c user.name=a -c user.email=a@b commit -qm 1"):
        subprocess.run(["git", *words.split()], cwd=tmp_path, check=True)
    (tmp_path / "README.md").write_text("Changed.\n")
    return tmp_path


def test_the_tables_have_no_stale_rows() -> None:
    assert len([each for each in SNIPPETS if _is_shown(each)]) == len(SHOWN)
    commands = [command for each in SNIPPETS for command in each.commands]
    assert all(any(c.startswith(start) for c in commands) for start in NOT_RUN)
    assert {*commands} >= DIALOGUES
    assert {*READERS, *BEFORE} <= {each.page for each in SNIPPETS}


@pytest.mark.parametrize("snippet", [s for s in SNIPPETS if s.kind == "promql"], ids=str)
def test_a_query_is_one(snippet: Snippet) -> None:
    promql_parser.parse(snippet.text)


RUN = [each for each in SNIPPETS if each.kind != "promql" and not _is_shown(each)]


@pytest.mark.parametrize("snippet", RUN, ids=str)
def test_a_snippet_runs(
    gateway: GatewayProcess, redis_url: str, folder: Path, snippet: Snippet
) -> None:
    text = _with_addresses(snippet, snippet.text, gateway, redis_url)
    before = BEFORE.get(snippet.page, "")
    environ = {
        "PATH": f"{LANEWISE.parent}:{os.environ['PATH']}",
        "LANEWISE_URL": gateway.url,
        "LANEWISE_REDIS_URL": redis_url,
        "PYTHONPATH": f"{ROOT}:{ROOT / 'sdk/python'}",
    }
    match snippet.kind:
        case "toml":
            _check_document(text)
        case "json":
            msgspec.json.decode(text)
        case "python":
            before = CLIENT + before if "client." in text and "client =" not in text else ""
            (folder / "snippet.py").write_text(before + text)
            run_program(sys.executable, "snippet.py", gateway=gateway, cwd=folder, environ=environ)
        case "js":
            opened = "await new Promise((done) => (socket.onopen = done));\nsocket.close();\n"
            (folder / "snippet.mjs").write_text(before + text + opened)
            run_program(node_bin() / "node", "snippet.mjs", gateway=gateway, cwd=folder)
        case kind if kind in SHELLS or not kind:  # without a name it must be commands, too
            (folder / "policy.toml").write_text(snippet.document)
            left_out = tuple(NOT_RUN)
            commands = [c for c in snippet.commands if not c.startswith(left_out)]
            commands = [c for c in commands if c not in DIALOGUES]
            commands = [_with_addresses(snippet, c, gateway, redis_url) for c in commands]
            (folder / "snippet.sh").write_text(shell_script(commands, STATUSES))
            run_program("bash", "snippet.sh", gateway=gateway, cwd=folder, environ=environ)
        case kind:
            pytest.fail(f"nothing runs {kind!r}: say in SHOWN why it is only shown")


def _with_addresses(snippet: Snippet, text: str, gateway: GatewayProcess, redis_url: str) -> str:
    for theirs, ours in READERS.get(snippet.page, {}).items():
        text = text.replace(theirs, ours)
    for address in ("127.0.0.1:8080", "localhost:8080", "127.0.0.1:8081"):
        text = text.replace(address, f"127.0.0.1:{gateway.port}")
    return text.replace("redis://127.0.0.1:6379", redis_url)


def _check_document(text: str) -> None:
    """Checks a configuration, a policy, or Codex's own file."""
    if 'model_provider = "lanewise"' in text:
        assert msgspec.toml.decode(text)["model_providers"]["lanewise"]["supports_websockets"]
        return
    faults: list[Exception] = []
    for reads in (parse_policy, lambda content: load_config(content, {})):
        try:
            reads(text.encode())
            return
        except ValueError as error:
            faults.append(error)
    pytest.fail(f"neither a policy ({faults[0]}) nor a configuration ({faults[1]})")
