"""Tests the official Python SDK's WebSocket, `responses.connect()`, with another address."""

import json

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from tests.e2e.openai_socket import TERMINALS, TOOL, turn, until_terminal


def test_turns_are_chained_on_one_connection(client: OpenAI) -> None:
    with client.responses.connect() as connection:
        for store in (True, False):
            first = turn(connection, model="auto", input="The code word is opal-2.", store=store)
            assert first.output_text
            second = turn(
                connection,
                model="auto",
                input="What is the code word?",
                previous_response_id=first.id,
                store=store,
            )
            assert "opal-2" in second.output_text


def test_a_warm_up(client: OpenAI) -> None:
    with client.responses.connect() as connection:
        connection.response.create(
            model="auto", input="The code word is onyx-1.", generate=False, store=False
        )
        kinds, warm = until_terminal(connection)
        assert kinds == ["response.created", "response.in_progress", "response.completed"]
        answer = turn(
            connection, model="auto", input="The code word?", previous_response_id=warm.id
        )
        assert "onyx-1" in answer.output_text


def test_streams_are_told_apart(client: OpenAI) -> None:
    with client.responses.connect() as connection:
        for stream_id in ("a", "b", "c"):
            connection.response.create(
                model="lanewise-fast", input=f"Describe {stream_id}.", stream_id=stream_id
            )
        texts: dict[str, str] = {"a": "", "b": "", "c": ""}
        finals: dict[str, str] = {}
        for event in connection:
            if event.type == "response.output_text.delta":
                texts[event.stream_id or ""] += event.delta
            elif event.type == "response.completed":
                finals[event.stream_id or ""] = event.response.output_text
                if len(finals) == 3:
                    break
        assert finals == texts


def test_steering(client: OpenAI) -> None:
    with client.responses.connect() as connection:
        connection.response.create(
            model="lanewise-deep", input="Write a very long book.", max_output_tokens=4000
        )
        target, accepted, finished = "", False, False
        for event in connection:
            if event.type == "response.created":
                if not target:
                    target = event.response.id
                    connection.response.steer(
                        previous_response_id=target,
                        input="The code word is ruby-6. What is the code word?",
                    )
                else:
                    assert event.response.previous_response_id == target
            elif event.type == "response.steer.accepted":
                accepted = True
            elif event.type in TERMINALS and event.response.id != target:  # type: ignore[union-attr]
                assert "ruby-6" in event.response.output_text  # type: ignore[union-attr]
                finished = True
                break
        assert accepted
        assert finished


def test_a_function_round_trip(client: OpenAI) -> None:
    with client.responses.connect() as connection:
        response = turn(
            connection,
            model="lanewise-fast",
            input="What is 2 + 3?",
            tools=[TOOL],
            tool_choice="required",
            store=False,
        )
        (call,) = [item for item in response.output if item.type == "function_call"]
        assert set(json.loads(call.arguments)) == {"a", "b"}
        answer = turn(
            connection,
            model="lanewise-fast",
            previous_response_id=response.id,
            tools=[TOOL],
            input=[{"type": "function_call_output", "call_id": call.call_id, "output": "it is 5"}],
            store=False,
        )
        assert "it is 5" in answer.output_text


def test_errors_are_events_and_the_connection_goes_on(client: OpenAI) -> None:
    with client.responses.connect() as connection:
        connection.response.create(model="gpt-0", input="Hi.")
        event = connection.recv()
        assert event.type == "error"
        assert event.error.code == "model_not_found"  # type: ignore[union-attr]
        assert turn(connection, model="auto", input="Hi.").output_text
        connection.response.create(model="auto", input="Hi.", previous_response_id="resp_no")
        with pytest.raises(openai.OpenAIError, match="previous_response_not_found"):
            connection.dispatch_events()


async def test_async_connections(async_client: AsyncOpenAI) -> None:
    async with async_client.responses.connect() as connection:
        await connection.response.create(model="auto", input="Say hello.", stream_id="s")
        text, final = "", None
        async for event in connection:
            if event.type == "response.output_text.delta":
                text += event.delta
            if event.type in TERMINALS:
                final = event.response  # type: ignore[union-attr]
                break
        assert final is not None
        assert text
        assert final.output_text == text
