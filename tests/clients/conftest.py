"""Offers a gateway on both simulated engines, and the clients' environments."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients import environments
from tests.e2e.gateway_process import CONFIG, GatewayProcess, redis_server, served


@pytest.fixture(scope="session")
def gateway() -> Iterator[GatewayProcess]:
    with tempfile.TemporaryDirectory(prefix="lw-clients-") as name, redis_server(Path(name)) as url:
        config = Path(name) / "lanewise.toml"
        config.write_text(CONFIG)
        with served(Path(name), "--config", str(config), "--redis", url) as process:
            yield process
            assert "Traceback" not in process.log, process.log


@pytest.fixture(scope="session")
def node_modules() -> Path:
    """Returns the folder of npm's packages."""
    return environments.node_modules()


@pytest.fixture(scope="session")
def agents() -> Path:
    """Returns the Python that has the agent frameworks."""
    return environments.python_of("agents")


@pytest.fixture(scope="session")
def libraries() -> Path:
    """Returns the Python that has the libraries which hold the OpenAI SDK at an earlier version."""
    return environments.python_of("libraries")


@pytest.fixture(scope="session")
def examples() -> None:
    """Installs what `make example` installs."""
    environments.examples()
