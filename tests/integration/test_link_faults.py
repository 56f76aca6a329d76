"""Tests a peer that breaks the link's protocol: its generations end, and the link comes back."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus

import msgspec
import pytest
from websockets.asyncio.server import Request, Response, ServerConnection, serve

from backends.contract import (
    BackendError,
    BackendInfo,
    BackendStats,
    Delta,
    DeltaKind,
    Finish,
    FinishReason,
    GenerateRequest,
    Usage,
)
from backends.link.backend import LinkBackend, LinkOptions
from backends.link.frames import (
    VERSION,
    Hello,
    Start,
    Step,
    StepBuilder,
    encode,
    gateway_frames,
)
from tests.ports import free_port

PATIENCE_S = 60.0  # bounds a hang
INFO = BackendInfo(
    name="far", model="far", group="fast", window_tokens=1_000, max_output_tokens=1_000
)
IDLE = BackendStats(
    info=INFO,
    healthy=True,
    num_running=0,
    num_waiting=0,
    max_num_seqs=8,
    kv_used_tokens=0,
    kv_capacity_tokens=0,
)
ONE = [1]


class Heard:
    """Is a sink that keeps its finish."""

    def __init__(self) -> None:
        self.finished: asyncio.Future[Finish] = asyncio.get_running_loop().create_future()
        self.text = ""
        self.deltas: list[Delta] = []

    def push(self, delta: Delta) -> None:
        self.text += delta.text
        self.deltas.append(delta)

    def finish(self, finish: Finish) -> None:
        self.finished.set_result(finish)


class Warnings(logging.Handler):
    """Keeps what an operator is told, as it comes."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.told: list[str] = []
        self.more = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.told.append(record.getMessage())
        self.more.set()


@pytest.fixture
async def warnings() -> AsyncIterator[Warnings]:
    heard = Warnings()
    logger = logging.getLogger("lanewise")
    logger.addHandler(heard)
    yield heard
    logger.removeHandler(heard)


async def up(link: LinkBackend) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not link.stats().healthy:  # noqa: ASYNC110 - a backend's health has no event
            await asyncio.sleep(0.005)


def garbage(keys: list[int]) -> bytes:
    return b"\xff\x00garbage"


def unknown_kind(keys: list[int]) -> bytes:
    return encode(Step(keys, [0], [99], ["x"], ONE, ONE, {}, []))


def ragged_columns(keys: list[int]) -> bytes:
    return encode(Step(keys, [0, 0], [0], ["x"], ONE, ONE, {}, []))


@pytest.mark.parametrize("bad", [garbage, unknown_kind, ragged_columns])
async def test_a_frame_out_of_protocol_ends_what_runs_and_not_the_link(
    bad: Callable[[list[int]], bytes],
) -> None:
    async def far(connection: ServerConnection) -> None:
        await connection.send(encode(Hello(VERSION, 0, INFO, IDLE)))
        async for message in connection:
            assert isinstance(message, bytes)
            started = gateway_frames.decode(message)
            if isinstance(started, Start):
                keys = [started.key]
                await connection.send(encode(Step(keys, [0], [0], ["hi"], ONE, ONE, {}, [])))
                await connection.send(bad(keys))

    async with serve(far, "127.0.0.1", 0, compression=None) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        options = LinkOptions(url=f"ws://127.0.0.1:{port}/", retry_min_s=0.01)
        link = LinkBackend(name="far", options=options)
        try:
            for _ in range(2):
                await up(link)
                heard = Heard()
                request = GenerateRequest(
                    id="r",
                    model="far",
                    items=(),
                    num_prompt_tokens=1,
                    prefix=(),
                    max_output_tokens=9,
                )
                link.start(request, heard)
                finish = await asyncio.wait_for(heard.finished, PATIENCE_S)
                assert finish.reason is FinishReason.ERROR
                assert heard.text.startswith("hi"), "what came before counts"
        finally:
            await link.close()


