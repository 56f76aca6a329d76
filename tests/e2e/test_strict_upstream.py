"""Tests every strategy before engines with a strict chat template, and the turns behind it.

One text for an answer, once, whichever way it is asked for; nothing of what was said beside it in
the next turn's context; usage within its limits.
"""

import asyncio
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from anthropic import Anthropic
from openai import AsyncOpenAI, OpenAI

from tests.e2e.gateway_process import (
    CONFIG,
    DEVELOPMENT_KEY,
    GatewayProcess,
    served_cleanly,
)
from tests.e2e.socket_client import TERMINALS, SocketClient, text_of
from tests.e2e.strict_runs import RUNS, num_tokens
from tests.e2e.strict_upstream import NUM_REJECTED, TEXT, TOKENS, StrictUpstream

LIMIT = 16
SEED = 1122
LOOK: Any = {
    "type": "function",
    "name": "look",
    "description": "Looks.",
    "parameters": {"type": "object", "properties": {}},
}


@pytest.fixture(scope="module")
def upstream() -> Iterator[StrictUpstream]:
    with StrictUpstream.running() as server:
        yield server


@pytest.fixture(scope="module")
def strict(
    tmp_path_factory: pytest.TempPathFactory, redis_url: str, upstream: StrictUpstream
) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("strict")
    config, policy = folder / "lanewise.toml", folder / "policy.toml"
    # Words of the faults may count as of security, whose answers nobody else goes on with.
    policy.write_text("security_goes_deep = false\n")
    config.write_text(f'policy_path = "{policy}"\n' + CONFIG + upstream.config())
    with served_cleanly(config, redis_url) as process:
        yield process


@pytest.fixture
def openai(strict: GatewayProcess, upstream: StrictUpstream) -> Iterator[OpenAI]:
    upstream.refusals.clear()
    with OpenAI(base_url=strict.base_url, api_key=DEVELOPMENT_KEY, max_retries=0) as client:
        yield client
    assert upstream.refusals == []


def check(response: Any, num_answers: int = 1) -> None:
    assert response.status == "completed"
    assert response.output_text == TEXT * num_answers
    assert not response.routing.get("errors")


@pytest.mark.parametrize("run", RUNS)
def test_one_answer_and_turns_that_hold_nothing_else(
    openai: OpenAI, upstream: StrictUpstream, run: str
) -> None:
    metadata, more, num_answers, _ = RUNS[run]
    asked: Any = {"model": "auto", "metadata": metadata, "instructions": "Be brief."}
    first = openai.responses.create(input=f"Tell me.{more}", **asked)
    check(first, num_answers)
    chained = openai.responses.create(input="And?", previous_response_id=first.id, **asked)
    check(chained, num_answers)
    assert chained.usage is not None
    assert first.usage is not None
    assert chained.usage.input_tokens > first.usage.input_tokens
    begun: Any = {"role": "user", "content": f"Tell me.{more}"}
    rain: Any = {"role": "developer", "content": "It rains."}
    output: Any = [item.model_dump(exclude_none=True) for item in first.output]
    upstream.asked.clear()
    check(openai.responses.create(input=[begun, *output, rain], **asked), num_answers)
    for one in upstream.asked:
        said = [each for each in one.body["messages"][1:] if each["role"] == "assistant"]
        assert said[0]["content"].split() == TEXT.split() * num_answers, "the answer alone"


def test_no_turn_is_told_a_smaller_input_than_the_one_it_continues(openai: OpenAI) -> None:
    """Engines count what a strategy adds to a context otherwise than we do."""
    asked: Any = {"model": "auto", "max_output_tokens": LIMIT}
    for name, run in RUNS.items():
        metadata: Any = run.metadata
        first = openai.responses.create(input="Rain. " * 200 + run.more, metadata=metadata, **asked)
        for route in ("fast", "deep"):
            second = openai.responses.create(
                input="?", previous_response_id=first.id, metadata={"route": route}, **asked
            )
            assert first.usage is not None
            assert second.usage is not None
            assert second.usage.input_tokens >= first.usage.input_tokens, (name, route)


@pytest.mark.parametrize("run", RUNS)
def test_an_agents_turn_behind_its_tool_calls(openai: OpenAI, run: str) -> None:
    metadata, more, _, _ = RUNS[run]
    call: Any = {"type": "function_call", "name": "look", "arguments": "{}"}
    output: Any = {"type": "function_call_output", "output": "Nothing."}
    called = [[call | {"call_id": each}, output | {"call_id": each}] for each in ("c1", "c2")]
    talk: Any = [
        {"role": "user", "content": "Look."},
        *called[0],
        {"role": "user", "content": f"Go on.{more}"},
        *called[1],
    ]
    check(openai.responses.create(model="auto", input=talk, tools=[LOOK], metadata=metadata))


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("run", RUNS)
def test_output_is_never_more_than_was_asked_for(openai: OpenAI, run: str, streams: bool) -> None:
    metadata, more, _, _ = RUNS[run]
    asked: Any = {"model": "auto", "metadata": metadata}
    text = f"Tell me.{more}"
    response: Any = openai.responses.create(
        input=text, max_output_tokens=LIMIT, stream=streams, **asked
    )
    if streams:
        response = next(event.response for event in response if event.type in TERMINALS)
    assert response.status == "incomplete"
    assert 0 < response.usage.output_tokens <= LIMIT
    assert len(response.output_text.split()) <= LIMIT
    messages: Any = [{"role": "user", "content": text}]
    asked |= {"messages": messages, "max_completion_tokens": LIMIT}
    if streams:
        options: Any = {"include_usage": True}
        chunks = openai.chat.completions.create(stream=True, stream_options=options, **asked)
        usage = [chunk.usage for chunk in chunks][-1]
    else:
        usage = openai.chat.completions.create(**asked).usage
    assert usage is not None
    assert 0 < usage.completion_tokens <= LIMIT


