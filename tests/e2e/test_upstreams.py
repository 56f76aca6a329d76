"""Tests a gateway whose backends are another gateway, over all three protocols."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import BadRequestError, OpenAI

from tests.e2e.fronts import KEY_ENV, UPSTREAM, served, wait_for_backend
from tests.e2e.gateway_process import (
    DEVELOPMENT_KEY,
    GatewayProcess,
    free_port,
    wait_until_at_rest,
)
from tests.e2e.socket_client import TERMINALS, SocketClient, calls_of, text_of

# Backend's name -> what is particular about it. Each is the fast engine of the gateway behind.
UPSTREAMS = {
    "chat": 'protocol = "chat"',
    "responses": 'protocol = "responses"',
    "socket": 'protocol = "responses-ws"',
    "streams": 'protocol = "responses-ws"\nmax_streams_per_socket = 4\ncancel_event = true',
}

PROMPT = "Write a function that merges two sorted lists, with tests."
LONG = "Write a guide to sorting of 16,000 tokens."
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
    },
    {"type": "custom", "name": "run_sql", "description": "Run a query."},
]


@pytest.fixture(scope="module")
def front(
    tmp_path_factory: pytest.TempPathFactory, gateway: GatewayProcess, redis_url: str
) -> Iterator[GatewayProcess]:
    """Gives a gateway with one upstream per protocol, all of them `gateway`."""
    folder = tmp_path_factory.mktemp("front")
    backends = [
        UPSTREAM.format(name=name, group="fast", port=gateway.port, key_env=KEY_ENV, more=more)
        for name, more in UPSTREAMS.items()
    ]
    deep = 'protocol = "responses"'
    backends.append(
        UPSTREAM.format(name="deep", group="deep", port=gateway.port, key_env=KEY_ENV, more=deep)
    )
    yield from served(folder, redis_url, "".join(backends), [*UPSTREAMS, "deep"])


def _client(server: GatewayProcess) -> OpenAI:
    return OpenAI(base_url=server.base_url, api_key=DEVELOPMENT_KEY, max_retries=0)


@pytest.mark.parametrize("name", UPSTREAMS)
def test_the_answer_is_the_upstreams(
    gateway: GatewayProcess, front: GatewayProcess, name: str
) -> None:
    with _client(gateway) as behind, _client(front) as before:
        direct = behind.responses.create(model="lanewise-fast", input=PROMPT)
        relayed = before.responses.create(model=name, input=PROMPT)
    assert relayed.output_text == direct.output_text
    assert relayed.usage is not None
    assert direct.usage is not None
    assert relayed.usage.output_tokens == direct.usage.output_tokens
    assert relayed.usage.input_tokens == direct.usage.input_tokens
    backend = relayed.model_extra["routing"]["backends"][0]  # type: ignore[index]
    assert (backend["name"], backend["simulated"]) == (name, False)


@pytest.mark.parametrize("name", ["socket", "streams"])
async def test_a_conversation_goes_on_from_what_the_upstream_holds(
    front: GatewayProcess, name: str
) -> None:
    """It is warmed up there, too: the engine behind computes the context once."""
    before = front.metrics()
    context = {"role": "user", "content": f"For {name}, read this. " + "It is long. " * 2_000}
    async with SocketClient.open(front) as connection:
        asking = {"model": name, "store": False}
        warm = await connection.turn([context], generate=False, **asking)
        num_tokens = warm["usage"]["input_tokens"]
        (told,) = warm["routing"]["warm"]
        assert (told["backend"], told["state"], told["held_tokens"]) == (name, "held", num_tokens)
        last = warm
        for text in ("Is that so?", "Write a haiku of it.", "Now a limerick."):
            last = await connection.turn(text, previous_response_id=last["id"], **asking)
            assert last["usage"]["input_tokens"] > num_tokens, "the whole context counts"
            cached = last["usage"]["input_tokens_details"]["cached_tokens"]
            assert cached >= num_tokens - 16
    after = front.metrics()
    continued = "lanewise_upstream_continued_total"
    assert after.total(continued, backend=name) == before.total(continued, backend=name) + 3
    assert after.total("lanewise_upstream_chains_lost_total") == 0


def test_an_upstream_without_warm_ups_gets_a_connection(front: GatewayProcess) -> None:
    with _client(front) as client:
        prewarm: Any = {"prewarm": True}
        warm = client.responses.create(model="chat", input=PROMPT, prompt_cache_options=prewarm)
    assert warm.status == "completed"
    (told,) = warm.model_extra["routing"]["warm"]  # type: ignore[index]
    assert (told["backend"], told["state"], told["held_tokens"]) == ("chat", "opened", 0)


@pytest.mark.parametrize("name", UPSTREAMS)
async def test_calls_and_their_outputs_pass_through(front: GatewayProcess, name: str) -> None:
    async with SocketClient.open(front) as connection:
        ask = {"role": "user", "content": "What is the weather in Paris?"}
        first = await connection.turn(
            [ask], model=name, tools=TOOLS, tool_choice={"type": "function", "name": "get_weather"}
        )
        (call,) = calls_of(first)
        assert call["name"] == "get_weather"
        assert "city" in json.loads(call["arguments"])
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "18 C"}
        second = await connection.turn(
            [output], model=name, tools=TOOLS, previous_response_id=first["id"]
        )
        assert second["status"] == "completed"
        assert text_of(second)


@pytest.mark.parametrize("name", UPSTREAMS)
async def test_a_custom_tool_passes_through(front: GatewayProcess, name: str) -> None:
    async with SocketClient.open(front) as connection:
        response = await connection.turn(
            "List the tables.",
            model=name,
            tools=TOOLS,
            tool_choice={"type": "custom", "name": "run_sql"},
        )
    (call,) = response["output"]
    assert (call["type"], call["name"]) == ("custom_tool_call", "run_sql")
    assert isinstance(call["input"], str)
    assert not call["input"].startswith("{"), "the wrapping is ours"


async def test_reasoning_passes_through(gateway: GatewayProcess, front: GatewayProcess) -> None:
    ask = {
        "input": "Prove that the square root of two is irrational. Use 200 tokens.",
        "reasoning": {"effort": "low", "summary": "auto"},
        "max_output_tokens": 300,
    }
    async with SocketClient.open(gateway) as connection:
        direct = await connection.turn(model="lanewise-deep", **ask)
    async with SocketClient.open(front) as connection:
        relayed = await connection.turn(model="deep", **ask)
    kinds = [item["type"] for item in direct["output"]]
    assert [item["type"] for item in relayed["output"]] == kinds
    assert relayed["status"] == direct["status"]
    assert relayed["usage"] == direct["usage"] | {
        "input_tokens_details": relayed["usage"]["input_tokens_details"]
    }


@pytest.mark.parametrize("name", UPSTREAMS)
def test_an_image_reaches_the_upstream(front: GatewayProcess, name: str) -> None:
    """The engines behind take no images, and say so: that is how we know that one came."""
    image = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}
    text = {"type": "input_text", "text": "What is this?"}
    ask: Any = [{"role": "user", "content": [text, image]}]
    with _client(front) as client, pytest.raises(BadRequestError, match=r"upstream.*Images cannot"):
        client.responses.create(model=name, input=ask)


@pytest.mark.parametrize("name", UPSTREAMS)
def test_a_token_limit_is_the_upstreams(front: GatewayProcess, name: str) -> None:
    with _client(front) as client:
        response = client.responses.create(model=name, input=LONG, max_output_tokens=20)
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.usage is not None
    assert response.usage.output_tokens == 20


@pytest.mark.parametrize("name", ["chat", "responses", "socket"])
def test_a_stop_sequence_holds(front: GatewayProcess, name: str) -> None:
    """Responses knows none, so there it is found on the way."""
    with _client(front) as client:
        messages: Any = [{"role": "user", "content": PROMPT}]
        whole = client.chat.completions.create(model=name, messages=messages)
        text = whole.choices[0].message.content
        assert text is not None
        stop = text[len(text) // 2 :][:6]
        cut = client.chat.completions.create(model=name, messages=messages, stop=[stop])
    assert cut.choices[0].finish_reason == "stop"
    assert cut.choices[0].message.content == text.partition(stop)[0]


@pytest.mark.parametrize("name", [*UPSTREAMS, "deep"])
async def test_cancelling_reaches_the_upstream(
    gateway: GatewayProcess, front: GatewayProcess, name: str
) -> None:
    # The upstream's own sockets stay open: those of other upstreams in this module too.
    kept = frozenset({"lanewise_ws_connections"})
    async with SocketClient.open(front) as connection:
        await connection.create(LONG, model=name, max_output_tokens=16_000)
        event = await connection.next_type("response.output_text.delta")
        assert gateway.metrics().total("lanewise_backend_inflight") == 1
        response_id = next(
            e["response"]["id"] for e in connection.received if e["type"] == "response.created"
        )
        await connection.send({"type": "response.cancel", "response_id": response_id})
        terminal = await connection.terminal()
        assert terminal["response"]["incomplete_details"]["reason"] == "cancelled"
        wait_until_at_rest(gateway, but=kept)
        again = await connection.turn("Say hello.", model=name)
        assert again["status"] == "completed"
    assert event["delta"]


@pytest.mark.parametrize("name", UPSTREAMS)
async def test_a_client_that_leaves_stops_the_upstream(
    gateway: GatewayProcess, front: GatewayProcess, name: str
) -> None:
    async with SocketClient.open(front) as connection:
        never = {"rejoin": "never"}
        await connection.create(LONG, model=name, max_output_tokens=16_000, metadata=never)
        await connection.next_type("response.output_text.delta")
        connection.socket.transport.abort()
    wait_until_at_rest(front)
    wait_until_at_rest(gateway, but=frozenset({"lanewise_ws_connections"}))


async def test_streams_run_side_by_side(gateway: GatewayProcess, front: GatewayProcess) -> None:
    """Each of four streams of a shared socket has its own answer."""
    prompts = [f"{PROMPT} Variant {n}." for n in range(9)]
    with _client(gateway) as behind:
        direct = [behind.responses.create(model="lanewise-fast", input=p) for p in prompts]
    async with SocketClient.open(front) as connection:
        for n, prompt in enumerate(prompts):
            await connection.create(prompt, model="streams", stream_id=f"s{n}")
        texts: dict[str, str] = {}
        while len(texts) < len(prompts):
            event = await connection.next_type("response.completed")
            texts[event["stream_id"]] = text_of(event["response"])
    assert [texts[f"s{n}"] for n in range(9)] == [answer.output_text for answer in direct]


async def test_a_killed_upstream_fails_the_responses_and_comes_back(
    tmp_path: Path, redis_url: str
) -> None:
    names, port = ("chat", "socket"), free_port()
    (tmp_path / "engine").mkdir()
    engine = GatewayProcess(tmp_path / "engine", "--redis", redis_url, engine="wafer", port=port)
    engine.wait_until_ready()
    with _client(engine) as client:
        model = next(entry.id for entry in client.models.list() if entry.id != "auto")
    backends = "".join(
        UPSTREAM.format(name=name, group="fast", port=port, key_env=KEY_ENV, more=UPSTREAMS[name])
        for name in names
    ).replace("lanewise-fast", model)
    serving = served(tmp_path, redis_url, backends, [*names])
    front = next(serving)
    try:
        async with SocketClient.open(front) as connection:
            for name in names:
                asked = {"model": name, "stream_id": name, "max_output_tokens": 16_000}
                await connection.create(LONG, **asked)
                delta: dict[str, Any] = {}
                while delta.get("stream_id") != name:
                    delta = await connection.next_type("response.output_text.delta")
            engine.process.kill()
            ended = [await connection.next_type(*TERMINALS) for _ in names]
            assert {event["stream_id"] for event in ended} == {*names}
            for terminal in ended:
                assert terminal["type"] == "response.failed"
                assert terminal["response"]["error"]["code"] == "server_error"
            for name in names:
                wait_for_backend(front, name, up=False)
            engine.process.wait()
            engine = GatewayProcess(
                tmp_path / "engine", "--redis", redis_url, engine="wafer", port=port
            )
            engine.wait_until_ready()
            for name in names:
                wait_for_backend(front, name, up=True)
                again = await connection.turn("Say hello.", model=name, stream_id=name)
                assert again["status"] == "completed"
        for _ in serving:
            pass
    finally:
        engine.stop()
        if front.process.poll() is None:
            front.process.kill()
            front.process.wait()
