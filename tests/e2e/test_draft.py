"""Tests `draft` over real sockets: on simulated engines, and where an upstream takes predictions.

The upstream is another gateway, whose deep engine checks what chat's `prediction` says.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from openai import OpenAI

from tests.e2e.fronts import KEY_ENV, UPSTREAM, served
from tests.e2e.gateway_process import DEVELOPMENT_KEY, GatewayProcess, wait_until_at_rest

ASK = "Write 150 words about caches."
DEEP = 'protocol = "chat"\nprediction = "{prediction}"'


@pytest.fixture(scope="module", params=["field", "prompt"])
def front(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    gateway: GatewayProcess,
    redis_url: str,
) -> Iterator[tuple[str, GatewayProcess]]:
    """Gives a gateway whose engines are another's, and how its deep one takes predictions."""
    where = {"port": gateway.port, "key_env": KEY_ENV}
    fast = UPSTREAM.format(name="fast", group="fast", more='protocol = "chat"', **where)
    deep = DEEP.format(prediction=request.param)
    backends = fast + UPSTREAM.format(name="deep", group="deep", more=deep, **where)
    folder = tmp_path_factory.mktemp("front")
    for process in served(folder, redis_url, backends, ["fast", "deep"]):
        yield request.param, process


def _drafted(server: GatewayProcess, **fields: Any) -> Any:
    with OpenAI(base_url=server.base_url, api_key=DEVELOPMENT_KEY, max_retries=0) as client:
        return client.responses.create(
            model="auto", input=ASK, metadata={"strategy": "draft"}, **fields
        )


def _deep(server: GatewayProcess, model: str) -> Any:
    with OpenAI(base_url=server.base_url, api_key=DEVELOPMENT_KEY, max_retries=0) as client:
        return client.responses.create(model=model, input=ASK)


def test_one_message_in_the_deep_engines_words(gateway: GatewayProcess) -> None:
    drafted, deep = _drafted(gateway), _deep(gateway, "lanewise-deep")
    assert drafted.output_text == deep.output_text
    assert [item.phase for item in drafted.output] == ["final_answer"]
    routing = drafted.routing
    assert (routing["strategy"], routing["answered_by"]) == ("draft", "gpu")
    details = routing["usage"]["gpu"]["output_tokens_details"]
    assert details["accepted_prediction_tokens"] > 100
    assert [row["part"] for row in routing["generations"]] == ["draft", "answer"]
    wait_until_at_rest(gateway)


def test_an_answer_that_may_call_tools_is_the_deep_engines_alone(gateway: GatewayProcess) -> None:
    tool = {"type": "function", "name": "look", "parameters": {"type": "object"}}
    routing = _drafted(gateway, tools=[tool]).routing
    assert (routing["route"], routing["strategy"]) == ("deep", None)
    assert "an answer that may call tools cannot be predicted" in routing["why"]


def test_an_upstream_gets_the_draft_as_it_takes_it(
    gateway: GatewayProcess, front: tuple[str, GatewayProcess]
) -> None:
    how, server = front
    drafted = _drafted(server)
    assert drafted.status == "completed"
    routing = drafted.routing
    assert (routing["strategy"], routing["answered_by"]) == ("draft", "deep")
    used = routing["usage"]["deep"]
    details = used["output_tokens_details"]
    if how == "field":
        assert drafted.output_text == _deep(gateway, "lanewise-deep").output_text
        assert details["accepted_prediction_tokens"] > 100
        assert details["accepted_prediction_tokens"] <= used["output_tokens"]
    else:  # the server behind reads it, and knows of no prediction
        assert "accepted_prediction_tokens" not in details
        assert used["input_tokens"] > routing["usage"]["fast"]["output_tokens"]
    wait_until_at_rest(server)


def test_a_chat_clients_own_prediction_is_checked(client: OpenAI) -> None:
    asked: Any = {"model": "lanewise-deep", "messages": [{"role": "user", "content": ASK}]}
    plain = client.chat.completions.create(**asked)
    said = plain.choices[0].message.content
    known = client.chat.completions.create(**asked, prediction={"type": "content", "content": said})
    assert known.choices[0].message.content == said
    wrong = {"type": "content", "content": "0 " * 200}
    unknown = client.chat.completions.create(**asked, prediction=wrong)
    assert unknown.choices[0].message.content == said
    for answer, is_right in ((known, True), (unknown, False)):
        assert answer.usage is not None
        assert answer.usage.completion_tokens_details is not None
        details = answer.usage.completion_tokens_details
        assert bool(details.accepted_prediction_tokens) == is_right
        assert bool(details.rejected_prediction_tokens) != is_right
