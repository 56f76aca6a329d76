"""Tests an engine in a process of its own: alone, behind a gateway, lost, and back again."""

import asyncio
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from openai import OpenAI
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.e2e.admin_api import ask
from tests.e2e.gateway_process import (
    CONFIG,
    DEVELOPMENT_KEY,
    FAST_ONLY_KEY,
    GatewayProcess,
    served,
    served_cleanly,
    wait_until_at_rest,
)
from tests.e2e.socket_client import SocketClient

LINKED = """
[[backends]]
kind = "link"
name = "remote-wafer"
options = {{ url = "ws://127.0.0.1:{port}/v1/link", key = "{key}", model = "lanewise-fast" }}

[[backends]]
kind = "gpu"
"""

PROMPT = "Write a function that merges two sorted lists, with tests."


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory, redis_url: str) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("engine")
    with served(folder, "--redis", redis_url, engine="wafer") as process:
        yield process
        assert process.stop() == 0, process.log


@pytest.fixture(scope="module")
def linked(
    tmp_path_factory: pytest.TempPathFactory, redis_url: str, engine: GatewayProcess
) -> Iterator[GatewayProcess]:
    with linking(tmp_path_factory.mktemp("linked"), redis_url, engine) as process:
        yield process


@contextlib.contextmanager
def linking(folder: Path, redis_url: str, engine: GatewayProcess) -> Iterator[GatewayProcess]:
    """Gives a gateway whose fast engine is that process."""
    config = folder / "linked.toml"
    config.write_text(CONFIG + LINKED.format(port=engine.port, key=DEVELOPMENT_KEY))
    with served_cleanly(config, redis_url) as process:
        _wait_for_backend(process, up=True)
        yield process


def _wait_for_backend(gateway: GatewayProcess, *, up: bool) -> None:
    deadline = time.monotonic() + 60.0
    while gateway.metrics().total("lanewise_backend_up", backend="remote-wafer") != up:
        assert time.monotonic() < deadline, gateway.log
        time.sleep(0.05)


def _client(server: GatewayProcess) -> OpenAI:
    return OpenAI(base_url=server.base_url, api_key=DEVELOPMENT_KEY, max_retries=0)


def test_an_engine_alone_speaks_both_protocols(engine: GatewayProcess) -> None:
    with _client(engine) as client:
        (model,) = [entry.id for entry in client.models.list() if entry.id != "auto"]
        answer = client.responses.create(model=model, input=PROMPT)
        assert answer.output_text
        messages = [{"role": "user", "content": PROMPT}]
        chat = client.chat.completions.create(model=model, messages=messages)  # type: ignore[arg-type]
        assert chat.choices[0].message.content == answer.output_text
    wait_until_at_rest(engine)


async def test_the_link_carries_what_the_engine_says(
    engine: GatewayProcess, linked: GatewayProcess
) -> None:
    """The text is the same as from the engine itself; many streams share the link's frames."""
    with _client(engine) as client:
        own_model = next(entry.id for entry in client.models.list() if entry.id != "auto")
        prompts = [f"{PROMPT} Variant {n}." for n in range(8)]
        direct = [client.responses.create(model=own_model, input=p) for p in prompts]
    async with SocketClient.open(linked) as connection:
        for n, prompt in enumerate(prompts):
            await connection.create(prompt, stream_id=f"s{n}")
        texts: dict[str, str] = {}
        while len(texts) < len(prompts):
            event = await connection.next_type("response.completed")
            (message,) = event["response"]["output"]
            texts[event["stream_id"]] = message["content"][0]["text"]
            assert event["response"]["routing"]["backends"][0]["name"] == "remote-wafer"
    assert [texts[f"s{n}"] for n in range(8)] == [answer.output_text for answer in direct]
    wait_until_at_rest(engine)


