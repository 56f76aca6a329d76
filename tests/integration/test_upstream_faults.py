"""Tests upstreams that fail in every way: each generation ends in one `Finish`."""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from backends.contract import (
    BackendError,
    FinishReason,
    FunctionTool,
    Usage,
)
from backends.upstream.backend import UpstreamBackend
from tests.integration.fault_server import TEXT, FaultServer
from tests.integration.upstreams import WAIT_S, RecordingSink, make_request, upstream
from tests.patience import until

PROTOCOLS = ("chat", "responses", "responses-ws")


@pytest.fixture
async def server() -> AsyncIterator[FaultServer]:
    async with FaultServer.running() as server:
        yield server


async def generate(backend: UpstreamBackend, **fields: Any) -> RecordingSink:
    """Run one generation to its end, and a few turns of the loop beyond."""
    sink = RecordingSink()
    backend.start(make_request(**fields), sink)
    await asyncio.wait_for(sink.ended.wait(), WAIT_S)
    while backend._pumps:
        await asyncio.wait(set(backend._pumps))
    assert len(sink.finishes) == 1
    stats = backend.stats()
    assert (stats.num_running, stats.num_waiting) == (0, 0)
    return sink


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_an_answer_comes_whole_and_its_connection_is_used_again(
    server: FaultServer, protocol: str
) -> None:
    async with upstream(server.base_url(protocol), protocol) as backend:
        for _ in range(3):
            sink = await generate(backend)
            assert sink.text == "".join(TEXT)
            assert sink.finishes[0].reason is FinishReason.STOP
            assert sink.finishes[0].usage == Usage(num_input_tokens=11, num_output_tokens=7)
    assert server.num_requests == 3
    # A socket is opened ahead; the first generation may have come before it was.
    assert server.num_connections <= (2 if protocol == "responses-ws" else 1)
    assert all(body["model"] == "told" for body in server.bodies)


