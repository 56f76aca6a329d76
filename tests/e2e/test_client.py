"""Tests the Python SDK against a real gateway, one that is killed and restarted among them."""

import asyncio
import signal
from pathlib import Path

import pytest

import lanewise
from lanewise.client import Client
from tests.e2e.gateway_process import DEVELOPMENT_KEY, SMALL_KEY, GatewayProcess
from tests.e2e.openai_socket import TOOL

LONG = "Write a very long book."


def client_of(gateway: GatewayProcess, key: str = DEVELOPMENT_KEY) -> Client:
    return lanewise.connect(gateway.url, key)


async def test_a_conversation_with_hints(gateway: GatewayProcess) -> None:
    async with client_of(gateway) as client:
        first = await client.create("The code word is opal-2.", route="fast", deadline_ms=60_000)
        assert first.status == "completed"
        assert first.routing is not None
        assert first.routing.route == "fast"
        assert first.routing.backends[0].group == "fast"
        assert first.routing.context.window_tokens > first.routing.context.used_tokens > 0
        assert first.routing.context.band == "sharp"
        second = await client.create("What is the code word?", after=first, route="deep")
        assert "opal-2" in second.text
        assert second.routing is not None
        assert second.routing.moved_from == first.routing.answered_by
        assert second.usage is not None
        assert second.usage.output_tokens > 0
        both = await client.create("Explain B-trees.", route="parallel", strategy="hedge")
        assert both.routing is not None
        assert both.routing.strategy == "hedge"


async def test_this_machine_is_reached_without_a_proxy(
    gateway: GatewayProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ws_proxy", "http://127.0.0.1:1")  # goes before http_proxy
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    async with client_of(gateway) as client:
        assert (await client.create("Say hello.")).text
    with pytest.raises(lanewise.LanewiseError, match=r"'127.0.0.1', 1"):
        async with lanewise.connect("http://gateway.example", DEVELOPMENT_KEY):
            pass


async def test_two_streams_side_by_side(gateway: GatewayProcess) -> None:
    async with client_of(gateway) as client:
        first, second = (
            client.stream(f"Describe {subject}.", model="lanewise-fast")
            for subject in ("ants", "bees")
        )
        texts, finals = ["", ""], ["", ""]

        async def read(number: int, stream: lanewise.Stream) -> None:
            async for event in stream:
                if isinstance(event, lanewise.TextDelta):
                    texts[number] += event.text
                elif isinstance(event, lanewise.Done):
                    finals[number] = event.response.text

        async with first, second:  # both run before either is read
            await asyncio.gather(read(0, first), read(1, second))
        assert texts == finals
        assert texts[0] != texts[1]


async def test_more_turns_than_the_socket_has_streams(gateway: GatewayProcess) -> None:
    async with client_of(gateway) as client:
        asks = (client.create(f"Count to {n}.", model="lanewise-fast") for n in range(40))
        answers = await asyncio.gather(*asks)
    assert len({answer.id for answer in answers}) == 40
    assert all(answer.status == "completed" for answer in answers)


async def test_steering_and_cancelling(gateway: GatewayProcess) -> None:
    async with client_of(gateway) as client:
        long = {"model": "lanewise-deep", "max_output_tokens": 4000}
        async with client.stream(LONG, **long) as stream:
            await stream.steer("The code word is ruby-6. What is the code word?")
            steered = await stream.response()
        assert "ruby-6" in steered.text
        assert isinstance(steered.after, lanewise.Response)
        assert steered.after.status == "incomplete"
        with pytest.raises(lanewise.LanewiseError) as late:
            await stream.steer("More.")
        assert late.value.code == "response_already_completed"

        async with client.stream(LONG, **long) as stream:
            async for event in stream:
                if isinstance(event, lanewise.TextDelta):
                    break
            await stream.cancel()
            cancelled = await stream.response()
        assert cancelled.status == "incomplete"
        assert cancelled.incomplete_details == {"reason": "cancelled"}

        async with client.stream(LONG, **long) as stream:
            await stream.next()
            steering = asyncio.create_task(stream.steer("The code word is onyx-7."))
            await asyncio.sleep(0)  # it is sent
            await stream.cancel()
            await steering
            with pytest.raises(lanewise.LanewiseError) as stopped:
                await stream.steer("More.")
            assert stopped.value.code == "response_cancelled"
            assert (await stream.response()).status == "incomplete"
        following = await client.create("Say hello.")  # has the same stream of the socket
        assert following.previous_response_id is None

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await client.create(LONG, **long)
        assert (await client.create("Say hello.")).text


async def test_a_turn_that_is_cancelled_while_it_waits_is_never_sent(
    gateway: GatewayProcess,
) -> None:
    """It would be answered on a stream that another turn has by then."""
    async with client_of(gateway) as client:
        long = {"model": "lanewise-deep", "max_output_tokens": 4000}
        running = [client.stream(LONG, **long) for _ in range(32)]
        for stream in running:
            await stream.__aenter__()
        waiting = client.stream(LONG, **long)
        reading = asyncio.create_task(waiting.response())
        await asyncio.sleep(0.1)  # it waits for a stream
        await waiting.cancel()
        for stream in running:
            await stream.cancel()
        with pytest.raises(lanewise.LanewiseError) as cancelled:
            await reading
        assert cancelled.value.code == "response_cancelled"
        words = [f"opal-{number}" for number in range(100, 132)]
        asks = (f"The code word is {word}. What is the code word?" for word in words)
        answers = await asyncio.gather(*(client.create(ask, route="fast") for ask in asks))
    for word, answer in zip(words, answers, strict=True):
        assert word in answer.text


async def test_a_tool_call_is_answered(gateway: GatewayProcess) -> None:
    async with client_of(gateway) as client:
        asked = await client.create(
            "What is 2 + 3?",
            model="lanewise-fast",
            tools=[TOOL],
            tool_choice="required",
            store=False,
        )
        (call,) = asked.calls
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "it is 5"}
        answer = await client.create([output], after=asked, model="lanewise-fast", tools=[TOOL])
        assert "it is 5" in answer.text