async def test_sealed_reasoning_and_phases_come_through() -> None:
    said = [
        Delta(0, DeltaKind.REASONING, "Hm.", 1, 10, sealed="blob"),
        Delta(1, DeltaKind.TEXT, "Let me see.", 3, 11, phase="commentary"),
        Delta(2, DeltaKind.FUNCTION_CALL, "{}", 1, 12, "call_1", "look"),
        Delta(3, DeltaKind.TEXT, "So.", 1, 13, phase="final_answer"),
    ]

    async def far(connection: ServerConnection) -> None:
        await connection.send(encode(Hello(VERSION, 0, INFO, IDLE)))
        async for message in connection:
            assert isinstance(message, bytes)
            started = gateway_frames.decode(message)
            if isinstance(started, Start):
                steps = StepBuilder()
                for delta in said:
                    steps.add(started.key, delta)
                steps.end(started.key, Finish(FinishReason.STOP, Usage(1, 0, 6), 13))
                step = steps.take(None)
                assert step is not None
                await connection.send(encode(step))

    async with serve(far, "127.0.0.1", 0, compression=None) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        link = LinkBackend(name="far", options=LinkOptions(url=f"ws://127.0.0.1:{port}/"))
        try:
            await up(link)
            heard = Heard()
            request = GenerateRequest(
                id="r", model="far", items=(), num_prompt_tokens=1, prefix=(), max_output_tokens=9
            )
            link.start(request, heard)
            await asyncio.wait_for(heard.finished, PATIENCE_S)
        finally:
            await link.close()
    assert [msgspec.structs.replace(delta, at_us=0) for delta in heard.deltas] == [
        msgspec.structs.replace(delta, at_us=0) for delta in said
    ]


def asked(name: str) -> GenerateRequest:
    return GenerateRequest(
        id=name, model="far", items=(), num_prompt_tokens=1, prefix=(), max_output_tokens=999
    )


@pytest.mark.parametrize("runs", [False, True])
async def test_a_link_that_is_closed_warns_of_what_ran_alone(
    runs: bool, warnings: Warnings
) -> None:
    async def far(connection: ServerConnection) -> None:
        await connection.send(encode(Hello(VERSION, 0, INFO, IDLE)))
        await connection.wait_closed()

    heard = Heard()
    async with serve(far, "127.0.0.1", 0, compression=None) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        link = LinkBackend(name="far", options=LinkOptions(url=f"ws://127.0.0.1:{port}/"))
        await up(link)
        if runs:
            link.start(asked("r"), heard)
        await link.close()
    assert not link.stats().healthy
    if not runs:
        assert warnings.told == []
        return
    (told,) = warnings.told
    assert "was closed: the gateway is shutting down" in told
    error = heard.finished.result().error
    assert error is not None
    assert "was closed: the gateway is shutting down" in str(error)


async def test_frames_that_come_together_keep_their_order() -> None:
    words = [f"{number} " for number in range(200)]

    async def far(connection: ServerConnection) -> None:
        await connection.send(encode(Hello(VERSION, 0, INFO, IDLE)))
        async for message in connection:
            assert isinstance(message, bytes)
            started = gateway_frames.decode(message)
            if not isinstance(started, Start):
                continue
            for word in words:  # all in one write
                step = Step([started.key], [0], [0], [word], ONE, ONE, {}, [])
                connection.protocol.send_binary(encode(step))
            ending = StepBuilder()
            ending.end(started.key, Finish(FinishReason.STOP, Usage(1, 0, len(words)), 9))
            step = ending.take(None)
            assert step is not None
            connection.protocol.send_binary(encode(step))
            connection.transport.write(b"".join(connection.protocol.data_to_send()))

    async with serve(far, "127.0.0.1", 0, compression=None) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        link = LinkBackend(name="far", options=LinkOptions(url=f"ws://127.0.0.1:{port}/"))
        try:
            await up(link)
            all_heard = [Heard() for _ in range(5)]
            for number, heard in enumerate(all_heard):
                link.start(asked(f"r{number}"), heard)
            for heard in all_heard:
                finish = await asyncio.wait_for(heard.finished, PATIENCE_S)
                assert finish.reason is FinishReason.STOP
                assert heard.text == "".join(words)
        finally:
            await link.close()