# What the server does -> retryable, whether text was seen, how often it is asked.
FAULTS = {
    "hang before headers": (True, False, 1),
    "hang before the first token": (True, False, 1),
    "hang midway": (True, True, 1),
    "garbage": (True, True, 1),
    "error event": (True, True, 1),
    "cut": (True, True, 1),
    "end without a terminal": (True, True, 1),
    "status 500": (True, False, 3),
    "status 503": (True, False, 3),
    "status 429": (True, False, 3),
    "status 429 30": (True, False, 1),
    "status 400": (False, False, 1),
    "status 302": (True, False, 1),
    "status 401": (True, False, 1),
    "status 404": (True, False, 1),
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("fault", FAULTS)
async def test_each_fault_ends_in_one_error(server: FaultServer, protocol: str, fault: str) -> None:
    retryable, speaks, num_requests = FAULTS[fault]
    hangs = fault.startswith("hang")
    options: dict[str, object] = {"eject_after": 10_000}
    if hangs:
        options["idle_timeout_s" if speaks else "first_token_timeout_s"] = 0.3
    async with upstream(server.base_url(protocol), protocol, **options) as backend:
        # It is connected before: a busy machine may take longer for that than it may hang.
        while hangs and (await generate(backend)).finishes[0].reason is not FinishReason.STOP:
            pass
        before = server.num_requests
        server.plan = [fault]
        sink = await generate(backend)
        async with asyncio.timeout(WAIT_S):  # what was sent may be read later than it was given up
            while server.num_requests < before + num_requests:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    (finish,) = sink.finishes
    assert finish.reason is FinishReason.ERROR
    assert finish.error is not None
    assert finish.error.retryable is retryable
    assert sink.text == (TEXT[0] if speaks else "")
    assert server.num_requests == before + num_requests
    if speaks:
        assert not finish.usage.exact
        assert finish.usage.num_output_tokens > 0
    elif not hangs:
        assert finish.usage == Usage(), "nothing was generated, so nothing is charged"


@pytest.mark.parametrize("protocol", ["chat", "responses"])
async def test_json_in_place_of_a_stream(server: FaultServer, protocol: str) -> None:
    async with upstream(server.base_url(protocol), protocol) as backend:
        server.plan = ["whole answer", "whole error", "answer"]
        whole, failed, streamed = [await generate(backend) for _ in range(3)]
    for sink in (whole, streamed):
        assert sink.text == "".join(TEXT)
        assert sink.finishes[0].reason is FinishReason.STOP
        assert sink.finishes[0].usage == Usage(num_input_tokens=11, num_output_tokens=7)
    error = failed.finishes[0].error
    assert error is not None
    assert (error.code, error.retryable) == ("invalid_prompt", False)
    assert error.message == "the upstream failed: told to"
    assert server.num_connections == 1


@pytest.mark.parametrize("protocol", ["chat", "responses"])
async def test_a_page_in_place_of_a_stream(server: FaultServer, protocol: str) -> None:
    async with upstream(server.base_url(protocol), protocol, max_retries=0) as backend:
        server.plan = ["page"]
        error = (await generate(backend)).finishes[0].error
    assert error is not None
    assert error.message == "the upstream answered 200 without any event: is its address right?"


# What a server does that then holds the connection open -> whether its usage is known.
HELD_OPEN = {"hang behind the reason": False, "hang behind the reason and usage": True}


@pytest.mark.parametrize("plan", HELD_OPEN)
async def test_a_finish_reason_ends_an_answer_though_its_stream_goes_on(
    server: FaultServer, plan: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_told = HELD_OPEN[plan]
    monkeypatch.setattr("backends.upstream.backend.USAGE_GRACE_S", 2 * WAIT_S if is_told else 0.01)
    async with upstream(server.base_url("chat"), "chat", idle_timeout_s=2 * WAIT_S) as backend:
        server.plan = [plan, "answer"]
        for number in range(2):
            sink = await generate(backend)
            assert sink.text == "".join(TEXT)
            assert sink.finishes[0].reason is FinishReason.STOP
            assert sink.finishes[0].usage.exact is (is_told or number == 1)
        await asyncio.wait_for(server.left.wait(), WAIT_S)
        assert server.num_connections == 2, "none is used again whose answer may go on"


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_refused_connection_ends_in_one_error(protocol: str) -> None:
    async with FaultServer.running() as server:
        base_url = server.base_url(protocol)
    async with upstream(base_url, protocol) as backend:  # nobody listens any more
        sink = await generate(backend)
    assert sink.finishes[0].error is not None
    assert sink.finishes[0].error.code == "server_error"
    assert sink.finishes[0].usage == Usage()


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("fault", ["status 500", "status 503", "status 429 0.01"])
async def test_a_fault_before_the_first_token_is_retried(
    server: FaultServer, protocol: str, fault: str
) -> None:
    server.plan = [fault, fault, "answer"]
    async with upstream(server.base_url(protocol), protocol) as backend:
        sink = await generate(backend)
    assert sink.finishes[0].reason is FinishReason.STOP
    assert sink.text == "".join(TEXT)
    assert server.num_requests == 3


@pytest.mark.parametrize("way", ["field", "prompt"])
async def test_a_prediction_that_is_refused_is_left_out(server: FaultServer, way: str) -> None:
    server.plan = ["status 400", "answer"]
    options = {"prediction": way, "max_retries": 0}
    async with upstream(server.base_url("chat"), "chat", **options) as backend:
        sink = await generate(backend, prediction="One, two, three.")
    assert sink.finishes[0].reason is FinishReason.STOP
    assert sink.text == "".join(TEXT)
    assert ["One, two" in str(body) for body in server.bodies] == [True, False]


async def test_what_is_refused_for_another_reason_is_not_asked_again(server: FaultServer) -> None:
    server.plan = ["status 400"]
    tools = (FunctionTool("look"),)
    async with upstream(server.base_url("chat"), "chat", prediction="field") as backend:
        for fields in ({}, {"prediction": "One, two.", "tools": tools}):  # beside tools: not sent
            before = server.num_requests
            sink = await generate(backend, **fields)
            assert sink.finishes[0].error is not None
            assert server.num_requests == before + 1
        before = server.num_requests
        sink = await generate(backend, prediction="One, two, three.")
        assert sink.finishes[0].error is not None
        assert server.num_requests == before + 2, "once more, and then it fails"


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("plan", ["hang before the first token", "hang midway"])
async def test_cancelling_closes_the_connection(
    server: FaultServer, protocol: str, plan: str
) -> None:
    server.plan = [plan]
    async with upstream(server.base_url(protocol), protocol) as backend:
        sink = RecordingSink()
        generation = backend.start(make_request(), sink)
        await asyncio.wait_for(server.asked.wait(), WAIT_S)
        if plan == "hang midway":
            await asyncio.wait_for(sink.first.wait(), WAIT_S)
        usage = generation.cancel()
        assert generation.cancel() == usage
        await asyncio.sleep(0)  # one turn of the event loop
        assert generation.pump.done()
        assert not usage.exact
        assert backend.stats().num_running == 0
        await asyncio.wait_for(server.left.wait(), WAIT_S)
        server.plan = ["answer"]
        assert (await generate(backend)).text == "".join(TEXT)
    assert not sink.finishes


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_cancelling_at_any_moment_leaves_no_connection(
    server: FaultServer, protocol: str
) -> None:
    """It leaves none that was being opened, of which the server may hear nothing."""
    server.plan = ["hang before the first token"]
    num_turns = 0  # of the event loop until it is cancelled: more each time, until it was asked
    while not server.asked.is_set():
        async with upstream(server.base_url(protocol), protocol) as backend:
            generation = backend.start(make_request(), RecordingSink())
            for _ in range(num_turns):
                await asyncio.sleep(0)
            generation.cancel()
            if protocol != "responses-ws":  # there one is opened ahead, which stays
                await until(lambda: server.num_open == 0)
        await until(lambda: server.num_open == 0)
        num_turns += 1 + num_turns // 10


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_closing_the_backend_fails_what_is_under_way(
    server: FaultServer, protocol: str
) -> None:
    server.plan = ["hang midway"]
    async with upstream(server.base_url(protocol), protocol) as backend:
        sink = RecordingSink()
        backend.start(make_request(), sink)
        await asyncio.wait_for(sink.first.wait(), WAIT_S)
    (finish,) = sink.finishes
    assert finish.reason is FinishReason.ERROR
    with pytest.raises(BackendError):
        backend.start(make_request(), sink)


async def test_a_socket_that_is_too_old_for_the_server_is_replaced(server: FaultServer) -> None:
    server.plan = ["answer", "too old", "answer"]
    async with upstream(server.base_url("responses-ws"), "responses-ws") as backend:
        for _ in range(2):
            assert (await generate(backend)).text == "".join(TEXT)
        assert backend.stats().healthy
    assert server.num_requests == 3
    assert server.num_connections >= 2


async def test_a_socket_that_is_too_old_for_us_is_replaced(server: FaultServer) -> None:
    options = {"socket_max_age_s": 1e-6}
    async with upstream(server.base_url("responses-ws"), "responses-ws", **options) as backend:
        for _ in range(3):
            assert (await generate(backend)).text == "".join(TEXT)
    assert server.num_connections >= 3


async def test_one_of_several_streams_can_be_cancelled(server: FaultServer) -> None:
    """The others on its socket go on, and the stream is used again once its response ended."""
    server.plan = ["hang midway", "hang midway", "answer"]
    options = {"max_streams_per_socket": 2, "cancel_event": True}
    async with upstream(server.base_url("responses-ws"), "responses-ws", **options) as backend:
        sinks = [RecordingSink(), RecordingSink()]
        generations = [backend.start(make_request(), sink) for sink in sinks]
        for sink in sinks:
            await asyncio.wait_for(sink.first.wait(), WAIT_S)
        generations[0].cancel()
        await asyncio.wait_for(server.cancelled.wait(), WAIT_S)
        third = RecordingSink()
        backend.start(make_request(), third)
        await asyncio.wait_for(third.ended.wait(), WAIT_S)
        assert third.text == "".join(TEXT)
        assert not sinks[1].finishes
        generations[1].cancel()
    assert {body["stream_id"] for body in server.bodies} == {"s0", "s1"}
    assert server.num_connections <= 2  # the third may have come before the first had ended


SWARM = 80  # below the backlog of a listening socket


@pytest.mark.parametrize("protocol", [*PROTOCOLS, "streams"])
async def test_a_swarm_of_faults_and_cancels_leaves_nothing_behind(
    server: FaultServer, protocol: str
) -> None:
    """Whatever happens, each generation ends once, or was cancelled and is silent."""
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    faults = ["answer", "answer", "cut", "garbage", "error event", "status 500", "hang midway"]
    server.plan = [chance.choice(faults) for _ in range(SWARM * 3)] + ["answer"]
    options: dict[str, object] = {"max_num_seqs": SWARM, "eject_after": 10_000}
    options |= {"first_token_timeout_s": WAIT_S, "idle_timeout_s": 0.5}
    if protocol == "streams":
        protocol = "responses-ws"
        options |= {"max_streams_per_socket": 8, "cancel_event": True}
    async with upstream(server.base_url(protocol), protocol, **options) as backend:
        loop = asyncio.get_running_loop()
        sinks = [RecordingSink() for _ in range(SWARM)]
        cancelled: set[RecordingSink] = set()
        for sink in sinks:
            generation = backend.start(make_request(), sink)
            if chance.random() < 0.3:
                cancelled.add(sink)
                loop.call_later(chance.random() * 0.2, generation.cancel)
        for sink in sinks:
            if sink not in cancelled:
                await asyncio.wait_for(sink.ended.wait(), WAIT_S)
        while backend._pumps:
            await asyncio.wait(set(backend._pumps), timeout=WAIT_S)
        stats = backend.stats()
        assert (stats.num_running, stats.num_waiting) == (0, 0), f"seed {seed}"
        for sink in sinks:
            assert len(sink.finishes) <= 1, f"seed {seed}"
            assert sink.finishes or sink in cancelled, f"seed {seed}"
            # Every request is answered at once: who waits for a first token was forgotten.
            assert not any("first token" in str(f.error) for f in sink.finishes), f"seed {seed}"
            if sink.finishes and sink.finishes[0].reason is not FinishReason.ERROR:
                assert sink.text == "".join(TEXT), f"seed {seed}"


async def test_failures_in_a_row_eject_it(server: FaultServer) -> None:
    server.plan = ["cut"]
    async with upstream(server.base_url("chat"), "chat", eject_after=3) as backend:
        for _ in range(3):
            assert backend.stats().healthy
            assert not backend.stats().ejected
            await generate(backend)
        assert not backend.stats().healthy
        assert backend.stats().ejected
        with pytest.raises(BackendError, match="not available"):
            backend.start(make_request(), RecordingSink())


async def test_one_that_is_left_for_its_silence_has_failed(server: FaultServer) -> None:
    server.plan = ["hang before the first token"]
    async with upstream(server.base_url("chat"), "chat", eject_after=2) as backend:
        for is_silent in (False, True, True):
            assert not backend.stats().ejected
            generation = backend.start(make_request(), RecordingSink())
            await asyncio.wait_for(server.asked.wait(), WAIT_S)
            generation.cancel(is_silent=is_silent)
        assert backend.stats().ejected


async def test_it_takes_no_more_than_its_places(server: FaultServer) -> None:
    server.plan = ["hang midway"]
    async with upstream(server.base_url("chat"), "chat", max_num_seqs=2) as backend:
        generations = [backend.start(make_request(), RecordingSink()) for _ in range(2)]
        with pytest.raises(BackendError, match="2 generations already"):
            backend.start(make_request(), RecordingSink())
        generations[0].cancel()
        backend.start(make_request(), RecordingSink())


async def test_a_socket_that_is_refused_with_a_header_twice() -> None:
    """A proxy adds its own to what its server says."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 429 No\r\nretry-after: 30\r\nretry-after: 40\r\n\r\n")
        writer.close()

    refusing = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with refusing:
        host, port = refusing.sockets[0].getsockname()
        async with upstream(f"http://{host}:{port}/v1", "responses-ws") as backend:
            (finish,) = (await generate(backend)).finishes
    assert finish.error is not None
    assert (finish.error.code, finish.error.retry_after_us) == ("rate_limit_exceeded", 40_000_000)


async def test_the_probe_tells_whether_it_lives() -> None:
    async with FaultServer.running() as server:
        base_url = server.base_url("chat")
        options = {"probe_path": "/models", "probe_interval_s": 0.05}
        async with upstream(base_url, "chat", **options) as backend:
            assert not backend.stats().healthy, "unknown until it answers"
            async with asyncio.timeout(WAIT_S):
                while not backend.stats().healthy:  # noqa: ASYNC110 -- nothing tells of it
                    await asyncio.sleep(0.01)
                assert any(head.startswith("GET /v1/models ") for head in server.headers)
    async with upstream(base_url, "chat", **options) as backend:
        await asyncio.sleep(0.2)  # a few probes, all refused
        assert not backend.stats().healthy


async def test_the_key_comes_from_the_environment(
    server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TOLD_KEY", raising=False)
    with pytest.raises(ValueError, match="TOLD_KEY is not set"):
        async with upstream(server.base_url("chat"), "chat", key_env="TOLD_KEY"):
            pass
    monkeypatch.setenv("TOLD_KEY", "sk-told")
    async with upstream(server.base_url("chat"), "chat", key_env="TOLD_KEY") as backend:
        await generate(backend)
    assert "authorization: bearer sk-told" in server.headers[-1].lower()
