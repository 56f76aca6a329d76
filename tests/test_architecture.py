"""The house rules, held by an AST walk: imports, purity, sizes, names, and what dashboards ask for.

The rules and the reasons for them are in docs/architecture.md and docs/adr/0001.
"""

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.fleet_metrics import SUPERVISOR_METRICS
from gateway.metrics import metric_names

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("gateway", "router", "backends", "wafer_engine")  # each may import those to its right
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 70

# The edges: modules that may do I/O, read clocks and log. Every other module is pure.
EDGES = frozenset(
    f"{folder}.{module}"
    for folder, modules in {
        "gateway": (
            *(
                "__main__",
                "account",
                "admin",
                "admit",
                "app",
                "backend_metrics",
                "background",
                "branch",
            ),
            *("chat", "chat_stream", "ids"),
            *("cli", "client", "client_sync", "connection", "context", "dispatch"),
            *("embedded_redis", "ending"),
            *("chat_command", "route_command", "serve_command"),
            *("batch_route", "engine_command", "engine_link", "eval_command", "gateway", "http"),
            *("leases", "metrics", "outbox"),
            *("pipeline", "preview", "posts", "rounds", "routes", "server", "settlement"),
            "side_reservations",
            "compaction_metrics",
            *("socket_protocol", "summary_run"),
            *("store", "terminal"),
            *("admin_guard", "outage_metrics", "policy_metrics", "policy_watch"),
            *("policy_admin", "policy_command", "recorder"),
            *("learning_admin", "learning_metrics", "outcomes"),
            *("access", "directory", "key_admin", "tenant_admin"),
            *("admin_client", "tenant_command", "ledger", "ledger_metrics", "usage"),
            *("parquet", "usage_command", "usage_export"),
            *("adaptation", "adaptation_metrics", "cancelling", "duties"),
            *("waiting", "waiting_metrics", "warming", "warm_metrics"),
            *("heap", "latch", "socket_care", "asgi_socket", "direct_sockets"),
            *("engine_host", "fleet", "fleet_channel", "fleet_member", "fleet_metrics"),
            *("supervisor", "worker"),
        ),
        "router": (
            *("failover_pools", "heartbeat", "learned_store", "policy_store", "redis_client"),
            *("redis_link", "redis_pools", "redis_servers", "slices", "sweeper"),
            *("capped_pools",),
        ),
        "backends": (
            *("driver", "gpu", "link", "simulated", "timers", "wafer"),
            *("http_client", "quick_connection"),
            *("upstream", "upstream_http", "upstream_socket"),
        ),
        "wafer_engine": (*("__main__", "calibrate"),),
    }.items()
    for module in modules
)
IMPURE = frozenset(
    {"asyncio", "time", "random", "os", "socket", "redis", "logging", "subprocess", "threading"}
)

# Third-party packages, and the only modules that may import them ("*": anywhere in the folder).
THIRD_PARTY = {
    "msgspec": ("gateway.*", "router.*", "backends.*", "wafer_engine.*"),
    "numpy": ("router.*", "backends.*", "wafer_engine.*"),
    "redis": (
        *("router.heartbeat", "router.policy_store", "router.redis_client"),
        *("router.learned_store", "gateway.learning_admin"),
        *("gateway.app", "gateway.store"),
        *("gateway.access", "gateway.directory", "gateway.ledger", "gateway.usage"),
        *("gateway.usage_export", "gateway.usage_command"),
    ),
    "hiredis": ("router.redis_link",),
    "litestar": (
        *("gateway.admin", "gateway.app", "gateway.background", "gateway.chat"),
        *("gateway.http", "gateway.openapi", "gateway.routes"),
        *("gateway.asgi_socket", "gateway.direct_sockets", "gateway.posts"),
        *(
            "gateway.server",
            "gateway.engine_host",
            "gateway.admin_guard",
            "gateway.learning_admin",
            "gateway.key_admin",
            "gateway.policy_admin",
            "gateway.tenant_admin",
        ),
    ),
    "uvicorn": (
        "gateway.server",
        "gateway.socket_protocol",
        "gateway.engine_command",
        "gateway.worker",
    ),
    "uvloop": ("gateway.server", "gateway.engine_command", "gateway.supervisor", "gateway.worker"),
    "prometheus_client": (
        "gateway.fleet_metrics",
        *("gateway.backend_metrics", "gateway.learning_metrics"),
        *("gateway.metrics", "gateway.ledger_metrics", "gateway.outage_metrics"),
        *("gateway.policy_metrics", "gateway.strategy_metrics", "gateway.waiting_metrics"),
        "gateway.compaction_metrics",
        *("gateway.adaptation_metrics", "gateway.tallies", "gateway.warm_metrics"),
    ),
    "websockets": (
        *("gateway.client", "gateway.socket_protocol", "gateway.terminal"),
        *("backends.link", "backends.quick_connection", "backends.upstream_socket"),
    ),
    "aiohappyeyeballs": ("backends.http_client",),
    "httptools": ("backends.http_client",),
    "prompt_toolkit": ("gateway.terminal",),
}

BANNED_MODULES = {"utils", "helpers", "common", "misc", "info", "data", "manager", "handler"}
BANNED_NAME = re.compile(
    r"^(utils?|helpers?|common|misc|info|data|process)$|^Base[A-Z]|(Manager|Handler)$"
)
# Names that another library's protocol or the standard library dictates.
# A pure module may take these types from an edge: the options that configure a backend.
OPTIONS_FROM = {"gateway.config": {"backends.gpu", "backends.link", "backends.wafer"}}
ALLOWED_NAMES = frozenset({"info"})  # a backend's `BackendInfo`


