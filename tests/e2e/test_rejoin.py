"""A lost socket is a pause: the response goes on, and the same request comes back to it."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.gateway_process import (
    CONFIG,
    DEVELOPMENT_KEY,
    SMALL_KEY,
    GatewayProcess,
    wait_until_at_rest,
)
from tests.e2e.returning_client import (
    FAR,
    WEATHER,
    check_rest,
    codex_metadata,
    come_back,
    done_items,
    lost_after,
    num_closed,
    output_for,
    reset,
    text_in,
    until_noticed,
    with_items,
)
from tests.e2e.socket_client import SocketClient, calls_of, text_of

STORY = "Tell a story of a lighthouse in 400 words."
# What each engine has still to tell when its client has come back, and tells in two seconds.
STORIES = {"lanewise-fast": STORY, "lanewise-deep": "Tell a story of a lighthouse in 100 words."}
HEADERS = {"authorization": f"Bearer {DEVELOPMENT_KEY}"}


def body_of(ask: Any = STORY, *, model: str = "lanewise-fast", **fields: Any) -> dict[str, Any]:
    return {"model": model, "input": ask, "store": False, **fields}


@pytest.mark.parametrize("model", STORIES)
@pytest.mark.parametrize("num_events", [1, 3, 6, 12])
async def test_the_same_create_comes_back_to_its_response(
    gateway: GatewayProcess, model: str, num_events: int
) -> None:
    before = gateway.metrics()
    body = body_of(STORIES[model], model=model)
    async with lost_after(gateway, body, num_events) as lost:
        events = await come_back(gateway, body)
    created, terminal = events[0]["response"], events[-1]["response"]
    assert created["id"] == terminal["id"] == lost[0]["response"]["id"]
    assert created["output"] == []
    assert terminal["status"] == "completed"
    assert text_in(events) == text_of(terminal)
    assert terminal["routing"]["rejoined"]["times"] == 1
    assert terminal["routing"]["rejoined"]["held_items"] == 0
    check_rest(events)
    after = gateway.metrics()
    for name in ("lanewise_rejoins_total", "lanewise_requests_total"):
        assert after.total(name) - before.total(name) == 1, name


async def test_only_what_the_client_does_not_hold_is_sent(gateway: GatewayProcess) -> None:
    """Reasoning came whole, and the socket was lost in the text: Codex' usual case."""
    body = body_of(
        "Prove that the halting problem is undecidable.",
        model="lanewise-deep",
        reasoning={"effort": "high", "summary": "auto"},
        client_metadata=codex_metadata("turn-1"),
    )
    async with lost_after(gateway, body, 1 << 30, "response.output_text.delta") as lost:
        (reasoning,) = done_items(lost)
        retry = with_items(body, [reasoning]) | {
            "client_metadata": codex_metadata("turn-1", stamp=2)
        }
        events = await come_back(gateway, retry)
    terminal = events[-1]["response"]
    assert terminal["id"] == lost[0]["response"]["id"]
    assert [item["id"] for item in events[0]["response"]["output"]] == [reasoning["id"]]
    added = [e for e in events if e["type"] == "response.output_item.added"]
    assert [(e["output_index"], e["item"]["type"]) for e in added] == [(1, "message")]
    assert not any(e["type"].startswith("response.reasoning") for e in events)
    assert text_in(events) == text_of(terminal)
    assert terminal["output"][0]["id"] == reasoning["id"]
    assert terminal["routing"]["rejoined"]["held_items"] == 1


async def test_a_lost_terminal_event_comes_alone(gateway: GatewayProcess) -> None:
    body = body_of("Say hello.", client_metadata=codex_metadata("turn-2"))
    async with lost_after(gateway, body, 1 << 30, "response.completed") as lost:
        events = await come_back(gateway, with_items(body, done_items(lost)))
    assert [event["type"] for event in events] == [
        "response.created",
        "response.in_progress",
        "response.completed",
    ]
    assert events[-1]["response"]["id"] == lost[0]["response"]["id"]
    assert events[-1]["response"]["output"] == lost[-1]["response"]["output"]


async def test_outputs_of_its_calls_begin_the_turns_next_model_call(
    gateway: GatewayProcess,
) -> None:
    body = body_of("What is the weather in Lisbon?", tools=[WEATHER], tool_choice="auto")
    body["input"] = "Call the get_weather function for Lisbon."
    async with lost_after(gateway, body, 1 << 30, "response.output_item.done") as lost:
        items = done_items(lost)
        assert items[-1]["type"] == "function_call"
        retry = with_items(body, items)
        retry["input"].append(output_for(items[-1], "hail and 19 degrees"))
        events = await come_back(gateway, retry)
    terminal = events[-1]["response"]
    assert terminal["id"] != lost[0]["response"]["id"]
    assert not calls_of(terminal), "nothing is called twice"
    assert "hail and 19 degrees" in text_of(terminal)


