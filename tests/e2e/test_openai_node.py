"""Tests the official Node SDK, over HTTP and over its WebSocket: unchanged but for its address."""

import json

import pytest

from tests.e2e.gateway_process import GatewayProcess
from tests.e2e.node_scripts import FOLDER, run_node


@pytest.fixture(autouse=True)
def _installed() -> None:
    assert (FOLDER / "node_modules" / "openai").exists(), "run `make setup`"


def test_http(gateway: GatewayProcess) -> None:
    told = run_node("http.mjs", gateway)
    assert "beryl-5" in told["chained"]
    assert told["streamed"] == told["final"]
    assert "response.created" in told["kinds"]
    assert "beryl-5" in told["chat"]
    assert told["chatChunks"] > 1
    assert set(json.loads(told["arguments"])) == {"a", "b"}
    assert "it is 5" in told["withOutput"]
    assert "lanewise-fast" in told["models"]
    assert told["errors"] == {"missing": 404, "bad": 400, "key": 401}
    assert told["routing"]["why"]


def test_socket(gateway: GatewayProcess) -> None:
    told = run_node("socket.mjs", gateway)
    assert "beryl-5" in told["chained"]
    assert told["streams"] == ["a", "b"]
    assert "gpt-0" in told["error"]
    assert "beryl-5" in told["steered"]
