"""Runs TensorZero's gateway, from PyPI (`tensorzero`).

Its gateway's own binary comes as a container only. The wheel holds the same gateway as a library:
what `patch_openai_client` starts, an HTTP server in threads of the process, is started here by a
process that does nothing else.
"""

from pathlib import Path

from tests.bench.rivals.rival import Rival, Started, Upstream, same, venv_of, version_of

CONFIG = """\
[gateway]
observability.enabled = false

[models.fake]
routing = ["upstream"]

[models.fake.providers.upstream]
type = "openai"
model_name = "fake"
api_base = "{url}/v1/"
api_key_location = "none"
"""
SERVE = """\
import sys, threading
from tensorzero.tensorzero import _start_http_gateway
gateway = _start_http_gateway(
    config_file=sys.argv[1], clickhouse_url=None, postgres_url=None, valkey_url=None,
    async_setup=False,
)
print(gateway.base_url, flush=True)
threading.Event().wait()
"""


def install(folder: Path) -> str:
    """Installs the client's wheel, which holds the gateway."""
    return version_of(venv_of(folder, "tensorzero"), "tensorzero")


def start(folder: Path, scratch: Path, port: int, upstream: Upstream) -> Started:
    """Says how to start it without its database: nothing is recorded. It prints its port."""
    config, script = scratch / "tensorzero.toml", scratch / "serve_tensorzero.py"
    config.write_text(CONFIG.format(url=upstream.url))
    script.write_text(SERVE)
    python = str(folder / "venv" / "bin" / "python")
    return Started(
        [python, str(script), str(config)],
        {"RUST_LOG": "warn"},
        base_path="/openai/v1",
        port_in_log="http://127.0.0.1:",
    )


RIVAL = Rival(
    name="TensorZero",
    routes=True,
    modes=same("tensorzero::model_name::fake", "chat-sse", "chat-json"),
    install=install,
    start=start,
    note="its gateway as the wheel holds it, inside an idle Python process; no database",
)