def modules() -> dict[str, Path]:
    """Dotted name -> file, of all first-party modules."""
    found = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()
TREES = {name: ast.parse(path.read_text(), str(path)) for name, path in MODULES.items()}


def imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every imported module's dotted name, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import"
            assert node.module is not None
            yield node.module, node.lineno


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_the_walk_sees_the_tree() -> None:
    assert {"gateway.metrics", "router.task", "backends.contract", "wafer_engine"} <= set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_imports_point_right(name: str) -> None:
    position = FOLDERS.index(name.partition(".")[0])
    for imported, line in imports(TREES[name]):
        folder = imported.partition(".")[0]
        if folder in FOLDERS:
            assert FOLDERS.index(folder) >= position, f"{name}:{line} imports {imported}"


@pytest.mark.parametrize("name", MODULES)
def test_imports_stand_at_the_top(name: str) -> None:
    at_the_top = {id(node) for node in TREES[name].body}
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.Import | ast.ImportFrom):
            assert id(node) in at_the_top, f"{name}:{node.lineno} imports below the top level"


# The command line loads the command that is called (docs/adr/0026); the others' are optional.
IMPORTS_BY_NAME = {"gateway.cli", "gateway.parquet", "wafer_engine.token_text"}


@pytest.mark.parametrize("name", MODULES)
def test_nobody_else_imports_by_name(name: str) -> None:
    called = {
        getattr(node.func, "attr", getattr(node.func, "id", ""))
        for node in ast.walk(TREES[name])
        if isinstance(node, ast.Call)
    }
    assert name in IMPORTS_BY_NAME or not called & {"import_module", "__import__"}


@pytest.mark.parametrize("name", sorted(set(MODULES) - EDGES))
def test_pure_modules_are_pure(name: str) -> None:
    for imported, line in imports(TREES[name]):
        top = imported.partition(".")[0]
        assert top not in IMPURE, f"{name}:{line} is pure, yet imports {imported}"


@pytest.mark.parametrize("name", sorted(set(MODULES) - EDGES))
def test_pure_modules_do_not_import_edges(name: str) -> None:
    """An edge may import a pure module, never the other way: else purity is a matter of words."""
    for imported, line in imports(TREES[name]):
        allowed = OPTIONS_FROM.get(name, set())
        assert imported not in EDGES - allowed, f"{name}:{line} is pure, yet imports {imported}"


@pytest.mark.parametrize("name", MODULES)
def test_third_party_imports_are_where_they_belong(name: str) -> None:
    folder = name.partition(".")[0]
    for imported, line in imports(TREES[name]):
        top = imported.partition(".")[0]
        if top in FOLDERS or top in sys.stdlib_module_names:
            continue
        allowed = THIRD_PARTY.get(top, ())
        assert name in allowed or f"{folder}.*" in allowed, f"{name}:{line} imports {imported}"


@pytest.mark.parametrize("name", MODULES)
def test_files_and_functions_fit(name: str) -> None:
    num_lines = len(MODULES[name].read_text().splitlines())
    assert num_lines <= MAX_FILE_LINES, f"{name} has {num_lines} lines"
    for function in functions(TREES[name]):
        assert function.end_lineno is not None
        length = function.end_lineno - function.lineno + 1
        assert length <= MAX_FUNCTION_LINES, f"{name}.{function.name} has {length} lines"


@pytest.mark.parametrize("name", MODULES)
def test_names_say_something(name: str) -> None:
    assert not BANNED_MODULES & set(name.split(".")), f"{name} is a drawer, not a module"
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            banned = BANNED_NAME.search(node.name) and node.name not in ALLOWED_NAMES
            assert not banned, f"{name}:{node.lineno} {node.name}"


@pytest.mark.parametrize("name", MODULES)
def test_public_names_are_documented(name: str) -> None:
    assert ast.get_docstring(TREES[name]), f"{name} has no docstring"
    for node in TREES[name].body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            documented = node.name.startswith("_") or ast.get_docstring(node)
            assert documented, f"{name}:{node.lineno} {node.name} has no docstring"


METRIC = re.compile(r"\b(?:lanewise_[a-z_]+|vllm:[a-z_]+)")


def test_dashboards_and_rules_ask_for_metrics_that_exist() -> None:
    known = metric_names() | SUPERVISOR_METRICS
    files = [*(ROOT / "dashboards").glob("*.json"), *(ROOT / "dashboards").glob("*.rules.yml")]
    assert files
    for path in files:
        asked = set(METRIC.findall(path.read_text()))
        assert asked <= known, f"{path.name}: {sorted(asked - known)}"


def test_every_metric_of_ours_is_on_a_dashboard() -> None:
    shown: set[str] = set()
    for path in (ROOT / "dashboards").glob("*.json"):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", ()):
                shown.update(METRIC.findall(target["expr"]))
    family = re.compile(r"_(bucket|sum|count)$")
    names = metric_names() | SUPERVISOR_METRICS
    ours = {family.sub("", name) for name in names if name.startswith("lanewise_")}
    missing = ours - {family.sub("", name) for name in shown}
    assert not missing, f"on no panel: {sorted(missing)}"