async def test_warm_ups_and_cancels_reach_the_engine(
    engine: GatewayProcess, linked: GatewayProcess
) -> None:
    async with SocketClient.open(linked) as connection:
        long = "Read this. " + "It is a long text. " * 400
        warm_up = {"model": "lanewise-fast", "generate": False}
        warm = await connection.turn([{"role": "user", "content": long}], **warm_up)
        num_tokens = warm["usage"]["input_tokens"]
        (told,) = warm["routing"]["warm"]
        assert (told["backend"], told["state"]) == ("remote-wafer", "held")
        assert told["held_tokens"] == num_tokens
        turn = await connection.turn("Is it?", previous_response_id=warm["id"])
        assert turn["usage"]["input_tokens_details"]["cached_tokens"] >= num_tokens - 16
        await connection.create([{"role": "user", "content": long * 12}], **warm_up)
        await connection.next_type("response.in_progress")
    wait_until_at_rest(engine)
    async with SocketClient.open(linked) as connection:
        await connection.create("Write 20000 tokens about queues.")
        await connection.next_type("response.output_text.delta")
        assert engine.metrics().total("lanewise_backend_inflight") == 1
        # The gateway repeats it, and says that it does.
        assert linked.metrics().total("lanewise_backend_linked", backend="remote-wafer") == 1
    wait_until_at_rest(engine)


async def test_a_lost_engine_ends_its_streams_and_comes_back(
    tmp_path: Path, redis_url: str
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        engine = stack.enter_context(served(tmp_path, "--redis", redis_url, engine="wafer"))
        linked = stack.enter_context(linking(tmp_path, redis_url, engine))
        connection = await stack.enter_async_context(SocketClient.open(linked))
        await connection.create("Write 20000 tokens about queues.")
        await connection.next_type("response.output_text.delta")
        engine.process.kill()
        engine.process.wait()
        failed = await connection.next_type("response.failed", "response.completed")
        assert failed["type"] == "response.failed"
        assert failed["response"]["error"]["code"] == "server_error"
        _wait_for_backend(linked, up=False)
        # Others that link it find it down as well, so this gateway stays in use.
        ready = await asyncio.to_thread(httpx.get, f"{linked.url}/readyz")
        assert (ready.status_code, ready.json()["backends_down"]) == (200, ["remote-wafer"])
        # The router's own choice goes elsewhere; a pin on the lost engine is refused.
        answer = await connection.turn("Hi.", model="auto", max_output_tokens=16)
        assert answer["routing"]["backends"][0]["name"] == "gpu"
        await connection.create("Hi.", model="lanewise-fast")
        refusal = await connection.next_type("error")
        assert refusal["status"] == 503
        assert int(refusal["error"]["headers"]["retry-after"]) >= 1
        with served(tmp_path, "--redis", redis_url, engine="wafer", port=engine.port):
            _wait_for_backend(linked, up=True)
            answer = await connection.turn("Hi.", model="lanewise-fast", max_output_tokens=16)
            assert answer["status"] in ("completed", "incomplete")


def test_a_link_is_for_those_who_may_use_the_engine_and_ends_with_its_key(
    tmp_path: Path, redis_url: str
) -> None:
    config = tmp_path / "offering.toml"
    config.write_text(
        CONFIG + "[server]\nserves_link = true\n[[backends]]\nkind = 'gpu'\nname = 'gpu'\n"
    )
    with served(tmp_path, "--config", str(config), "--redis", redis_url) as offering:
        url = offering.socket_url.replace("responses", "link")

        def link(key: str) -> ClientConnection:
            return connect(url, additional_headers={"authorization": f"Bearer {key}"})

        with pytest.raises(InvalidStatus) as refused:
            link(FAST_ONLY_KEY)
        assert refused.value.response.status_code == 403
        status, made = ask(offering, "POST", "/admin/keys", {"tenant": "dev"})
        assert status == 201
        with link(made["key"]) as connection:
            assert connection.recv(timeout=60)  # the engine's first word
            ask(offering, "POST", f"/admin/keys/{made['record']['id']}/revoke", {})
            with pytest.raises(ConnectionClosed) as closed:
                list(connection)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1008
