"""Tests steering and cancelling a running response."""

from typing import Any

import pytest

from backends import tokenizer
from tests.e2e.events import Event, check_response
from tests.e2e.socket_client import TERMINALS, SocketClient, calls_of, text_of

LONG = "Write a guide to sorting of 16,000 tokens."
WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}


async def started(connection: SocketClient, ask: str = LONG, **body: Any) -> str:
    """Returns a long answer under way; its id."""
    settings = {"model": "lanewise-deep", "max_output_tokens": 2000, "store": False, **body}
    await connection.create(ask, **settings)
    created = await connection.next_type("response.created")
    await connection.next_type("response.output_text.delta")
    response_id: str = created["response"]["id"]
    return response_id


async def steer(connection: SocketClient, target: str, input: Any) -> None:
    await connection.send(
        {"type": "response.steer", "previous_response_id": target, "input": input}
    )


def events_of(connection: SocketClient, response_id: str) -> list[Event]:
    """Returns all received events of one response, the steer events about it included."""
    own: list[Event] = []
    inside = False
    for event in connection.received:
        if event["type"] == "response.created":
            inside = event["response"]["id"] == response_id
        if inside and "sequence_number" in event:
            own.append(event)
        if event["type"] in TERMINALS and event["response"]["id"] == response_id:
            inside = False
    return own


@pytest.mark.parametrize("stream_id", [None, "main"])
@pytest.mark.parametrize(
    "input",
    [
        "What is the code word?",
        [{"role": "user", "content": "What is the code word?"}],
        [
            {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": "What is the code word?"}],
            }
        ],
    ],
    ids=["text", "message", "parts"],
)
async def test_a_steer_redirects_the_answer(
    connection: SocketClient, stream_id: str | None, input: Any
) -> None:
    named = {} if stream_id is None else {"stream_id": stream_id}
    first = await connection.turn("The code word is cobalt-9.", store=False, **named)
    target = await started(
        connection,
        previous_response_id=first["id"],
        metadata={"kept": "yes"},
        instructions="Be nice.",
        **named,
    )
    await steer(connection, target, input)
    accepted = await connection.next_type("response.steer.accepted")
    assert accepted["steer"]["previous_response_id"] == target
    assert accepted["steer"]["id"]
    assert accepted.get("stream_id") == stream_id
    stopped = (await connection.terminal(stream_id))["response"]
    assert stopped["id"] == target
    assert stopped["status"] == "incomplete"
    assert stopped["incomplete_details"] == {"reason": "steered"}
    assert stopped["output"][-1]["status"] == "completed", "the item in hand is ended cleanly"
    created = await connection.receive()
    assert created["type"] == "response.created", "nothing comes between the two"
    successor = (await connection.terminal(stream_id))["response"]
    assert successor["previous_response_id"] == target
    assert "cobalt-9" in text_of(successor), "its context is the steered one's, and the steer"
    for name in ("metadata", "instructions", "model", "store", "max_output_tokens"):
        assert successor[name] == stopped[name], f"{name} is inherited"
    check_response(events_of(connection, target))
    check_response(events_of(connection, successor["id"]))


QUICK = "Write a short poem of 12,000 words about the sea."
HARD = (
    "Stop that. Instead find the deadlock in our lock manager across all services, prove that your "
    "fix removes it for every interleaving, and design the migration."
)


async def test_a_steer_is_routed_anew(connection: SocketClient) -> None:
    """A quick question that turns into a deep task moves, with all that was said; and back."""
    await connection.turn("Hi.", max_output_tokens=20)  # checking the first events takes a while
    connection.received.clear()
    target = await started(connection, ask=QUICK, model="auto", max_output_tokens=16_000)
    created = next(e for e in connection.received if e["type"] == "response.created")
    assert created["response"]["routing"]["route"] == "fast"
    assert "moved_from" not in created["response"]["routing"]
    await steer(connection, target, HARD)
    stopped = (await connection.terminal())["response"]
    moved = (await connection.next_type("response.created"))["response"]
    assert moved["previous_response_id"] == target
    assert moved["routing"]["route"] == "deep"
    assert moved["routing"]["moved_from"] == "wafer"
    assert moved["routing"]["why"]
    await connection.next_type("response.output_text.delta")
    await steer(connection, moved["id"], "How many messages have I sent in this conversation?")
    deep = (await connection.terminal())["response"]
    last = (await connection.terminal())["response"]
    assert "3 messages" in text_of(last), "nothing of the conversation is lost on the way"
    for response in (stopped, deep, last):
        usage = response["usage"]
        used = response["routing"]["usage"].values()
        assert usage["total_tokens"] == sum(row["total_tokens"] for row in used)
        assert usage["input_tokens"] > 0
    # What the successor was given is what the client has seen, and the steer: no tail of it.
    num_seen = tokenizer.count(text_of(stopped))
    grown = deep["usage"]["input_tokens"] - stopped["usage"]["input_tokens"]
    num_steer_tokens = tokenizer.count(HARD)
    assert abs(grown - num_seen - num_steer_tokens) <= 16


async def test_several_steers_end_in_one_successor(connection: SocketClient) -> None:
    """They come before the response has ended; one too late is told so, and can be asked."""
    target = await started(connection)
    await steer(connection, target, "First, the code word is ochre-1.")
    await steer(connection, target, "What is the code word?")
    first, second = [
        await connection.next_type("response.steer.accepted", "response.steer.failed")
        for _ in range(2)
    ]
    assert first["type"] == "response.steer.accepted"
    while len(ended := [e["response"] for e in connection.received if e["type"] in TERMINALS]) < 2:
        await connection.receive()
    successor = ended[1]
    assert successor["previous_response_id"] == target
    if second["type"] == "response.steer.failed":
        assert second["error"]["code"] == "response_already_completed"
        successor = await connection.turn(
            "What is the code word?", previous_response_id=successor["id"]
        )
    assert "ochre-1" in text_of(successor)
    after = await connection.turn("Still there?", max_output_tokens=20)
    assert after["previous_response_id"] is None, "and nothing else was begun"


