"""Runs Portkey's gateway, from npm (`@portkey-ai/gateway`)."""

import json
from pathlib import Path

from tests.bench.rivals.rival import Rival, Started, Upstream, run, same
from tests.e2e.node_bin import node_bin

PACKAGE = "@portkey-ai/gateway"


def install(folder: Path) -> str:
    """Installs it with the Node that our own tests use."""
    package = folder / "node_modules" / PACKAGE / "package.json"
    if not package.exists():
        folder.mkdir(parents=True, exist_ok=True)
        npm = node_bin().parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        install = ["install", "--no-audit", "--no-fund", "--loglevel=error", PACKAGE]
        run([str(node_bin() / "node"), str(npm), *install, "--prefix", str(folder)])
    return str(json.loads(package.read_text())["version"])


def start(folder: Path, scratch: Path, port: int, upstream: Upstream) -> Started:
    """Says how to start it; a request's headers name the upstream."""
    server = folder / "node_modules" / PACKAGE / "build" / "start-server.js"
    command = [str(node_bin() / "node"), str(server), f"--port={port}", "--headless"]
    return Started(command, {}, base_path="/v1", ready_path="/")


RIVAL = Rival(
    name="Portkey",
    routes=True,
    modes=same("fake", "responses-sse", "chat-sse", "chat-json"),
    install=install,
    start=start,
    headers=("x-portkey-provider=openai", "x-portkey-custom-host={upstream}/v1"),
)