async def test_a_polite_goodbye_is_no_pause(gateway: GatewayProcess) -> None:
    body = body_of(max_output_tokens=16_000)
    async with SocketClient.open(gateway) as client:
        await client.send({"type": "response.create", **body})
        created = await client.next_type("response.created")
        await client.next_type("response.output_text.delta")
    events = await come_back(gateway, body_of("Say hello.") | body)
    assert events[-1]["response"]["id"] != created["response"]["id"]


@pytest.mark.parametrize(
    "change",
    [
        {"input": STORY + "."},
        {"temperature": 0.5},
        {"metadata": {"rejoin": "never"}},
        {"client_metadata": codex_metadata("another")},
        {"instructions": "Be brief."},
    ],
)
async def test_another_request_is_another_response(
    gateway: GatewayProcess, change: dict[str, Any]
) -> None:
    body = body_of()
    async with lost_after(gateway, body, 5) as lost:
        events = await come_back(gateway, body | change)
        assert events[-1]["response"]["id"] != lost[0]["response"]["id"]
        again = await come_back(gateway, body)  # and the first is still there
        assert again[-1]["response"]["id"] == lost[0]["response"]["id"]


async def test_another_key_does_not_join(gateway: GatewayProcess) -> None:
    body = body_of("Say hello to the harbour.")
    async with (
        lost_after(gateway, body, 3) as lost,
        SocketClient.open(gateway, SMALL_KEY) as client,
    ):
        await client.send({"type": "response.create", **body})
        created = await client.next_type("response.created", "error")
        assert created.get("response", {}).get("id") != lost[0]["response"]["id"]


async def test_two_equal_creates_at_once_are_two_answers(gateway: GatewayProcess) -> None:
    body = body_of()
    first, second = await asyncio.gather(*(come_back(gateway, body) for _ in range(2)))
    assert first[-1]["response"]["id"] != second[-1]["response"]["id"]
    assert "rejoined" not in first[-1]["response"]["routing"]


async def test_a_client_may_be_lost_many_times(gateway: GatewayProcess) -> None:
    body = body_of(client_metadata=codex_metadata("turn-5"))
    ids = set()
    for attempt in range(5):
        async with lost_after(gateway, body, 4 + attempt) as lost:
            ids.add(lost[0]["response"]["id"])
    events = await come_back(gateway, body)
    terminal = events[-1]["response"]
    assert ids == {terminal["id"]}
    assert text_in(events) == text_of(terminal)
    assert terminal["routing"]["rejoined"]["times"] == 5


async def test_the_memory_of_a_lost_socket_outlives_it(gateway: GatewayProcess) -> None:
    async with SocketClient.open(gateway) as client:
        first = await client.turn("The word is walrus.", model="lanewise-fast", store=False)
        body = body_of(
            [{"role": "user", "content": "What is the word?"}], previous_response_id=first["id"]
        )
        before = num_closed(gateway)
        await client.send({"type": "response.create", **body})
        created = await client.next_type("response.created")
        reset(client)
        await client.socket.wait_closed()
    await until_noticed(gateway, before)
    events = await come_back(gateway, body)  # unchanged: as an application sends it
    assert events[-1]["response"]["id"] == created["response"]["id"]
    assert "walrus" in text_of(events[-1]["response"])


async def test_the_next_turn_continues_a_response_come_back_to(gateway: GatewayProcess) -> None:
    body = body_of("The word is heron. Say hello.")
    async with (
        lost_after(gateway, body, 2) as lost,
        SocketClient.open(gateway) as client,
    ):
        await client.send({"type": "response.create", **body})
        first = (await client.terminal())["response"]
        assert first["id"] == lost[0]["response"]["id"]
        body = body_of(
            [{"role": "user", "content": "What is the word?"}], previous_response_id=first["id"]
        )
        assert "heron" in text_of(await client.turn(**body))


async def test_a_client_that_never_comes_back_costs_its_grace(
    folder: Path, redis_url: str, tmp_path: Path
) -> None:
    config = tmp_path / "lanewise.toml"
    config.write_text(CONFIG + "\n[server]\nrejoin_grace_s = 0.5\n")
    gateway = GatewayProcess(folder, "--config", str(config), "--redis", redis_url)
    try:
        await asyncio.to_thread(gateway.wait_until_ready)
        body = body_of(model="lanewise-deep", max_output_tokens=16_000)
        body["input"] = "Write a guide to sorting of 16,000 tokens."
        async with lost_after(gateway, body, 5):
            await asyncio.to_thread(wait_until_at_rest, gateway)
        metrics = gateway.metrics()
        assert metrics.total("lanewise_rejoins_total", result="expired") == 1
        assert metrics.total("lanewise_requests_total", outcome="cancelled") == 1
        assert metrics.total("lanewise_lost_responses") == 0
        assert 0 < metrics.total("lanewise_rejoin_grace_tokens_total") < 2_000
        assert "Traceback" not in gateway.log
    finally:
        gateway.stop()
    assert '"grace_units":' in gateway.log