async def test_refusals_are_exceptions(gateway: GatewayProcess) -> None:
    async with client_of(gateway) as client:
        with pytest.raises(lanewise.LanewiseError) as unknown:
            await client.create("Hi.", model="gpt-0")
        assert unknown.value.code == "model_not_found"
        with pytest.raises(lanewise.LanewiseError) as missing:
            await client.create("Hi.", after="resp_no")
        assert missing.value.code == "previous_response_not_found"
    async with client_of(gateway, SMALL_KEY) as client:
        asks = (client.create("Hi.", route="fast") for _ in range(8))
        outcomes = await asyncio.gather(*asks, return_exceptions=True)
        refusals = [told for told in outcomes if isinstance(told, lanewise.LanewiseError)]
        assert refusals
        for refusal in refusals:
            assert refusal.code == "rate_limit_exceeded"
            assert refusal.status == 429
            assert refusal.retry_after_s is not None
            assert refusal.retry_after_s > 0
    with pytest.raises(lanewise.LanewiseError) as wrong:
        await client_of(gateway, "sk-wrong").__aenter__()
    assert wrong.value.code == "invalid_api_key"


def test_without_asyncio(gateway: GatewayProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LANEWISE_API_KEY", raising=False)
    with pytest.raises(ValueError, match="LANEWISE_API_KEY"):
        lanewise.connect_sync(gateway.base_url)
    monkeypatch.setenv("LANEWISE_API_KEY", DEVELOPMENT_KEY)
    monkeypatch.setenv("LANEWISE_URL", gateway.socket_url)
    with lanewise.connect_sync() as client:
        first = client.create("The code word is opal-2.")
        with client.stream("What is the code word?", after=first) as stream:
            events = list(stream)
        assert isinstance(events[0], lanewise.Started)
        assert isinstance(events[-1], lanewise.Done)
        assert "opal-2" in events[-1].response.text
        with pytest.raises(lanewise.LanewiseError):
            client.create("Hi.", model="gpt-0")
    for closed in (client, lanewise.connect_sync()):  # left, and never entered
        with pytest.raises(lanewise.LanewiseError, match="Enter it by `with`"):
            closed.create("Hi.")


async def test_nobody_listens() -> None:
    with pytest.raises(lanewise.LanewiseError) as refused:
        await lanewise.connect("http://127.0.0.1:1", "sk").__aenter__()
    assert refused.value.code == "connection_failed"


async def test_a_gateway_that_is_killed_restarted_and_drained(
    tmp_path: Path, redis_url: str
) -> None:
    """Stored turns go on by their id, others by all that was said; a cut one is run anew."""
    killed = GatewayProcess(tmp_path, "--redis", redis_url)
    again: GatewayProcess | None = None
    try:
        killed.wait_until_ready()
        # More retries than by default: a busy machine takes long to start a gateway.
        async with lanewise.connect(killed.url, DEVELOPMENT_KEY, max_retries=12) as client:
            stored = await client.create("The code word is opal-2.")
            local = await client.create("The code word is onyx-1.", store=False)
            local = await client.create("And the number is 41.", after=local, store=False)
            events = []
            async for event in client.stream(LONG, model="lanewise-deep", max_output_tokens=200):
                events.append(event)
                if isinstance(event, lanewise.TextDelta) and again is None:
                    killed.process.send_signal(signal.SIGKILL)
                    killed.process.wait()
                    again = GatewayProcess(tmp_path, "--redis", redis_url, port=killed.port)
            assert again is not None
            kinds = [type(event) for event in events]
            assert kinds.count(lanewise.Restarted) == 1
            restart = kinds.index(lanewise.Restarted)
            said = [e.text for e in events[restart:] if isinstance(e, lanewise.TextDelta)]
            assert isinstance(events[-1], lanewise.Done)
            assert "".join(said) == events[-1].response.text
            of_stored, of_local = await asyncio.gather(
                client.create("What is the code word?", after=stored),
                client.create("What is the code word?", after=local),
            )
            assert "opal-2" in of_stored.text
            assert of_stored.previous_response_id == stored.id
            assert "onyx-1" in of_local.text
            assert of_local.previous_response_id is None  # all of it was sent
        async with lanewise.connect(again.url, DEVELOPMENT_KEY, max_retries=1) as client:
            await drain(again, client)
    finally:
        killed.stop()
        if again is not None:
            assert again.stop() == 0, again.log


async def drain(gateway: GatewayProcess, client: Client) -> None:
    """Sends SIGTERM: what runs ends where it is; what is new looks elsewhere, not for ever."""
    long = {"model": "lanewise-deep", "max_output_tokens": 100}
    async with client.stream(LONG, **long) as running:
        await running.next()
        gateway.process.send_signal(signal.SIGTERM)
        events = []
        while (event := await running.next()) is not None:
            events.append(event)
        assert lanewise.Restarted not in [type(event) for event in events]
        assert isinstance(events[-1], lanewise.Done)
    with pytest.raises(lanewise.LanewiseError) as lost:
        await client.create("Say hello.")
    assert lost.value.code == "connection_lost"
