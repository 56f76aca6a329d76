"""Tests one turn after the other on one socket: events, state, tools."""

import json
from typing import Any

import httpx
import jsonschema
import pytest

from tests.e2e.events import check_response
from tests.e2e.gateway_process import DEVELOPMENT_KEY, GatewayProcess
from tests.e2e.socket_client import SocketClient, calls_of, text_of

BEARER = {"authorization": f"Bearer {DEVELOPMENT_KEY}"}
WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "get_weather",
    "description": "Current weather in a city.",
    "parameters": {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "unit": {"enum": ["celsius", "fahrenheit"]},
            "days": {"type": "integer", "minimum": 1, "maximum": 7},
        },
        "required": ["city", "unit", "days"],
        "additionalProperties": False,
    },
    "strict": True,
}


async def test_a_plain_answer(connection: SocketClient) -> None:
    response = await connection.turn("Write a function that reverses a string.")
    assert response["status"] == "completed"
    assert "```" in text_of(response), "a coding prompt is answered with code"
    assert response["usage"]["output_tokens"] > 0
    assert response["usage"]["input_tokens"] > 0
    assert response["store"] is True
    assert all("stream_id" not in event for event in connection.received)


async def test_settings_are_echoed(connection: SocketClient) -> None:
    settings: dict[str, Any] = {
        "instructions": "Be brief.",
        "metadata": {"ticket": "42"},
        "temperature": 0.5,
        "top_p": 0.9,
        "max_output_tokens": 200,
        "prompt_cache_key": "thread-1",
        "safety_identifier": "user-1",
        "parallel_tool_calls": False,
        "truncation": "auto",
        "store": False,
        "tools": [WEATHER],
        "tool_choice": "none",
    }
    response = await connection.turn("Say hello.", **settings)
    for name, value in settings.items():
        if name != "tools":
            assert response[name] == value, name
    assert response["tools"][0]["name"] == "get_weather"
    follow_up = await connection.turn("Again.", previous_response_id=response["id"], store=False)
    assert follow_up["instructions"] is None, "instructions are not inherited"
    assert follow_up["tools"] == []
    assert follow_up["previous_response_id"] == response["id"]


async def test_routing_says_where_and_why(connection: SocketClient) -> None:
    fast = (await connection.turn("Rename this variable.", model="lanewise-fast"))["routing"]
    deep = (await connection.turn("Rename this variable.", model="lanewise-deep"))["routing"]
    auto = (await connection.turn("Rename this variable.", model="auto"))["routing"]
    assert (fast["route"], deep["route"]) == ("fast", "deep")
    assert fast["reason"] == deep["reason"] == "model"
    assert auto["route"] in ("fast", "deep", "parallel")
    for routing in (fast, deep, auto):
        assert routing["why"]
        assert routing["policy_version"]
        assert routing["backends"][0]["simulated"] is True
        assert 0 <= routing["class"]["p_deep"] <= 1
        assert {pool["unit"] for pool in routing["pools"]} == {"requests", "tokens", "concurrent"}
        assert 0 < routing["context"]["used_tokens"] <= routing["context"]["window_tokens"]


@pytest.mark.parametrize("route", ["fast", "deep", "parallel"])
async def test_metadata_chooses_the_route(connection: SocketClient, route: str) -> None:
    response = await connection.turn(
        "What is a mutex?", model="auto", metadata={"route": route}, max_output_tokens=300
    )
    assert response["routing"]["route"] == route
    assert len(response["routing"]["backends"]) == (2 if route == "parallel" else 1)


PHASES = {
    "hedge": ["final_answer"],
    "breadth": [*["commentary"] * 3, "final_answer"],
}