async def test_a_policy_may_turn_it_off(folder: Path, redis_url: str, tmp_path: Path) -> None:
    config = tmp_path / "lanewise.toml"
    policy = tmp_path / "policy.toml"
    policy.write_text("[tenants.dev]\nrejoin_grace_s = 0\n")
    config.write_text(f'policy_path = "{policy}"\n' + CONFIG)
    gateway = GatewayProcess(folder, "--config", str(config), "--redis", redis_url)
    try:
        await asyncio.to_thread(gateway.wait_until_ready)
        body = body_of(max_output_tokens=16_000)
        async with lost_after(gateway, body, 5) as lost:
            await asyncio.to_thread(wait_until_at_rest, gateway)
            events = await come_back(gateway, body_of("Hi.") | {"input": STORY})
        assert events[-1]["response"]["id"] != lost[0]["response"]["id"]
        assert gateway.metrics().total("lanewise_rejoins_total") == 0
    finally:
        gateway.stop()


async def posted(gateway: GatewayProcess, body: dict[str, Any], num_events: int = FAR) -> list[Any]:
    """Returns events of a POST; the client leaves after so many."""
    events: list[Any] = []
    async with (
        httpx.AsyncClient(headers=HEADERS, timeout=60.0) as http,
        http.stream("POST", f"{gateway.base_url}/responses", json={**body, "stream": True}) as got,
    ):
        assert got.status_code == 200
        async for line in got.aiter_lines():
            if line.startswith("data: "):
                events.append(json.loads(line.removeprefix("data: ")))
            if len(events) >= num_events:
                break
    return events


async def test_a_post_comes_back_to_what_a_socket_lost(gateway: GatewayProcess) -> None:
    """Codex goes on over HTTP once its retries are used up."""
    body = body_of(client_metadata=codex_metadata("turn-6"))
    async with lost_after(gateway, body, 6) as lost:
        events = await posted(gateway, body)
    assert events[-1]["response"]["id"] == lost[0]["response"]["id"]
    assert text_in(events) == text_of(events[-1]["response"])
    check_rest(events)


async def test_a_post_without_events_comes_back_as_well(gateway: GatewayProcess) -> None:
    body = body_of(client_metadata=codex_metadata("turn-7"))
    async with lost_after(gateway, body, 6) as lost, httpx.AsyncClient(headers=HEADERS) as http:
        got = await http.post(f"{gateway.base_url}/responses", json=body, timeout=60.0)
    assert got.json()["id"] == lost[0]["response"]["id"]
    assert got.json()["status"] == "completed"


async def test_an_event_stream_goes_on_where_the_client_asks_for_it(
    gateway: GatewayProcess,
) -> None:
    body = body_of(metadata={"rejoin": "always"})
    first = await posted(gateway, body, 5)
    await asyncio.sleep(0.1)
    events = await posted(gateway, body)
    assert events[-1]["response"]["id"] == first[0]["response"]["id"]
    assert events[-1]["response"]["routing"]["rejoined"]["times"] == 1
    assert text_in(events) == text_of(events[-1]["response"])


async def test_a_closed_event_stream_stops_unasked(gateway: GatewayProcess) -> None:
    body = body_of("Tell a story of a heron.", max_output_tokens=16_000)
    first = await posted(gateway, body, 5)
    await asyncio.sleep(0.1)
    events = await posted(gateway, body)
    assert events[-1]["response"]["id"] != first[0]["response"]["id"]


async def test_a_post_continues_what_a_lost_socket_remembered(gateway: GatewayProcess) -> None:
    async with SocketClient.open(gateway) as client:
        first = await client.turn("The word is plover.", model="lanewise-fast", store=False)
        reset(client)
        await client.socket.wait_closed()
    await asyncio.sleep(0.2)
    body = body_of("What is the word?", previous_response_id=first["id"])
    events = await posted(gateway, body)
    assert "plover" in text_of(events[-1]["response"])


async def named(
    gateway: GatewayProcess, response_id: str, starting_after: int
) -> list[dict[str, Any]]:
    """Returns events of a response that is asked for by its name."""
    async with SocketClient.open(gateway) as client:
        rejoin = {"response_id": response_id, "starting_after": starting_after}
        await client.send({"type": "response.rejoin", "stream_id": "s1", **rejoin})
        await client.next_type("response.completed", "error")
        return client.received