@pytest.mark.parametrize("run", RUNS)
async def test_the_same_over_a_socket(
    strict: GatewayProcess, upstream: StrictUpstream, run: str
) -> None:
    metadata, more, num_answers, _ = RUNS[run]
    upstream.refusals.clear()
    async with SocketClient.open(strict) as connection:
        asked: Any = {"model": "auto", "metadata": metadata}
        first = await connection.turn(f"Tell me.{more}", **asked)
        second = await connection.turn("And?", previous_response_id=first["id"], **asked)
        for response in (first, second):
            assert text_of(response) == TEXT * num_answers
        assert second["usage"]["input_tokens"] > first["usage"]["input_tokens"]
        short = await connection.turn(f"Tell me.{more}", max_output_tokens=LIMIT, **asked)
        assert 0 < short["usage"]["output_tokens"] <= LIMIT
    assert upstream.refusals == []


def test_the_same_over_the_messages_api(strict: GatewayProcess, upstream: StrictUpstream) -> None:
    upstream.refusals.clear()
    root = strict.base_url.removesuffix("/v1")
    ask: Any = {"role": "user", "content": "Tell me."}
    with Anthropic(base_url=root, api_key=DEVELOPMENT_KEY, max_retries=0) as client:
        for name in (each for each, run in RUNS.items() if run.num_answers == 1):
            metadata, more, _, _ = RUNS[name]
            asked: Any = {"model": "auto", "extra_body": {"metadata": metadata}, "max_tokens": 500}
            first = client.messages.create(messages=[ask | {"content": f"Tell me.{more}"}], **asked)
            said = "".join(each.text for each in first.content if each.type == "text")
            assert said == TEXT, name
            answer: Any = {"role": "assistant", "content": first.content}
            second = client.messages.create(messages=[ask, answer, ask], **asked)
            assert "".join(e.text for e in second.content if e.type == "text") == TEXT, name
    assert upstream.refusals == []


async def test_an_answer_that_breaks_anywhere_ends_whole(
    strict: GatewayProcess, upstream: StrictUpstream
) -> None:
    """It breaks behind its first token; `tests/accept/continued.py` asks every place and stalls."""
    upstream.refusals.clear()
    chance = random.Random(SEED)
    async with AsyncOpenAI(base_url=strict.base_url, api_key=DEVELOPMENT_KEY) as client:

        async def ask(name: str, part: str, kind: str, place: int) -> str:
            run = RUNS[name]
            text = run.ask(name, f"{part}:{kind}:{place}")
            response: Any = await client.responses.create(
                model="auto", input=text, metadata=run.metadata
            )
            is_whole = (response.status, response.output_text) == ("completed", TEXT)
            return "" if is_whole else f"{text}: {response.status}, {response.output_text!r}"

        asked = [
            ask(name, part, kind, chance.randint(1, num_tokens(part)))
            for name, run in RUNS.items()
            for part in run.parts
            for kind in ("break", "close")
        ]
        faults = list(filter(None, await asyncio.gather(*asked)))
    assert not faults, "\n".join([f"seed {SEED}", *faults])
    assert upstream.refusals == []


@pytest.mark.parametrize("kind", ["break", "close"])
@pytest.mark.parametrize("name", ["fast", "deep"])
def test_an_engine_alone_that_breaks_before_its_first_word_is_replaced(
    openai: OpenAI, name: str, kind: str
) -> None:
    """The client asks for its route, and the engine is asked only once, and yet it is replaced."""
    run, (part,) = RUNS[name], RUNS[name].parts
    metadata: Any = run.metadata
    text = run.ask(name, f"{part}:{kind}:0")
    response: Any = openai.responses.create(model="auto", input=text, metadata=metadata)
    check(response)
    (moved,) = response.routing["failovers"]
    assert (moved["from"], moved["to"]) in (("quick", "slow"), ("slow", "quick"))
    assert response.routing["answered_by"] == moved["to"]


def test_rejected_predictions_are_on_the_bill_alone(openai: OpenAI) -> None:
    metadata: Any = {"strategy": "draft"}
    response: Any = openai.responses.create(model="auto", input="Tell me.", metadata=metadata)
    assert response.usage.output_tokens == len(TOKENS)
    details = response.usage.output_tokens_details.model_dump()
    assert details["accepted_prediction_tokens"] == len(TOKENS) // 2
    assert details["rejected_prediction_tokens"] == NUM_REJECTED
    bill = response.routing["usage"]["slow"]
    assert bill["output_tokens"] == len(TOKENS) + NUM_REJECTED
    assert json.dumps(bill).count("rejected_prediction_tokens") == 1
