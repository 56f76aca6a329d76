"""Tests warm-ups against a real gateway: held where the next turn goes, out of everybody's way."""

import asyncio
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from tests.e2e.gateway_process import DEVELOPMENT_KEY, GatewayProcess, wait_until_at_rest
from tests.e2e.socket_client import SocketClient, text_of

MODELS = {"lanewise-fast": "wafer", "lanewise-deep": "gpu"}
SHORT = {"store": False, "max_output_tokens": 16}


def document(num_words: int) -> dict[str, Any]:
    """Returns a message that no engine has seen."""
    text = f"Document {uuid.uuid4()}. " + "Add one row per month. " * (num_words // 5)
    return {"role": "user", "content": text}


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[GatewayProcess]:
    """Gives a gateway of its own, which has learned nothing from other tests."""
    gateway = GatewayProcess(tmp_path)
    try:
        gateway.wait_until_ready()
        yield gateway
    finally:
        assert gateway.stop() == 0, gateway.log


@pytest.mark.parametrize("model", MODELS)
async def test_the_next_turn_finds_its_context_computed(
    gateway: GatewayProcess, model: str
) -> None:
    before = gateway.metrics()
    async with SocketClient.open(gateway) as connection:
        warm = await connection.turn([document(3_000)], model=model, generate=False, store=False)
        num_tokens = warm["usage"]["input_tokens"]
        (told,) = warm["routing"]["warm"]
        assert told == {
            "backend": MODELS[model],
            "state": "held",
            "held_tokens": num_tokens,
            "cached_tokens": 0,
        }
        turn = await connection.turn(
            "Is that so?", model=model, previous_response_id=warm["id"], **SHORT
        )
    cached = turn["usage"]["input_tokens_details"]["cached_tokens"]
    assert num_tokens - 16 <= cached <= num_tokens, "all but what fills no block"
    after = gateway.metrics()
    held = {"backend": MODELS[model], "state": "held"}
    name = "lanewise_warm_ups_total"
    assert after.total(name, **held) == before.total(name, **held) + 1
    name = "lanewise_warm_up_tokens_total"
    backend = MODELS[model]
    computed = after.total(name, backend=backend) - before.total(name, backend=backend)
    assert computed == num_tokens


async def test_a_conversation_goes_on_where_it_was_warmed_up(fresh: GatewayProcess) -> None:
    """The warm-up names its engine; the turn leaves the choice open, and so does its ask."""
    async with SocketClient.open(fresh) as connection:
        hints = {"metadata": {"route": "deep"}, "generate": False, "store": False}
        warm = await connection.turn([document(8_000)], model="auto", **hints)
        assert warm["routing"]["warm"][0]["backend"] == "gpu"
        ask = "Improve the cache in it."
        cold = await connection.turn(ask, model="auto", **SHORT)
        assert cold["routing"]["class"]["label"] == "uncertain"
        turn = await connection.turn(ask, model="auto", previous_response_id=warm["id"], **SHORT)
    assert turn["routing"]["route"] == "deep"
    assert "the deep engine holds" in turn["routing"]["why"]


def test_a_client_without_a_socket_prewarms_too(gateway: GatewayProcess) -> None:
    """It sends its whole context again, without naming a parent."""
    context: Any = [document(2_000)]
    with OpenAI(base_url=gateway.base_url, api_key=DEVELOPMENT_KEY, max_retries=0) as client:
        prewarm: Any = {"prewarm": True}
        warm = client.responses.create(
            model="lanewise-fast", input=context, prompt_cache_options=prewarm, store=False
        )
        assert warm.output == []
        ask: Any = {"role": "user", "content": "Is that so?"}
        turn = client.responses.create(
            model="lanewise-fast", input=[*context, ask], max_output_tokens=16, store=False
        )
    assert warm.usage is not None
    assert turn.usage is not None
    assert turn.usage.input_tokens_details.cached_tokens >= warm.usage.input_tokens - 16


async def test_a_turn_sent_at_once_does_not_wait(gateway: GatewayProcess) -> None:
    """The deep engine would take ten seconds for that context, and does not hold the turn up."""
    async with SocketClient.open(gateway) as connection:
        long = [document(60_000)]
        warm_up = {"model": "lanewise-deep", "generate": False, "store": False}
        await connection.create(long, **warm_up)
        created = await connection.next_type("response.created")
        target = created["response"]["id"]
        fast = {"model": "lanewise-fast", "previous_response_id": target, **SHORT}
        await connection.create("Is that so?", **fast)
        warm = (await connection.terminal())["response"]
        assert (warm["id"], warm["status"]) == (target, "completed")
        (told,) = warm["routing"]["warm"]
        assert told["state"] == "cut"
        turn = (await connection.terminal())["response"]
        assert text_of(turn)
        assert turn["routing"]["moved_from"] == "gpu"


async def test_who_leaves_or_cancels_takes_the_warm_up_along(gateway: GatewayProcess) -> None:
    async with SocketClient.open(gateway) as connection:
        ask = {"model": "lanewise-deep", "generate": False, "store": False}
        await connection.create([document(60_000)], stream_id="cancelled", **ask)
        created = await connection.next_type("response.created")
        cancel = {"type": "response.cancel", "response_id": created["response"]["id"]}
        await connection.send(cancel)
        terminal = await connection.terminal("cancelled")
        assert terminal["response"]["incomplete_details"]["reason"] == "cancelled"
        await connection.create([document(60_000)], **ask)
        await connection.next_type("response.in_progress")
        connection.socket.transport.abort()
    await asyncio.to_thread(wait_until_at_rest, gateway)