async def test_a_response_is_come_back_to_by_its_name(gateway: GatewayProcess) -> None:
    body = body_of(
        "Prove that the halting problem is undecidable.",
        model="lanewise-deep",
        reasoning={"effort": "high", "summary": "auto"},
    )
    async with lost_after(gateway, body, 1 << 30, "response.output_text.delta") as lost:
        created = lost[0]["response"]["id"]
        events = await named(gateway, created, lost[-1]["sequence_number"])
    added = [e for e in events if e["type"] == "response.output_item.added"]
    assert [e["output_index"] for e in added] == [1]
    assert events[-1]["response"]["id"] == created
    assert text_in(events) == text_of(events[-1]["response"])
    assert {event["stream_id"] for event in events} == {"s1"}


async def test_nobody_waits_for_a_ping_to_be_missed(gateway: GatewayProcess) -> None:
    """The old socket seems alive, since its network is gone: the name takes the response."""
    async with SocketClient.open(gateway) as client:
        await client.send({"type": "response.create", **body_of(max_output_tokens=2_000)})
        created = await client.next_type("response.created")
        delta = await client.next_type("response.output_text.delta")
        events = await named(gateway, created["response"]["id"], delta["sequence_number"])
        assert text_in(events) == text_of(events[-1]["response"])
    await asyncio.to_thread(wait_until_at_rest, gateway)


async def test_a_socket_that_is_alive_is_told_where_its_response_went(
    gateway: GatewayProcess,
) -> None:
    """What waits behind it on the stream has its turn."""
    async with SocketClient.open(gateway) as client:
        long, short = body_of(max_output_tokens=2_000), body_of("Hi.", max_output_tokens=20)
        await client.send({"type": "response.create", "stream_id": "old", **long})
        await client.send({"type": "response.create", "stream_id": "old", **short})
        created = await client.next_type("response.created")
        delta = await client.next_type("response.output_text.delta")
        events = await named(gateway, created["response"]["id"], delta["sequence_number"])
        assert text_in(events) == text_of(events[-1]["response"])
        error = await client.next_type("error")
        assert (error["error"]["code"], error["stream_id"]) == ("conflict", "old")
        assert created["response"]["id"] in error["error"]["message"]
        behind = await client.terminal("old")
        assert behind["response"]["id"] != created["response"]["id"]
    await asyncio.to_thread(wait_until_at_rest, gateway)


async def test_a_cancel_right_behind_a_rejoin_stops_that_response(gateway: GatewayProcess) -> None:
    body = body_of(model="lanewise-deep", max_output_tokens=16_000)
    async with (
        lost_after(gateway, body, 1 << 30, "response.output_text.delta") as lost,
        SocketClient.open(gateway) as client,
    ):
        response_id = lost[0]["response"]["id"]
        asked = {"response_id": response_id, "starting_after": lost[-1]["sequence_number"]}
        await client.send({"type": "response.rejoin", **asked})
        await client.send({"type": "response.cancel", "response_id": response_id})
        response = (await client.terminal())["response"]
        assert (response["id"], response["status"]) == (response_id, "incomplete")
        assert response["incomplete_details"] == {"reason": "cancelled"}
        assert "error" not in {event["type"] for event in client.received}
        # On its own stream, though the response may not be in the books yet.
        asked = {"response_id": "resp_x", "starting_after": 0}
        for kind in ("response.rejoin", "response.cancel"):
            await client.send({"type": kind, **asked})
        for _ in range(2):
            error = await client.next_type("error")
            assert error["error"]["code"] == "response_not_found"
    await asyncio.to_thread(wait_until_at_rest, gateway)


@pytest.mark.parametrize("is_silent", [True, False])
async def test_the_same_turn_is_taken_from_a_socket_that_answers_no_ping(
    gateway: GatewayProcess, is_silent: bool
) -> None:
    """It is not taken from one that does: its client wants two answers."""
    body = body_of(client_metadata=codex_metadata(f"turn-silent-{is_silent}"))
    body |= {"model": "lanewise-deep", "max_output_tokens": 100}
    async with SocketClient.open(gateway) as client:
        await client.send({"type": "response.create", **body})
        created = await client.next_type("response.created")
        if is_silent:
            client.socket.transport.pause_reading()
        events = await come_back(gateway, body)
        assert (events[-1]["response"]["id"] == created["response"]["id"]) is is_silent
        assert text_in(events) == text_of(events[-1]["response"])
        if is_silent:
            reset(client)
        else:
            assert (await client.terminal())["response"]["id"] == created["response"]["id"]


async def test_a_name_that_nobody_knows_is_an_error(gateway: GatewayProcess) -> None:
    (event,) = await named(gateway, "resp_x", 3)
    assert event["error"]["code"] == "response_not_found"
    assert event["stream_id"] == "s1"
