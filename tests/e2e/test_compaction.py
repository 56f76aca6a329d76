"""Tests automatic compaction as users have it: a long conversation goes on, and remembers."""

import json
from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.e2e.events import check_response
from tests.e2e.openai_socket import turn
from tests.e2e.socket_client import SocketClient

COMPACTING: Any = [{"type": "compaction", "compact_threshold": 1500}]
FILLER = "How were ships unloaded in the old harbours, and who was paid for it, and when? " * 18
TOLD = ("My goal: a guide to harbours.", "Please remember: the code word is opal-77.")
ASKS = [*TOLD, *(f"{number}. {FILLER}" for number in range(7))]
FIELDS: Any = {
    "model": "lanewise-fast",
    "max_output_tokens": 250,
    "context_management": COMPACTING,
}


def routing(response: Any) -> dict[str, Any]:
    found: dict[str, Any] = response.model_extra["routing"]
    return found


def check_course(responses: list[Any]) -> None:
    """Checks two compactions and no third, each of which says what it did and what it used."""
    views = [routing(response).get("compaction") for response in responses]
    seen = [(view["state"], view["number"]) for view in views if view]
    assert seen[:2] == [("done", 1), ("done", 2)], seen
    assert len(seen) > 2, "the conversation grew on"
    assert set(seen[2:]) == {("limit_reached", 2)}
    for response, view in zip(responses, views, strict=True):
        kinds = [item.type for item in response.output]
        billed = sum(u["total_tokens"] for u in routing(response)["usage"].values())
        summed_up = billed - response.usage.total_tokens  # the usage is of the conversation alone
        if view is None or view["state"] != "done":
            assert kinds == ["message"]
            assert summed_up == 0
            continue
        assert kinds == ["compaction", "message"]
        assert view["tokens_before"] > 1500 > view["tokens_after"]
        assert 0 < summed_up == sum(u["total_tokens"] for u in view["usage"].values())


def check_memory(answer: Any, first: Any) -> None:
    assert "opal-77" in answer.output_text
    assert TOLD[0] in first.output_text, "the goal is there word for word"


@pytest.mark.parametrize("store", [True, False])
def test_a_chain_on_a_socket(client: OpenAI, store: bool) -> None:
    with client.responses.connect() as connection:
        fields = FIELDS | {"store": store}
        responses: list[Any] = []
        for ask in ASKS:
            parent = responses[-1].id if responses else None
            response = turn(connection, input=ask, previous_response_id=parent, **fields)
            responses.append(response)
        check_course(responses)
        last = {"model": "lanewise-fast", "previous_response_id": responses[-1].id}
        check_memory(
            turn(connection, input="What is the code word?", store=store, **last),
            turn(connection, input="What was my first message?", store=store, **last),
        )


def test_a_chain_over_http_goes_on_in_the_background(client: OpenAI) -> None:
    responses: list[Any] = []
    for number, ask in enumerate(ASKS):
        parent = responses[-1].id if responses else None
        # From the third on what crosses the threshold runs without its client.
        with client.responses.create(
            input=ask, previous_response_id=parent, background=number > 1, stream=True, **FIELDS
        ) as stream:
            events = [event.to_dict() for event in stream]
        check_response(events)
        responses.append(client.responses.retrieve(events[-1]["response"]["id"]))  # type: ignore
    check_course(responses)
    last: Any = {"model": "lanewise-fast", "previous_response_id": responses[-1].id}
    check_memory(
        client.responses.create(input="What is the code word?", **last),
        client.responses.create(input="What was my first message?", **last),
    )
    items = client.responses.input_items.list(responses[-1].id).data
    assert "compaction" in [item.type for item in items]


@pytest.mark.parametrize("prunes", [True, False])
def test_a_client_that_keeps_its_own_history(client: OpenAI, prunes: bool) -> None:
    """It appends what comes; dropping what a compaction stands for is left to it."""
    history: list[Any] = [{"role": "developer", "content": "Be brief."}]
    responses: list[Any] = []
    for ask in ASKS:
        history.append({"role": "user", "content": ask})
        response = client.responses.create(input=history, store=False, **FIELDS)
        responses.append(response)
        for item in response.output:
            if prunes and item.type == "compaction":
                history.clear()
            history.append(item.to_dict())
    check_course(responses)

    def asked(question: str) -> Any:
        items = [*history, {"role": "user", "content": question}]
        return client.responses.create(model="lanewise-fast", input=items, store=False)

    check_memory(asked("What is the code word?"), asked("What was my first message?"))
    history[-1] = {"type": "compaction", "encrypted_content": "lw2.dev.AAAA"}
    with pytest.raises(openai.BadRequestError, match="cannot be opened"):
        asked("What is the code word?")


# The SDK's own types know no user messages in an output, though OpenAI's answers hold them too.
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
def test_compacting_on_request(client: OpenAI) -> None:
    """The output of `responses.compact` is a new conversation's input, on any connection."""
    first = client.responses.create(model="lanewise-fast", input=TOLD[0])
    second = client.responses.create(
        model="lanewise-fast", input=FILLER, previous_response_id=first.id
    )
    compacted = client.responses.compact(model="auto", previous_response_id=second.id)
    kinds = [item.type for item in compacted.output]
    assert kinds == ["message", "message", "compaction"]
    assert compacted.usage.input_tokens > second.usage.output_tokens  # type: ignore[union-attr]
    assert compacted.usage.output_tokens > 0, "an engine wrote it"
    # As OpenAI's guide has it: the output as it is, and the next message.
    items: Any = [*compacted.output, {"role": "user", "content": "What was my first message?"}]
    answer = client.responses.create(model="auto", input=items, store=False)
    assert TOLD[0] in answer.output_text
    with pytest.raises(openai.NotFoundError):
        client.responses.compact(model="gpt-0", input="Hi.", instructions="Be brief.")
    routed = client.responses.compact(model=None, input=TOLD[0])  # the SDK's types allow it
    assert [item.type for item in routed.output] == ["message", "compaction"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": "Hi."}, "model"),
        ({"model": "auto"}, "input"),
        ({"model": None, "input": []}, "input"),
        ({"model": "", "input": "Hi."}, "model"),
    ],
)
def test_nothing_to_compact_is_refused(client: OpenAI, fields: dict[str, Any], param: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.post("/responses/compact", body=fields, cast_to=object)
    assert refused.value.param == param


@pytest.mark.parametrize(
    ("entry", "where"),
    [
        ({"type": "compaction", "compact_threshold": 999}, "compact_threshold"),
        ({"type": "truncation"}, "type"),
        ({"compact_threshold": 2000}, "type"),
    ],
)
async def test_what_cannot_be_done_is_refused(
    connection: SocketClient, entry: dict[str, Any], where: str
) -> None:
    await connection.send(
        {"type": "response.create", "model": "auto", "input": "Hi.", "context_management": [entry]}
    )
    event = await connection.receive()
    assert (event["type"], event["status"]) == ("error", 400)
    assert event["error"]["param"] == f"context_management[0].{where}", json.dumps(event)
