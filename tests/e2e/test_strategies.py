"""Tests both engines at once, as users of the official SDK meet them."""

import asyncio
from typing import Any

import pytest
from openai import BadRequestError, OpenAI

from router.strategies.table import STRATEGIES
from tests.e2e.gateway_process import NARROW_KEY, GatewayProcess, wait_until_at_rest
from tests.e2e.socket_client import SocketClient

LONG = "Write a guide to sorting of 16,000 tokens."


def test_as_many_variations_as_the_tenant_has_places(gateway: GatewayProcess) -> None:
    with OpenAI(base_url=gateway.base_url, api_key=NARROW_KEY, max_retries=0) as client:
        metadata = {"strategy": "breadth", "n": "9"}
        response: Any = client.responses.create(
            model="auto", input="Explain B-trees in 80 words.", metadata=metadata
        )
    assert response.status == "completed"
    routing = response.routing
    assert routing["variations"]["asked"] == 9
    whole = routing["variations"]["whole"]
    assert 1 <= whole < 9
    assert [item.type for item in response.output] == [*["reasoning"] * whole, "message"]
    assert response.output[-1].phase == "final_answer"
    reached = "rate limit reached for the fast engines on concurrent tasks"
    assert any(reached in error for error in routing["errors"])
    wait_until_at_rest(gateway)


async def test_variations_give_their_places_back_while_the_answer_is_made(
    gateway: GatewayProcess, connection: SocketClient
) -> None:
    metadata = {"route": "parallel", "strategy": "breadth", "n": "2"}
    await connection.create(LONG, model="auto", metadata=metadata, max_output_tokens=16_000)
    created = await connection.next_type("response.created")
    async with asyncio.timeout(30):
        while True:
            seen = await asyncio.to_thread(gateway.metrics)
            held = [
                seen.total("lanewise_ratelimit_leases", group=group) for group in ("fast", "deep")
            ]
            if held == [0, 1]:
                break
    await connection.send({"type": "response.cancel", "response_id": created["response"]["id"]})
    ended = await connection.next_type("response.incomplete", "response.completed")
    states = [(row["part"], row["state"]) for row in ended["response"]["routing"]["generations"]]
    assert states == [("vary", "finished"), ("vary", "finished"), ("judge", "cancelled")]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_answer_is_there_once_and_what_was_rejected_leaves_the_conversation(
    client: OpenAI, strategy: str
) -> None:
    asked: Any = {"model": "auto", "metadata": {"strategy": strategy}, "max_output_tokens": 40}
    first: Any = client.responses.create(input="Reply with exactly: HARBOR", **asked)
    assert first.output_text == "HARBOR"
    used, bill = first.usage, first.routing["usage"].values()
    assert used.output_tokens <= 40
    assert used.total_tokens <= sum(each["total_tokens"] for each in bill)
    alone: Any = client.responses.create(
        model="lanewise-fast", input="Reply with exactly: HARBOR", max_output_tokens=40
    )
    assert used.input_tokens == alone.usage.input_tokens, "the context once"
    chained, again = [
        client.responses.create(
            input="Reply with exactly: PIER", previous_response_id=parent.id, **asked
        )
        for parent in (first, alone)
    ]
    assert chained.output_text == "PIER"
    assert chained.usage is not None
    assert again.usage is not None
    assert chained.usage.input_tokens == again.usage.input_tokens
    assert chained.usage.input_tokens > used.input_tokens


def test_the_content_of_a_chat_completion_is_the_answer(client: OpenAI) -> None:
    asked: Any = {
        "model": "auto",
        "messages": [{"role": "user", "content": "Reply with exactly: HARBOR"}],
        "metadata": {"strategy": "breadth", "n": "2"},
    }
    whole: Any = client.chat.completions.create(**asked).choices[0].message
    assert (whole.content, whole.reasoning_content) == ("HARBOR", "HARBOR\n\nHARBOR")
    content = commentary = ""
    for chunk in client.chat.completions.create(**asked, stream=True):
        delta: Any = chunk.choices[0].delta
        content += delta.content or ""
        commentary += (delta.model_extra or {}).get("reasoning_content", "")
    assert (content, commentary) == ("HARBOR", "HARBOR\n\nHARBOR")


def test_fast_answers_that_agree_go_out_without_a_deep_answer(client: OpenAI) -> None:
    metadata = {"strategy": "verify", "n": "3", "accept": "[A-Z]+"}
    response: Any = client.responses.create(
        model="auto", input="Reply with exactly: HARBOR", metadata=metadata
    )
    assert response.output_text == "HARBOR"
    assert len(response.output) == 1
    routing = response.routing
    assert "others agree" in routing["why"]
    assert routing["why"].endswith("so it was accepted.")
    rows = routing["generations"]
    assert [row["part"] for row in rows if row["backend"] == "wafer"] == ["answer"] * 3
    fast = [row["output_tokens"] for row in rows if row["backend"] == "wafer"]
    assert response.usage.output_tokens == fast[0], "the conversation's is one answer's"
    assert routing["usage"]["wafer"]["output_tokens"] == sum(fast), "the bill is all of them"
    deep = [row for row in rows if row["backend"] != "wafer"]
    assert all(row["part"] == "verdict" and row["output_tokens"] <= 3 for row in deep)


def test_an_answer_that_the_clients_pattern_rejects_is_deeps(
    gateway: GatewayProcess, client: OpenAI
) -> None:
    metadata = {"strategy": "verify", "accept": "[0-9]+"}
    response: Any = client.responses.create(
        model="auto", input="Reply with exactly: HARBOR", metadata=metadata
    )
    assert response.output_text == "HARBOR"
    assert response.routing["answered_by"] == "gpu"
    assert "the client's pattern does not match it" in response.routing["why"]
    wait_until_at_rest(gateway)


def test_a_pattern_that_cannot_be_used_is_refused(client: OpenAI) -> None:
    with pytest.raises(BadRequestError, match=r"metadata\.accept"):
        client.responses.create(
            model="auto", input="Hi", metadata={"strategy": "verify", "accept": "(?=a)"}
        )