@pytest.mark.parametrize("strategy", PHASES)
async def test_parallel_strategies_keep_the_order_of_events(
    connection: SocketClient, strategy: str
) -> None:
    response = await connection.turn(
        "Explain how a B-tree splits.",
        model="auto",
        metadata={"strategy": strategy, "n": "3", "commentary": "messages"},
        max_output_tokens=200,
    )
    messages = [item for item in response["output"] if item["type"] == "message"]
    assert [message.get("phase") for message in messages] == PHASES[strategy]
    routing = response["routing"]
    assert (routing["route"], routing["strategy"]) == ("parallel", strategy)
    used = [usage["total_tokens"] for usage in routing["usage"].values()]
    assert response["usage"]["total_tokens"] <= sum(used)
    generated = [row["input_tokens"] + row["output_tokens"] for row in routing["generations"]]
    assert sum(generated) == sum(used), "the bill is of all generations"
    finished = [row["part"] for row in routing["generations"] if row["state"] == "finished"]
    assert len(finished) == len(messages)


async def test_the_token_limit_ends_a_response_as_incomplete(connection: SocketClient) -> None:
    response = await connection.turn("Write a long tutorial on sorting.", max_output_tokens=40)
    assert response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert response["usage"]["output_tokens"] == 40
    assert response["output"][-1]["status"] == "incomplete"


async def test_answers_are_deterministic(connection: SocketClient) -> None:
    first = await connection.turn("Write quicksort in Python.")
    second = await connection.turn("Write quicksort in Python.")
    assert text_of(first) == text_of(second)
    assert first["usage"]["output_tokens"] == second["usage"]["output_tokens"]


CODE_WORD = "The code word is heliotrope-77. Remember it."
ASK_CODE_WORD = "What is the code word?"


@pytest.mark.parametrize("store", [True, False])
@pytest.mark.parametrize("model", ["lanewise-fast", "lanewise-deep"])
async def test_a_chain_keeps_its_context(connection: SocketClient, store: bool, model: str) -> None:
    first = await connection.turn(CODE_WORD, model=model, store=store, max_output_tokens=200)
    middle = await connection.turn(
        "Thanks. Now say hello.",
        model=model,
        store=store,
        previous_response_id=first["id"],
        max_output_tokens=200,
    )
    last = await connection.turn(
        ASK_CODE_WORD, model=model, store=store, previous_response_id=middle["id"]
    )
    assert "heliotrope-77" in text_of(last)
    assert last["usage"]["input_tokens"] > first["usage"]["total_tokens"]
    fresh = await connection.turn(ASK_CODE_WORD, model=model, store=store)
    assert "heliotrope-77" not in text_of(fresh), "a create without a parent starts afresh"


async def test_a_chain_reuses_the_engines_prefix(connection: SocketClient) -> None:
    long_input = "Consider this: " + "every module has one reason to change. " * 200
    first = await connection.turn(long_input, model="lanewise-fast", max_output_tokens=50)
    second = await connection.turn("Go on.", previous_response_id=first["id"])
    assert second["usage"]["input_tokens_details"]["cached_tokens"] > 0


async def test_a_sensitive_conversation_does_not_leave_the_deep_engine(
    connection: SocketClient,
) -> None:
    asks = ("Audit our OAuth token exchange for privilege escalation.", "Go on.", "Rename x to y.")
    previous: dict[str, Any] = {}
    for ask in asks:
        response = await connection.turn(ask, model="auto", max_output_tokens=20, **previous)
        assert response["routing"]["route"] == "deep", response["routing"]["why"]
        previous = {"previous_response_id": response["id"]}
    assert response["routing"]["reason"] == "security"
    assert "security: earlier messages" in response["routing"]["class"]["signals"]
    assert response["usage"]["input_tokens_details"]["cached_tokens"] > 0


async def test_stored_responses_outlive_the_connection(gateway: GatewayProcess) -> None:
    async with SocketClient.open(gateway) as one:
        stored = await one.turn(CODE_WORD)
        private = await one.turn(CODE_WORD, store=False)
    async with SocketClient.open(gateway) as two:
        answer = await two.turn(ASK_CODE_WORD, previous_response_id=stored["id"])
        assert "heliotrope-77" in text_of(answer)
        await two.create(ASK_CODE_WORD, previous_response_id=private["id"])
        error = await two.error()
        assert error["error"]["code"] == "previous_response_not_found"
        assert error["error"]["param"] == "previous_response_id"


