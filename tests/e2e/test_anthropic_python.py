"""Tests the official Anthropic SDK, sync and async: unchanged but for its address."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import pytest
from anthropic import Anthropic, AsyncAnthropic
from anthropic.lib.tools import beta_tool
from pydantic import BaseModel

from tests.e2e.gateway_process import (
    DEVELOPMENT_KEY,
    FAST_ONLY_KEY,
    SMALL_KEY,
    GatewayProcess,
    wait_until_at_rest,
)

MODELS = ["claude-opus-5-5", "claude-lanewise-fast", "claude-lanewise-deep"]
HI: list[Any] = [{"role": "user", "content": "Explain recursion."}]
ADD: Any = {
    "name": "add",
    "description": "Adds two numbers.",
    "input_schema": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
}
EVENTS = {
    *("message_start", "content_block_start", "content_block_delta", "content_block_stop"),
    *("message_delta", "message_stop", "text", "thinking", "signature", "input_json"),
}


@pytest.fixture
def client(gateway: GatewayProcess) -> Iterator[Anthropic]:
    with Anthropic(base_url=gateway.url, api_key=DEVELOPMENT_KEY, max_retries=0) as client:
        yield client


@pytest.mark.parametrize("model", MODELS)
def test_create_and_stream(client: Anthropic, model: str) -> None:
    message = client.messages.create(model=model, max_tokens=300, messages=HI)
    assert message.content[0].type == "text"
    assert (message.model, message.role) == (model, "assistant")
    assert message.usage.input_tokens > 0
    assert message._request_id
    with client.messages.stream(model=model, max_tokens=300, messages=HI) as stream:
        events = [event.type for event in stream]
        final = stream.get_final_message()
    assert set(events) <= EVENTS
    assert events.count("text") >= 2
    assert final.stop_reason in ("end_turn", "max_tokens")
    assert final.usage.output_tokens > 0
    assert final.usage.input_tokens + (final.usage.cache_read_input_tokens or 0) > 0


@pytest.mark.parametrize("model", MODELS)
def test_a_task_with_tools_and_thinking(client: Anthropic, model: str) -> None:
    messages: list[Any] = [{"role": "user", "content": "Use the add tool on 17 and 25."}]
    with client.messages.stream(
        model=model,
        max_tokens=2_000,
        messages=messages,
        tools=[ADD],
        thinking={"type": "adaptive"},
        output_config={"effort": "high"},
    ) as stream:
        first = stream.get_final_message()
    assert first.stop_reason == "tool_use"
    (call,) = [block for block in first.content if block.type == "tool_use"]
    assert set(call.input) == {"a", "b"}
    assert all(block.signature for block in first.content if block.type == "thinking")
    answer = {"type": "tool_result", "tool_use_id": call.id, "content": "42"}
    messages += [
        {"role": "assistant", "content": [block.to_dict() for block in first.content]},
        {"role": "user", "content": [answer]},
    ]
    last = client.messages.create(model=model, max_tokens=2_000, messages=messages, tools=[ADD])
    assert last.stop_reason == "end_turn"
    assert "42" in "".join(block.text for block in last.content if block.type == "text")
    assert (last.usage.cache_read_input_tokens or 0) > 0


def test_the_tool_runner_ends(client: Anthropic) -> None:
    called: list[tuple[int, int]] = []

    @beta_tool
    def add(a: int, b: int) -> str:
        """Adds two numbers."""
        called.append((a, b))
        return "The sum is 42."

    runner = client.beta.messages.tool_runner(
        model="claude-lanewise-fast",
        max_tokens=500,
        tools=[add],
        messages=[{"role": "user", "content": "Use the add tool on 17 and 25."}],
    )
    last = runner.until_done()
    assert called == [(17, 25)]
    assert last.stop_reason == "end_turn"


def test_a_form_is_filled_in(client: Anthropic) -> None:
    class Person(BaseModel):
        name: str
        age: int

    found = client.messages.parse(
        model="claude-lanewise-fast",
        max_tokens=300,
        messages=[{"role": "user", "content": "Ada Lovelace, 36 years old."}],
        output_format=Person,
    )
    assert isinstance(found.parsed_output, Person)


@pytest.mark.parametrize("model", MODELS[1:])
def test_a_stop_sequence_is_named(client: Anthropic, model: str) -> None:
    message = client.messages.create(
        model=model,
        max_tokens=200,
        messages=[{"role": "user", "content": 'Reply with exactly "one two three".'}],
        stop_sequences=["never", "three"],
    )
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "three")
    assert message.content[0].type == "text"
    assert message.content[0].text == "one two "


def test_tokens_are_counted_as_they_are_charged(client: Anthropic) -> None:
    counted = client.messages.count_tokens(model="claude-x", messages=HI, tools=[ADD])
    message = client.messages.create(model="claude-x", max_tokens=9, messages=HI, tools=[ADD])
    assert counted.input_tokens == message.usage.input_tokens + (
        message.usage.cache_read_input_tokens or 0
    )


def test_a_context_is_warmed_up(client: Anthropic) -> None:
    long = [{"role": "user", "content": 200 * "The code word is garnet-3. "}]
    message = client.messages.create(model="claude-lanewise-fast", max_tokens=0, messages=long)
    assert message.content == []
    assert message.usage.output_tokens == 0


def test_models_are_listed_in_both_dialects(client: Anthropic, gateway: GatewayProcess) -> None:
    ids = [model.id for model in client.models.list(limit=2)]
    assert {"auto", "lanewise-fast", "claude-lanewise-fast"} <= set(ids)
    assert client.models.retrieve("claude-lanewise-fast").display_name == "lanewise-fast"
    with pytest.raises(anthropic.NotFoundError):
        client.models.retrieve("nothing")
    plain = httpx.get(
        f"{gateway.base_url}/models", headers={"authorization": f"Bearer {DEVELOPMENT_KEY}"}
    )
    assert plain.json()["object"] == "list"


HEADERS = [
    {"x-api-key": DEVELOPMENT_KEY},
    {"authorization": f"Bearer {DEVELOPMENT_KEY}"},
    {"authorization": "Bearer sk-ant-other", "x-api-key": DEVELOPMENT_KEY},
    {"authorization": f"Bearer {DEVELOPMENT_KEY}", "x-api-key": "sk-ant-other"},
    {"x-api-key": DEVELOPMENT_KEY, "anthropic-version": "2023-06-01"},
    {"x-api-key": DEVELOPMENT_KEY, "anthropic-version": "2026-10-21"},
    {"x-api-key": DEVELOPMENT_KEY, "anthropic-version": "soon", "anthropic-beta": "of-tomorrow"},
]


@pytest.mark.parametrize("headers", HEADERS)
def test_any_key_header_version_and_beta(gateway: GatewayProcess, headers: dict[str, str]) -> None:
    body = {"model": "claude-x", "max_tokens": 9, "messages": HI, "of_tomorrow": True}
    for path in ("messages?beta=true", "v1/messages"):
        answer = httpx.post(f"{gateway.base_url}/{path}", json=body, headers=headers)
        assert answer.status_code == 200, answer.text
        assert answer.headers["request-id"].startswith("req_")
        assert answer.headers["anthropic-ratelimit-input-tokens-limit"]


def body_of(**fields: Any) -> dict[str, Any]:
    return {"model": "claude-x", "max_tokens": 9, "messages": HI} | fields


LONG = [{"role": "user", "content": 1_500_000 * "a "}]
# path, body, key, status, type
FAILURES: list[tuple[str, dict[str, Any], str, int, str]] = [
    ("messages", body_of(), "sk-wrong", 401, "authentication_error"),
    ("messages", body_of(model="nope"), DEVELOPMENT_KEY, 404, "not_found_error"),
    ("messages", body_of(max_tokens=None), DEVELOPMENT_KEY, 400, "invalid_request_error"),
    ("messages", body_of(messages=LONG), DEVELOPMENT_KEY, 400, "invalid_request_error"),
    ("messages", body_of(model="claude-lanewise-deep"), FAST_ONLY_KEY, 403, "permission_error"),
    ("messages/count_tokens", {"model": "x"}, DEVELOPMENT_KEY, 400, "invalid_request_error"),
    ("messages/batches", {}, DEVELOPMENT_KEY, 404, "not_found_error"),
    (
        "messages",
        body_of(system=17_000_000 * "x"),
        DEVELOPMENT_KEY,
        413,
        "request_too_large",
    ),
]


@pytest.mark.parametrize(
    ("path", "body", "key", "status", "kind"), FAILURES, ids=[str(row[3:]) for row in FAILURES]
)
def test_failures_are_in_anthropics_form(
    gateway: GatewayProcess, path: str, body: dict[str, Any], key: str, status: int, kind: str
) -> None:
    answer = httpx.post(f"{gateway.base_url}/{path}", json=body, headers={"x-api-key": key})
    found = answer.json()
    assert (answer.status_code, found["error"]["type"]) == (status, kind), answer.text[:500]
    assert found["request_id"] == answer.headers["request-id"]
    assert answer.headers["x-should-retry"] == "false"
    assert answer.headers.get("www-authenticate") == ("Bearer" if status == 401 else None)
    if body.get("messages") is LONG:
        assert found["error"]["message"].startswith("prompt is too long: ")


def test_an_empty_pool_says_when_to_come_back(gateway: GatewayProcess) -> None:
    body = body_of(model="claude-lanewise-fast", metadata={"max_wait_ms": "0"})
    for _ in range(4):
        answer = httpx.post(
            f"{gateway.base_url}/messages", json=body, headers={"x-api-key": SMALL_KEY}
        )
    assert (answer.status_code, answer.json()["error"]["type"]) == (429, "rate_limit_error")
    headers = answer.headers
    assert int(headers["retry-after"]) >= 1
    limits = [name for name in headers if name.startswith("anthropic-ratelimit-")]
    assert len(limits) == 12


async def test_leaving_in_mid_stream_ends_the_generation(gateway: GatewayProcess) -> None:
    async with AsyncAnthropic(
        base_url=gateway.url, api_key=DEVELOPMENT_KEY, max_retries=0
    ) as client:
        stream = await client.messages.create(
            model="claude-lanewise-deep", max_tokens=4_000, messages=HI, stream=True
        )
        async for event in stream:
            if event.type == "content_block_delta":
                break
        await stream.close()
    await asyncio.to_thread(wait_until_at_rest, gateway)


def test_the_stream_as_it_is_on_the_wire(gateway: GatewayProcess) -> None:
    answer = httpx.post(
        f"{gateway.base_url}/messages",
        json=body_of(model="claude-lanewise-fast", stream=True),
        headers={"x-api-key": DEVELOPMENT_KEY},
    )
    assert answer.headers["content-type"].startswith("text/event-stream")
    records = [record.split("\n") for record in answer.text.removesuffix("\n\n").split("\n\n")]
    for name, data in records:
        assert name == f"event: {json.loads(data.removeprefix('data: '))['type']}"
    assert records[1][0] == "event: ping"
    assert records[-1][0] == "event: message_stop"
