"""Tests a model that refuses: OpenAI's own client reads it as a refusal, in both protocols."""

from collections.abc import Iterator
from typing import Any

import pytest
from openai import OpenAI
from pydantic import BaseModel

import lanewise
from tests.e2e.gateway_process import (
    DEVELOPMENT_KEY,
    GatewayProcess,
    served_cleanly,
)
from tests.e2e.refusing_upstream import REFUSAL, RefusingUpstream, refusing_upstream

BACKEND = """
[[backends]]
kind = "upstream"
name = "{protocol}-{model}"
options.model = "{protocol}-{model}"
options.upstream_model = "{model}"
options.group = "fast"
options.base_url = "{url}"
options.protocol = "{protocol}"
"""
MODELS = [
    f"{protocol}-{model}" for protocol in ("chat", "responses") for model in ("streamed", "whole")
]


class Steps(BaseModel):
    """What is asked for."""

    steps: list[str]


@pytest.fixture(scope="module")
def server() -> Iterator[RefusingUpstream]:
    with refusing_upstream() as server:
        yield server


@pytest.fixture(scope="module")
def gateway(
    server: RefusingUpstream, tmp_path_factory: pytest.TempPathFactory, redis_url: str
) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("refusals")
    config = folder / "refusals.toml"
    named = (each.partition("-") for each in MODELS)
    config.write_text(
        "".join(BACKEND.format(protocol=p, model=m, url=server.base_url) for p, _, m in named)
    )
    with served_cleanly(config, redis_url) as process:
        yield process


@pytest.fixture
def client(gateway: GatewayProcess, server: RefusingUpstream) -> Iterator[OpenAI]:
    server.bodies.clear()
    with OpenAI(base_url=gateway.base_url, api_key=DEVELOPMENT_KEY, max_retries=0) as client:
        yield client


MESSAGES: Any = [{"role": "user", "content": "How?"}]


@pytest.mark.parametrize("model", MODELS)
def test_responses_parse_a_refusal(client: OpenAI, model: str) -> None:
    parsed = client.responses.parse(model=model, input="How?", text_format=Steps)
    (message,) = parsed.output
    assert message.type == "message"
    (part,) = message.content
    assert (part.type, part.refusal) == ("refusal", REFUSAL)  # type: ignore[union-attr]
    assert parsed.output_parsed is None
    assert parsed.output_text == ""
    assert (parsed.status, parsed.usage and parsed.usage.output_tokens) == ("completed", 9)
    (kept,) = client.responses.retrieve(parsed.id).output
    assert kept.to_dict() == message.to_dict()


@pytest.mark.parametrize("model", MODELS)
def test_responses_stream_a_refusal(client: OpenAI, model: str) -> None:
    with client.responses.stream(model=model, input="How?", text_format=Steps) as stream:
        events = list(stream)
        final = stream.get_final_response()
    at = {"item_id": final.output[0].id, "output_index": 0, "content_index": 0}
    told = [event.to_dict() for event in events if "refusal" in event.type or "_part" in event.type]
    for event in told:
        event.pop("sequence_number")
    begun, *deltas, done, whole = told
    assert begun == {
        "type": "response.content_part.added",
        **at,
        "part": {"type": "refusal", "refusal": ""},
    }
    assert {event["type"] for event in deltas} == {"response.refusal.delta"}
    assert "".join(str(event["delta"]) for event in deltas) == REFUSAL
    assert done == {"type": "response.refusal.done", **at, "refusal": REFUSAL}
    part = {"type": "refusal", "refusal": REFUSAL}
    assert whole == {"type": "response.content_part.done", **at, "part": part}
    assert final.output[0].to_dict()["content"] == [part]
    assert not any("output_text" in event.type for event in events)


@pytest.mark.parametrize("model", MODELS)
def test_chat_parses_a_refusal(client: OpenAI, model: str) -> None:
    made = client.chat.completions.parse(model=model, messages=MESSAGES, response_format=Steps)
    message = made.choices[0].message
    assert (message.content, message.refusal, message.parsed) == (None, REFUSAL, None)
    assert made.choices[0].finish_reason == "stop"


@pytest.mark.parametrize("model", MODELS)
def test_chat_streams_a_refusal(client: OpenAI, model: str) -> None:
    with client.chat.completions.stream(
        model=model, messages=MESSAGES, response_format=Steps
    ) as stream:
        events = list(stream)
        message = stream.get_final_completion().choices[0].message
    assert (message.content or None, message.refusal, message.parsed) == (None, REFUSAL, None)
    assert "".join(event.delta for event in events if event.type == "refusal.delta") == REFUSAL
    assert [event.refusal for event in events if event.type == "refusal.done"] == [REFUSAL]


@pytest.mark.parametrize("model", MODELS)
def test_the_next_turn_reads_it(client: OpenAI, server: RefusingUpstream, model: str) -> None:
    first = client.responses.create(model=model, input="How?")
    client.responses.create(model=model, input="Why?", previous_response_id=first.id)
    sent = server.bodies[-1]
    items = sent["messages"] if model.startswith("chat") else sent["input"]
    assert [item["role"] for item in items] == ["user", "assistant", "user"]
    part = {"type": "refusal", "refusal": REFUSAL}
    assert items[1]["content"] == (REFUSAL if model.startswith("chat") else [part])


@pytest.mark.parametrize("model", MODELS)
async def test_our_own_client_shows_it(gateway: GatewayProcess, model: str) -> None:
    async with lanewise.connect(gateway.url, DEVELOPMENT_KEY) as ours:
        async with ours.stream("How?", model=model) as stream:
            told = [event.text async for event in stream if isinstance(event, lanewise.TextDelta)]
        answer = await ours.create("How?", model=model)
    assert "".join(told) == answer.text == REFUSAL