async def test_what_was_deleted_is_continued_from_no_connections_memory(
    gateway: GatewayProcess, connection: SocketClient
) -> None:
    first = await connection.turn(CODE_WORD)
    behind = await connection.turn("Thanks.", previous_response_id=first["id"])
    async with (
        SocketClient.open(gateway) as other,
        httpx.AsyncClient(base_url=gateway.base_url, headers=BEARER) as http,
    ):
        private = await other.turn("Thanks.", previous_response_id=first["id"], store=False)
        assert (await http.delete(f"/responses/{first['id']}")).is_success
        for asked, parent in ((connection, first), (connection, behind), (other, private)):
            await asked.create(ASK_CODE_WORD, previous_response_id=parent["id"])
            error = (await asked.error())["error"]
            assert error["code"] == "previous_response_not_found"
        assert (await http.get(f"/responses/{behind['id']}")).is_success


async def test_another_tenant_never_finds_a_response(
    gateway: GatewayProcess, connection: SocketClient
) -> None:
    stored = await connection.turn(CODE_WORD)
    async with SocketClient.open(gateway, "sk-fast-only-tenant") as stranger:
        await stranger.create(ASK_CODE_WORD, previous_response_id=stored["id"])
        assert (await stranger.error())["error"]["code"] == "previous_response_not_found"


@pytest.mark.parametrize("how", [{"generate": False}, {"prompt_cache_options": {"prewarm": True}}])
async def test_a_warm_up_produces_nothing_and_is_remembered(
    connection: SocketClient, how: dict[str, Any]
) -> None:
    warm = await connection.turn(CODE_WORD, store=False, **how)
    assert [event["type"] for event in connection.received] == [
        "response.created",
        "response.in_progress",
        "response.completed",
    ]
    assert warm["output"] == []
    assert warm["usage"]["output_tokens"] == 0
    answer = await connection.turn(ASK_CODE_WORD, previous_response_id=warm["id"], store=False)
    assert "heliotrope-77" in text_of(answer)


async def test_an_empty_warm_up_is_fine(connection: SocketClient) -> None:
    warm = await connection.turn([], generate=False, store=False)
    again = await connection.turn(None, generate=False, store=False)
    assert warm["status"] == again["status"] == "completed"


def check_call(call: dict[str, Any]) -> None:
    assert call["name"] == "get_weather"
    assert call["call_id"]
    jsonschema.validate(json.loads(call["arguments"]), WEATHER["parameters"])


@pytest.mark.parametrize("model", ["lanewise-fast", "lanewise-deep"])
@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "get_weather"}])
async def test_a_demanded_function_is_called_and_its_output_used(
    connection: SocketClient, model: str, choice: Any
) -> None:
    response = await connection.turn(
        "What is the weather in Lisbon?",
        model=model,
        tools=[WEATHER],
        tool_choice=choice,
        store=False,
    )
    (call,) = calls_of(response)
    check_call(call)
    output = {
        "type": "function_call_output",
        "call_id": call["call_id"],
        "output": "19 degrees and hail",
    }
    answer = await connection.turn(
        [output],
        model=model,
        tools=[WEATHER],
        previous_response_id=response["id"],
        store=False,
    )
    assert not calls_of(answer)
    assert "19 degrees and hail" in text_of(answer), "the answer uses what the function returned"


async def test_a_prompt_that_asks_for_a_function_gets_it_called(connection: SocketClient) -> None:
    response = await connection.turn(
        "Call the get_weather function for Oslo.", tools=[WEATHER], tool_choice="auto"
    )
    check_call(calls_of(response)[0])


async def test_no_tool_is_called_against_the_clients_will(connection: SocketClient) -> None:
    response = await connection.turn(
        "Call the get_weather function for Oslo.", tools=[WEATHER], tool_choice="none"
    )
    assert not calls_of(response)
    assert text_of(response)


async def test_json_is_answered_where_it_is_asked_for(connection: SocketClient) -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
    response = await connection.turn(
        "Describe a person.",
        text={"format": {"type": "json_schema", "name": "person", "schema": schema}},
    )
    jsonschema.validate(json.loads(text_of(response)), schema)
    response = await connection.turn(
        "Describe a person as JSON.", text={"format": {"type": "json_object"}}
    )
    assert isinstance(json.loads(text_of(response)), dict)


