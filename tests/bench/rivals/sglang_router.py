"""Runs SGLang's router, from PyPI (`sglang-router`)."""

from pathlib import Path

from tests.bench.rivals.rival import Rival, Started, Upstream, same, venv_of, version_of
from tests.e2e.gateway_process import free_port


def install(folder: Path) -> str:
    """Installs a wheel with the Rust library."""
    return version_of(venv_of(folder, "sglang-router"), "sglang-router")


def start(folder: Path, scratch: Path, port: int, upstream: Upstream) -> Started:
    """Says how to start its default, cache-aware policy over one worker under two names."""
    binary = str(folder / "venv" / "bin" / "sglang-router")
    workers = [upstream.url, f"http://localhost:{upstream.port}"]
    command = [binary, "launch", "--host", "127.0.0.1", "--port", str(port), "--worker-urls"]
    metrics = ["--prometheus-host", "127.0.0.1", "--prometheus-port", str(free_port())]
    command += [*workers, *metrics, "--log-level", "warn"]
    return Started(command, {}, base_path="/v1", ready_path="/readiness")


RIVAL = Rival(
    name="sglang-router",
    routes=True,
    modes=same("fake", "responses-sse", "chat-sse", "chat-json"),
    install=install,
    start=start,
)
