"""Offers one gateway for all end-to-end tests, with tenants that meet limits, on a real Redis."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import redis
from openai import AsyncOpenAI, OpenAI

from tests.e2e.gateway_process import (
    CONFIG,
    DEVELOPMENT_KEY,
    GatewayProcess,
    redis_server,
    served_cleanly,
)
from tests.e2e.socket_client import SocketClient


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    """Gives a short-lived and short-named folder: a unix socket's path must fit 108 bytes."""
    with tempfile.TemporaryDirectory(prefix="lw-e2e-") as name:
        yield Path(name)


@pytest.fixture(scope="session")
def redis_url(folder: Path) -> Iterator[str]:
    with redis_server(folder) as url:
        yield url


@pytest.fixture(scope="session")
def redis_client(redis_url: str) -> Iterator["redis.Redis[bytes]"]:
    client = redis.Redis.from_url(redis_url)
    yield client
    client.close()


@pytest.fixture(scope="session")
def gateway(folder: Path, redis_url: str) -> Iterator[GatewayProcess]:
    config = folder / "lanewise.toml"
    config.write_text(CONFIG)
    with served_cleanly(config, redis_url) as process:
        yield process


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Adds the end of the gateway's log to a failure."""
    report = yield
    process = getattr(item, "funcargs", {}).get("gateway")
    if report.failed and isinstance(process, GatewayProcess):
        report.sections.append(("gateway log", process.log[-6000:]))
    return report


@pytest.fixture
def client(gateway: GatewayProcess) -> Iterator[OpenAI]:
    with OpenAI(base_url=gateway.base_url, api_key=DEVELOPMENT_KEY, max_retries=0) as client:
        yield client


@pytest.fixture
async def async_client(gateway: GatewayProcess) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(
        base_url=gateway.base_url, api_key=DEVELOPMENT_KEY, max_retries=0
    ) as client:
        yield client


@pytest.fixture
async def connection(gateway: GatewayProcess) -> AsyncIterator[SocketClient]:
    async with SocketClient.open(gateway) as client:
        yield client