async def test_a_reasoning_summary_comes_where_it_is_asked_for(connection: SocketClient) -> None:
    asked = await connection.turn(
        "Prove that the halting problem is undecidable.",
        model="lanewise-deep",
        reasoning={"effort": "high", "summary": "auto"},
    )
    assert asked["output"][0]["type"] == "reasoning"
    assert asked["output"][0]["summary"]
    assert asked["usage"]["output_tokens_details"]["reasoning_tokens"] > 0
    assert asked["reasoning"]["effort"] == "high"
    # Clients replay reasoning items verbatim, with fields that only another server understands.
    replayed = {**asked["output"][0], "encrypted_content": "opaque", "unknown": 1}
    answer = await connection.turn(
        [{"role": "user", "content": "Hi."}, replayed, {"role": "user", "content": "Go on."}]
    )
    assert text_of(answer)


async def test_what_we_do_not_know_is_tolerated(connection: SocketClient) -> None:
    """A coding agent's turn has foreign tools, items, ids and fields."""
    response = await connection.turn(
        [
            {"type": "message", "id": "msg_client", "role": "developer", "content": "Be terse."},
            {
                "type": "message",
                "role": "user",
                "id": "msg_2",
                "status": "completed",
                "content": [{"type": "input_text", "text": "Say hello.", "unknown": True}],
            },
            {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        ],
        stream=True,
        store=False,
        client_metadata={"thread": "x"},
        future_field={"a": [1, 2]},
        include=["reasoning.encrypted_content"],
        tools=[
            WEATHER,
            {"type": "web_search"},
            {
                "type": "namespace",
                "name": "ns",
                "description": "Inner tools.",
                "tools": [{**WEATHER, "name": "inner"}],
            },
            {"type": "custom", "name": "apply_patch", "format": {"type": "text"}},
        ],
        context_management=[{"type": "compaction", "compact_threshold": 100000}],
    )
    assert text_of(response)


async def test_tools_from_the_future_are_passed_over(connection: SocketClient) -> None:
    connection.checks = False  # the response echoes a tool that the SDK's types do not know
    await connection.create("Say hello.", tools=[{"type": "from_the_future", "x": 1}])
    response = (await connection.terminal())["response"]
    assert response["status"] == "completed"
    assert text_of(response)


async def test_older_clients_events_are_silently_accepted(connection: SocketClient) -> None:
    await connection.send({"type": "response.processed", "response_id": "resp_x"})
    await connection.turn("Still here?")
    assert connection.received[0]["type"] == "response.created"


async def test_inject_without_hosted_agents_fails_politely(connection: SocketClient) -> None:
    await connection.send({"type": "response.inject", "response_id": "resp_x", "input": []})
    event = await connection.receive()
    assert event["type"] == "response.inject.failed"
    assert event["error"]["code"] == "response_not_found"


async def test_images_go_to_an_engine_that_takes_them_or_are_refused(
    connection: SocketClient,
) -> None:
    pixel = "data:image/png;base64,iVBORw0KGgo="
    message = {
        "role": "user",
        "content": [
            {"type": "input_text", "text": "What is this?"},
            {"type": "input_image", "image_url": pixel, "detail": "auto"},
        ],
    }
    await connection.create([message], model="auto", max_output_tokens=64)
    event = await connection.next_type("error", "response.created")
    if event["type"] == "response.created":
        await connection.terminal()
        check_response(connection.received)
        assert connection.received[-1]["response"]["routing"]["route"] == "deep"
    else:
        assert event["error"]["code"] in ("invalid_value", "unsupported_parameter")


async def test_a_request_of_many_items_keeps_its_place(connection: SocketClient) -> None:
    """It is read in pieces; what comes after it on the same stream still waits for it."""
    items = [{"role": "user", "content": f"Note {i}."} for i in range(5_000)]
    await connection.create(items, max_output_tokens=16)
    await connection.create("Hi.", max_output_tokens=16)
    sizes = [(await connection.terminal())["response"]["usage"]["input_tokens"] for _ in range(2)]
    assert sizes[0] > 5_000 > sizes[1]
