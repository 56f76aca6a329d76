"""Tests many streams on one socket: order within each, concurrency between them, and the limits."""

import itertools
import json

import pytest

from tests.e2e.events import Event, check_response
from tests.e2e.gateway_process import GatewayProcess
from tests.e2e.socket_client import TERMINALS, SocketClient, text_of

LONG = "Write a guide to sorting of 16,000 tokens."


def by_stream(events: list[Event]) -> dict[str | None, list[Event]]:
    streams: dict[str | None, list[Event]] = {}
    for event in events:
        streams.setdefault(event.get("stream_id"), []).append(event)
    return streams


def split_responses(events: list[Event]) -> list[list[Event]]:
    """Splits a stream's events into those of each of its responses, which must not overlap."""
    responses: list[list[Event]] = []
    for event in events:
        if event["type"] == "response.created":
            responses.append([])
        responses[-1].append(event)
    return responses


async def wait_for_terminals(connection: SocketClient, count: int) -> None:
    seen = 0
    while seen < count:
        event = await connection.receive()
        assert event["type"] != "error", event
        seen += event["type"] in TERMINALS


async def test_a_long_fast_answer_and_a_deep_one_share_a_socket(connection: SocketClient) -> None:
    """Neither waits for the other: their deltas interleave, and the later one ends first."""
    await connection.create(
        LONG, model="lanewise-deep", stream_id="deep", max_output_tokens=400, store=False
    )
    await connection.until(lambda e: e["type"] == "response.output_text.delta")
    await connection.create(
        LONG, model="lanewise-fast", stream_id="fast", max_output_tokens=4000, store=False
    )
    await wait_for_terminals(connection, 2)
    streams = by_stream(connection.received)
    assert set(streams) == {"fast", "deep"}
    for events in streams.values():
        check_response(events)
    used = {name: events[-1]["response"]["usage"] for name, events in streams.items()}
    assert used["fast"]["output_tokens"] == 4000
    assert used["deep"]["output_tokens"] == 400
    order = [
        event["stream_id"]
        for event in connection.received
        if event["type"] == "response.output_text.delta"
    ]
    switches = sum(a != b for a, b in itertools.pairwise(order))
    assert switches >= 20, f"only {switches} switches in {len(order)} deltas"
    terminals = [e["stream_id"] for e in connection.received if e["type"] in TERMINALS]
    assert terminals == ["fast", "deep"], "4,000 fast tokens take less time than 400 deep ones"


async def test_many_frames_in_one_packet_are_taken_in_order(connection: SocketClient) -> None:
    """The first are taken as they come, and the others from a queue behind them."""
    socket, names = connection.socket, [f"s{number}" for number in range(32)]
    for name in names:
        # Each is refused at once, so that answers come in the order in which they were taken.
        request = {"type": "response.create", "stream_id": name, "model": "lanewise-fast"}
        socket.protocol.send_text(json.dumps(request | {"background": True}).encode())
    socket.transport.write(b"".join(socket.protocol.data_to_send()))
    events = [await connection.receive() for _ in names]
    assert [event["stream_id"] for event in events] == names
    assert {event["error"]["code"] for event in events} == {"unsupported_parameter"}
    await connection.create("Say hello.", max_output_tokens=8, store=False)
    await wait_for_terminals(connection, 1)


async def test_each_stream_is_first_in_first_out(connection: SocketClient) -> None:
    for number in range(4):
        for stream_id in ("a", "b", None):
            named = {} if stream_id is None else {"stream_id": stream_id}
            await connection.create(
                f"Question {number}.", metadata={"n": str(number)}, max_output_tokens=60, **named
            )
    await wait_for_terminals(connection, 12)
    streams = by_stream(connection.received)
    assert set(streams) == {"a", "b", None}
    for events in streams.values():
        responses = split_responses(events)
        for response in responses:
            check_response(response)
        numbers = [response[-1]["response"]["metadata"]["n"] for response in responses]
        assert numbers == ["0", "1", "2", "3"]


