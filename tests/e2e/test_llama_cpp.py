"""Tests a gateway before a server that we did not write: llama.cpp's, with a model made here."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from openai import BadRequestError, OpenAI

pytest.importorskip("xllamacpp", reason="no wheel of llama.cpp for this machine")

from tests.e2e.gateway_process import (
    CONFIG,
    DEVELOPMENT_KEY,
    GatewayProcess,
    wait_until_at_rest,
)
from tests.e2e.llama_model import CALL_ARGUMENTS, LOOP, SENTENCE
from tests.e2e.llama_process import LlamaServer
from tests.e2e.socket_client import SocketClient, calls_of, text_of

PROTOCOLS = ("chat", "responses")

BACKEND = """
[[backends]]
kind = "upstream"
name = "{protocol}"
[backends.options]
group = "fast"
protocol = "{protocol}"
model = "{protocol}"
upstream_model = "tiny"
base_url = "http://127.0.0.1:{port}/v1"
max_num_seqs = 2
probe_interval_s = 0.2
"""

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    }
]


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaServer]:
    server = LlamaServer(tmp_path_factory.mktemp("llama"))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def front(
    tmp_path_factory: pytest.TempPathFactory, llama: LlamaServer, redis_url: str
) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("front")
    config = folder / "front.toml"
    backends = [BACKEND.format(protocol=protocol, port=llama.port) for protocol in PROTOCOLS]
    config.write_text(CONFIG + "".join(backends))
    process = GatewayProcess(folder, "--config", str(config), "--redis", redis_url)
    process.wait_until_ready()
    deadline = time.monotonic() + 60.0
    while process.metrics().total("lanewise_backend_up") < len(PROTOCOLS):
        assert time.monotonic() < deadline, process.log
        time.sleep(0.05)
    yield process
    wait_until_at_rest(process)
    assert process.stop() == 0, process.log
    assert "Traceback" not in process.log, process.log


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_it_says_what_the_model_says(front: GatewayProcess, protocol: str) -> None:
    async with SocketClient.open(front) as connection:
        response = await connection.turn("Say the sentence.", model=protocol)
        assert text_of(response) == "".join(SENTENCE)
        assert response["status"] == "completed"
        assert response["usage"]["output_tokens"] == len(SENTENCE) + 1  # and the end
        assert response["routing"]["backends"][0]["simulated"] is False
        again = await connection.turn(
            "And again.", model=protocol, previous_response_id=response["id"]
        )
        assert text_of(again) == "".join(SENTENCE)
        assert again["usage"]["input_tokens"] > response["usage"]["input_tokens"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_it_calls_a_tool_and_takes_its_output(front: GatewayProcess, protocol: str) -> None:
    async with SocketClient.open(front) as connection:
        first = await connection.turn("What is the weather?", model=protocol, tools=TOOLS)
        (call,) = calls_of(first)
        assert call["name"] == "get_weather"
        assert json.loads(call["arguments"]) == CALL_ARGUMENTS
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "18 C."}
        second = await connection.turn(
            [output], model=protocol, tools=TOOLS, previous_response_id=first["id"]
        )
        assert text_of(second) == "".join(SENTENCE)


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_it_stops_at_the_token_limit(front: GatewayProcess, protocol: str) -> None:
    async with SocketClient.open(front) as connection:
        response = await connection.turn("Go!", model=protocol, max_output_tokens=20)
    assert response["status"] == "incomplete"
    assert response["incomplete_details"]["reason"] == "max_output_tokens"
    assert text_of(response) == "".join(LOOP) * 10
    assert response["usage"]["output_tokens"] == 20


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_cancelling_stops_its_generation(
    front: GatewayProcess, llama: LlamaServer, protocol: str
) -> None:
    before = llama.metric("tokens_predicted_total")
    async with SocketClient.open(front) as connection:
        never = {"rejoin": "never"}
        await connection.create("Go!", model=protocol, max_output_tokens=15_000, metadata=never)
        await connection.next_type("response.output_text.delta")
        connection.socket.transport.abort()
    llama.wait_until_idle()
    assert llama.metric("tokens_predicted_total") - before < 15_000
    wait_until_at_rest(front)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_its_refusals_are_the_clients_to_read(front: GatewayProcess, protocol: str) -> None:
    with OpenAI(base_url=front.base_url, api_key=DEVELOPMENT_KEY, max_retries=0) as client:
        with pytest.raises(BadRequestError) as refusal:
            client.responses.create(model=protocol, input="Long? " * 3_000)
        assert refusal.value.code == "context_length_exceeded"
        answer = client.responses.create(model=protocol, input="Say the sentence.")
    assert answer.output_text == "".join(SENTENCE)