async def test_an_engine_that_does_not_read_gets_no_more_and_loses_the_link(
    monkeypatch: pytest.MonkeyPatch, warnings: Warnings
) -> None:
    monkeypatch.setattr("backends.link.backend.MAX_UNSENT_BYTES", 1 << 20)

    async def far(connection: ServerConnection) -> None:
        await connection.send(encode(Hello(VERSION, 0, INFO, IDLE)))
        connection.transport.pause_reading()
        await connection.wait_closed()

    async with serve(far, "127.0.0.1", 0, compression=None, close_timeout=0.1) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        options = LinkOptions(url=f"ws://127.0.0.1:{port}/", retry_min_s=0.01)
        link = LinkBackend(name="far", options=options)
        try:
            await up(link)
            other = Heard()
            link.start(asked("other"), other)
            # More than the kernel's buffers take.
            generation = link.start(asked("r" * (32 << 20)), Heard())
            with pytest.raises(BackendError, match="does not keep up"):
                link.start(asked("more"), Heard())
            generation.cancel()
            assert not link.stats().healthy, "what it is not to do it cannot be told"
            finish = await asyncio.wait_for(other.finished, PATIENCE_S)
            assert finish.error is not None
            assert "does not read" in str(finish.error)
            await up(link)
            assert ["does not read" in told for told in warnings.told] == [True], warnings.told
        finally:
            await link.close()


class Peer:
    """Is an engine's address; whoever asks is answered as `how` says, and counted."""

    def __init__(self) -> None:
        self.how: int | Hello = 401
        self.num_asked = 0

    def refuse(self, connection: ServerConnection, _request: Request) -> Response | None:
        self.num_asked += 1
        if isinstance(self.how, int):
            return connection.respond(HTTPStatus(self.how), "no")
        return None

    async def greet(self, connection: ServerConnection) -> None:
        assert isinstance(self.how, Hello)
        await connection.send(encode(self.how))
        await connection.wait_closed()

    @asynccontextmanager
    async def listening(self, port: int) -> AsyncIterator[None]:
        async with serve(self.greet, "127.0.0.1", port, process_request=self.refuse):
            yield

    async def asked_again(self, num_times: int) -> None:
        """Waits until so many further attempts came in."""
        wanted = self.num_asked + num_times
        async with asyncio.timeout(PATIENCE_S):
            while self.num_asked < wanted:  # noqa: ASYNC110 - attempts have no event
                await asyncio.sleep(0.005)


async def test_a_link_that_does_not_come_up_says_why_once_for_each_reason(
    warnings: Warnings,
) -> None:
    port, peer = free_port(), Peer()
    options = LinkOptions(url=f"ws://127.0.0.1:{port}/", retry_min_s=0.01, retry_max_s=0.02)
    link = LinkBackend(name="far", options=options)

    async def told(*words: str) -> None:
        """Until an operator was told this."""
        async with asyncio.timeout(PATIENCE_S):
            while not warnings.told or not all(word in warnings.told[-1] for word in words):
                warnings.more.clear()
                await warnings.more.wait()
        assert all(word in warnings.told[-1] for word in ("'far'", options.url))

    try:
        await told("Connect call failed", "lanewise engine --listen")
        async with AsyncExitStack() as listening:
            await listening.enter_async_context(peer.listening(port))
            await told("HTTP 401", "options.key")
            await peer.asked_again(3)
            peer.how = 404
            await told("HTTP 404", "/v1/link")
            peer.how = Hello(VERSION + 1, 0, INFO, IDLE)
            await told(f"version {VERSION}, got version {VERSION + 1}")
            await peer.asked_again(3)
            assert len(warnings.told) == 4, warnings.told
        # Gone again: the first reason is news once more.
        await told("lanewise engine --listen")
    finally:
        await link.close()


async def test_what_a_lost_engine_was_doing_is_forgotten_and_what_it_has_done_is_not() -> None:
    busy = msgspec.structs.replace(
        IDLE, num_running=3, num_waiting=2, kv_used_tokens=70, num_generated_tokens=500
    )

    async def far(connection: ServerConnection) -> None:
        await connection.send(encode(Hello(VERSION, 0, INFO, busy)))
        await connection.wait_closed()

    server = await serve(far, "127.0.0.1", 0, compression=None)
    port = next(iter(server.sockets)).getsockname()[1]
    link = LinkBackend(name="far", options=LinkOptions(url=f"ws://127.0.0.1:{port}/"))
    try:
        await up(link)
        assert (link.stats().num_running, link.stats().num_waiting) == (3, 2)
        server.close()
        await server.wait_closed()
        async with asyncio.timeout(PATIENCE_S):
            while link.stats().healthy:  # noqa: ASYNC110 - a backend's health has no event
                await asyncio.sleep(0.005)
        stats = link.stats()
    finally:
        await link.close()
    assert (stats.num_running, stats.num_waiting, stats.kv_used_tokens) == (0, 0, 0)
    assert stats.num_generated_tokens == 500, "a count never falls: it goes on if the engine does"