async def test_a_pipelined_turn_continues_the_one_before_it(connection: SocketClient) -> None:
    """The parent is still running when its child arrives; the stream's order makes it complete."""
    await connection.create("The code word is saffron-12.", stream_id="s", store=False)
    created = await connection.next_type("response.created")
    await connection.create(
        "What is the code word?",
        stream_id="s",
        store=False,
        previous_response_id=created["response"]["id"],
    )
    await connection.terminal("s")
    answer = (await connection.terminal("s"))["response"]
    assert "saffron-12" in text_of(answer)


async def test_a_fork_takes_its_parents_context_to_another_stream(
    connection: SocketClient,
) -> None:
    parent = await connection.turn("The code word is indigo-5.", stream_id="main", store=False)
    await connection.create(
        "What is the code word?",
        stream_id="fork",
        store=False,
        previous_response_id=parent["id"],
    )
    await connection.next_type("response.in_progress")
    follow_up = await connection.turn(
        "The code word is now umber-6.",
        stream_id="main",
        store=False,
        previous_response_id=parent["id"],
    )
    forked = [
        event["response"]
        for event in connection.received
        if event["type"] in TERMINALS and event.get("stream_id") == "fork"
    ] or [(await connection.terminal("fork"))["response"]]
    assert "indigo-5" in text_of(forked[0])
    assert "umber-6" not in text_of(forked[0])
    assert follow_up["previous_response_id"] == parent["id"]


async def test_at_most_sixteen_run_and_the_others_wait_unharmed(connection: SocketClient) -> None:
    for number in range(20):
        await connection.create(
            f"{LONG} {number}", model="lanewise-deep", stream_id=f"s{number}", max_output_tokens=64
        )
    await wait_for_terminals(connection, 20)
    running = most = 0
    for event in connection.received:
        if event["type"] == "response.created":
            running += 1
            most = max(most, running)
        elif event["type"] in TERMINALS:
            running -= 1
    assert most == 16
    for events in by_stream(connection.received).values():
        check_response(events)


async def test_the_thirty_third_named_stream_is_refused(connection: SocketClient) -> None:
    for number in range(32):
        await connection.turn("Hi.", stream_id=f"n{number}", generate=False, store=False)
    await connection.create("Hi.", stream_id="n32")
    error = await connection.error()
    assert error["error"]["code"] == "websocket_stream_limit_reached"
    assert error["stream_id"] == "n32"
    known = await connection.turn("Hi.", stream_id="n7", max_output_tokens=30)
    default = await connection.turn("Hi.", max_output_tokens=30)
    assert known["output"]
    assert default["output"]


@pytest.mark.parametrize("stream_id", ["", " ", "a b", "ä", "x" * 257, 5, None, ["a"]])
async def test_bad_stream_ids_are_refused_without_one(
    connection: SocketClient, stream_id: object
) -> None:
    await connection.create("Hi.", stream_id=stream_id)
    error = await connection.error()
    assert error["error"]["code"] == "invalid_stream_id"
    assert error["error"]["param"] == "stream_id"
    assert "stream_id" not in error


async def test_errors_of_a_named_stream_carry_its_name(connection: SocketClient) -> None:
    await connection.create("Hi.", model="no-such-model", stream_id="lost")
    error = await connection.error()
    assert error["stream_id"] == "lost"
    assert error["status"] == 400, "Codex would retry a 404"
    assert (await connection.turn("Hi.", stream_id="lost", max_output_tokens=30))["output"]


async def test_what_waits_on_a_connection_is_bounded(gateway: GatewayProcess) -> None:
    async with SocketClient.open(gateway) as connection:
        for number in range(300):
            await connection.create(
                LONG, model="lanewise-deep", stream_id="q", metadata={"n": str(number)}
            )
        error = await connection.next_type("error")
        assert error["status"] == 429
        assert error["error"]["code"] == "rate_limit_exceeded"
        assert error["stream_id"] == "q"
    # closing drops the queue: the session fixture sees to it that nothing is left
