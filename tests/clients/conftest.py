"""A gateway on both simulated engines, and the clients of npm; `make test` does not come here."""

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.gateway_process import CONFIG, GatewayProcess, redis_server
from tests.e2e.node_bin import node_bin

NODE = Path(__file__).parent / "node"
INSTALL_TIMEOUT_S = 900.0  # bounds a hang; Claude Code alone is 200 MB


@pytest.fixture(scope="session")
def gateway() -> Iterator[GatewayProcess]:
    with tempfile.TemporaryDirectory(prefix="lw-clients-") as name, redis_server(Path(name)) as url:
        config = Path(name) / "lanewise.toml"
        config.write_text(CONFIG)
        process = GatewayProcess(Path(name), "--config", str(config), "--redis", url)
        try:
            process.wait_until_ready()
            yield process
            assert "Traceback" not in process.log, process.log
        finally:
            process.stop()


@pytest.fixture(scope="session")
def node_modules() -> Path:
    """The folder of the packages, which are installed where they are not."""
    modules = NODE / "node_modules"
    if not modules.exists():
        binaries = node_bin()
        npm = binaries.parent / "lib/node_modules/npm/bin/npm-cli.js"
        install = ("ci", "--no-audit", "--no-fund", "--loglevel=error")
        subprocess.run(
            [str(binaries / "node"), str(npm), *install],
            cwd=NODE,
            timeout=INSTALL_TIMEOUT_S,
            check=True,
        )
    return modules
