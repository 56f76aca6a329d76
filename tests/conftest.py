"""Limits how long every test may take, and offers real Redis and Valkey servers."""

import os
import ssl
import subprocess
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from redis import Redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from gateway.process.embedded_redis import server_binaries
from tests.patience import limited

# Each of httpx's clients reads a file of authorities, in 24 ms, and the tests make many that ask
# none of them. From a folder an authority is read when it is asked for.
os.environ.pop("SSL_CERT_FILE", None)
os.environ.setdefault("SSL_CERT_DIR", ssl.get_default_verify_paths().openssl_capath)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, None, None]:
    with limited():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    mark = item.get_closest_marker("patience")
    with limited(*(() if mark is None else mark.args)):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, None, None]:
    with limited():
        return (yield)


@pytest.fixture
def short_path() -> Iterator[Path]:
    """Gives a folder whose path leaves room for a socket's, unlike that of `tmp_path`."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="lw") as folder:
        yield Path(folder)


@pytest.fixture(scope="session", params=server_binaries())
def redis_server(request: pytest.FixtureRequest) -> Iterator[str]:
    """Gives the URL of a server on a unix socket: each that this machine has, one by one."""
    with tempfile.TemporaryDirectory(prefix="lanewise-test-") as folder:
        socket = Path(folder) / "redis.sock"
        command = [request.param, "--port", "0", "--unixsocket", str(socket)]
        command += ["--save", "", "--appendonly", "no", "--dir", folder]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
            try:
                patience = Retry(ConstantBackoff(0.01), 500)
                with Redis(unix_socket_path=str(socket), retry=patience) as client:
                    client.ping()
                yield f"unix://{socket}"
            finally:
                server.terminate()


@pytest.fixture
def redis_url(redis_server: str) -> str:
    """Returns the server's URL, with nothing stored in it."""
    with Redis.from_url(redis_server) as client:
        client.flushall()
    return redis_server