async def test_the_successor_comes_before_what_waits_on_the_stream(
    connection: SocketClient,
) -> None:
    target = await started(connection, stream_id="s")
    await connection.create("Queued.", stream_id="s", metadata={"n": "queued"})
    await steer(connection, target, "Stop here.")
    await connection.terminal("s")
    assert (await connection.terminal("s"))["response"]["previous_response_id"] == target
    assert (await connection.terminal("s"))["response"]["metadata"] == {"n": "queued"}


async def test_a_steered_chain_can_be_steered_again(connection: SocketClient) -> None:
    target = await started(connection)
    await steer(connection, target, LONG)
    await connection.terminal()
    created = await connection.next_type("response.created")
    await connection.next_type("response.output_text.delta")
    await steer(connection, created["response"]["id"], "Now stop.")
    await connection.terminal()
    last = (await connection.terminal())["response"]
    assert last["previous_response_id"] == created["response"]["id"]


async def test_a_steer_waits_for_the_functions_outputs(connection: SocketClient) -> None:
    """It ends in a call, whose output the client owes: the steer goes in front of that."""
    await connection.create(
        "Call get_weather.",
        model="lanewise-deep",
        tools=[WEATHER],
        tool_choice="required",
        store=False,
    )
    created = await connection.next_type("response.created")
    await steer(connection, created["response"]["id"], "The code word is jade-4.")
    event = await connection.next_type("response.steer.pending", "response.steer.failed", "error")
    assert event["type"] == "response.steer.pending", event
    assert event["reason"] == "waiting_for_required_input"
    terminal = next(e for e in connection.received if e["type"] in TERMINALS)
    (call,) = calls_of(terminal["response"])
    assert event["required_input"] == [
        {"type": "function_call_output", "call_id": call["call_id"], "name": "get_weather"}
    ]
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "sun"}
    ask = {"role": "user", "content": "What is the code word?"}
    answer = await connection.turn(
        [output, ask], previous_response_id=created["response"]["id"], store=False
    )
    assert "jade-4" in text_of(answer)


@pytest.mark.parametrize(
    ("input", "extra"),
    [
        ("", {}),
        ([], {}),
        (None, {}),
        (5, {}),
        ([{"role": "assistant", "content": "no"}], {}),
        ([{"role": "user", "content": ""}], {}),
        ([{"type": "function_call_output", "call_id": "c", "output": "x"}], {}),
        (["text"], {}),
        ("fine", {"stream_id": "s"}),
        ("fine", {"model": "auto"}),
    ],
)
async def test_bad_steers_fail_and_disturb_nothing(
    connection: SocketClient, input: Any, extra: dict[str, Any]
) -> None:
    target = await started(connection, max_output_tokens=120)
    await connection.send(
        {"type": "response.steer", "previous_response_id": target, "input": input, **extra}
    )
    failed = await connection.next_type("response.steer.failed", "response.steer.accepted")
    assert failed["type"] == "response.steer.failed"
    assert failed["error"]["code"] == "invalid_input"
    assert failed["error"]["message"]
    assert failed["steer"]["input"] == input
    assert (await connection.terminal())["response"]["id"] == target


async def test_steers_without_a_running_target_fail(connection: SocketClient) -> None:
    await steer(connection, "resp_unknown", "Hello?")
    failed = await connection.receive()
    assert failed["type"] == "response.steer.failed"
    assert failed["error"]["code"] == "response_not_found"
    assert failed["sequence_number"] == 0
    done = await connection.turn("Hi.", max_output_tokens=20, stream_id="s")
    await steer(connection, done["id"], "More.")
    failed = await connection.receive()
    assert failed["error"]["code"] == "response_already_completed"
    assert failed["stream_id"] == "s"
    assert failed["sequence_number"] > 0, "it goes on with its target's numbers"
    assert (await connection.turn("Hi.", max_output_tokens=20))["output"]


async def test_a_steer_with_a_target_that_is_no_string_fails(connection: SocketClient) -> None:
    await connection.send({"type": "response.steer", "previous_response_id": 5, "input": "x"})
    assert (await connection.receive())["type"] == "response.steer.failed"
    assert (await connection.turn("Hi.", max_output_tokens=20))["output"]


@pytest.mark.parametrize("model", ["lanewise-fast", "lanewise-deep"])
async def test_cancel_ends_a_response_as_incomplete(connection: SocketClient, model: str) -> None:
    """This extends the protocol; the connection and its streams go on."""
    target = await started(connection, model=model, max_output_tokens=16_000, stream_id="s")
    await connection.create("Next.", stream_id="s", max_output_tokens=20)
    await connection.send({"type": "response.cancel", "response_id": target})
    stopped = (await connection.terminal("s"))["response"]
    assert stopped["id"] == target
    assert stopped["status"] == "incomplete"
    assert stopped["incomplete_details"] == {"reason": "cancelled"}
    assert stopped["output"][-1]["status"] == "incomplete"
    assert stopped["usage"]["output_tokens"] < 16_000
    check_response(events_of(connection, target))
    assert (await connection.terminal("s"))["response"]["output"]


async def test_cancel_of_nothing_is_an_error(connection: SocketClient) -> None:
    await connection.send({"type": "response.cancel", "response_id": "resp_nothing"})
    error = await connection.error()
    assert error["error"]["code"] == "response_not_found"
    assert (await connection.turn("Hi.", max_output_tokens=20))["output"]
