"""Tests an engine that lies over the link: nobody pays beyond the bounds, where it is stopped."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from websockets.asyncio.server import ServerConnection, serve

from backends.bounds import MARKER_TOKENS, MAX_TOKEN_BYTES, SPARE_BYTES
from backends.contract import (
    BackendInfo,
    BackendStats,
    Delta,
    Finish,
    FinishReason,
    GenerateRequest,
    Usage,
)
from backends.link.backend import LinkBackend, LinkOptions
from backends.link.frames import VERSION, Cancel, End, Hello, Start, Step, encode, gateway_frames

PATIENCE_S = 60.0  # bounds a hang
HUGE = 10**15
NUM_INPUT_TOKENS, LIMIT, TEXT = 7, 9, "hi"
INFO = BackendInfo(
    name="far", model="far", group="fast", window_tokens=1_000, max_output_tokens=1_000
)
IDLE = BackendStats(info=INFO, healthy=True, num_running=0, num_waiting=0, max_num_seqs=8)


class Heard:
    """Is a sink that keeps its text and its finish."""

    def __init__(self) -> None:
        self.finished: asyncio.Future[Finish] = asyncio.get_running_loop().create_future()
        self.text = ""
        self.num_tokens = 0

    def push(self, delta: Delta) -> None:
        self.text += delta.text
        self.num_tokens += delta.num_tokens

    def finish(self, finish: Finish) -> None:
        self.finished.set_result(finish)


class Liar:
    """Is an engine that says `TEXT` so many times as so many tokens each, and then its usage."""

    def __init__(self, usage: Usage | None, num_texts: int = 1, num_tokens: int = 1) -> None:
        self._usage = usage
        self._num_texts = num_texts
        self._num_tokens = num_tokens
        self.cancelled = asyncio.Event()

    async def __call__(self, connection: ServerConnection) -> None:
        await connection.send(encode(Hello(VERSION, 0, INFO, IDLE)))
        async for message in connection:
            assert isinstance(message, bytes)
            frame = gateway_frames.decode(message)
            if isinstance(frame, Cancel):
                self.cancelled.set()
            elif isinstance(frame, Start):
                key, said = [frame.key], [self._num_tokens]
                for _ in range(self._num_texts):
                    await connection.send(encode(Step(key, [0], [0], [TEXT], said, [1], {}, [])))
                if self._usage is not None:
                    end = End(frame.key, FinishReason.STOP, self._usage, 1)
                    await connection.send(encode(Step([], [], [], [], [], [], {}, [end])))


@asynccontextmanager
async def linked(liar: Liar) -> AsyncIterator[LinkBackend]:
    async with serve(liar, "127.0.0.1", 0, compression=None) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        link = LinkBackend(name="far", options=LinkOptions(url=f"ws://127.0.0.1:{port}/"))
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not link.stats().healthy:  # noqa: ASYNC110 - health has no event
                    await asyncio.sleep(0.005)
            yield link
        finally:
            await link.close()


async def heard(link: LinkBackend) -> tuple[Heard, Finish]:
    """Returns what a client of the link hears for a request, to its end."""
    sink = Heard()
    request = GenerateRequest(
        id="r",
        model="far",
        items=(),
        num_prompt_tokens=NUM_INPUT_TOKENS,
        prefix=(),
        max_output_tokens=LIMIT,
    )
    link.start(request, sink)
    return sink, await asyncio.wait_for(sink.finished, PATIENCE_S)


@pytest.mark.parametrize(
    "told",
    [
        Usage(num_input_tokens=7, num_output_tokens=HUGE),
        Usage(num_input_tokens=HUGE, num_output_tokens=1),
        Usage(num_input_tokens=HUGE, num_cached_tokens=HUGE, num_output_tokens=HUGE),
        Usage(num_input_tokens=7, num_cached_tokens=8, num_output_tokens=1),
        Usage(num_input_tokens=7, num_output_tokens=HUGE, num_reasoning_tokens=HUGE),
        Usage(num_input_tokens=7, num_output_tokens=1, num_reasoning_tokens=2),
        Usage(num_input_tokens=7, num_output_tokens=1, num_rejected_tokens=HUGE),
        Usage(num_input_tokens=7, num_output_tokens=1, num_accepted_tokens=HUGE),
        Usage(num_input_tokens=-HUGE, num_output_tokens=-1),
    ],
)
async def test_its_usage_is_charged_within_the_bounds(told: Usage) -> None:
    async with linked(Liar(told)) as link:
        sink, finish = await heard(link)
        usage = finish.usage
        assert link.stats().num_bounded == 1
    assert sink.text == TEXT
    assert usage.bounded
    assert 0 <= usage.num_cached_tokens <= usage.num_input_tokens <= NUM_INPUT_TOKENS
    assert 0 <= usage.num_reasoning_tokens <= usage.num_output_tokens <= LIMIT
    assert usage.num_rejected_tokens == 0, "no prediction was sent"
    assert usage.num_accepted_tokens == 0
    if not told.num_reasoning_tokens:
        assert usage.num_output_tokens <= len(TEXT) + MARKER_TOKENS


async def test_an_honest_usage_is_charged_as_it_came() -> None:
    told = Usage(num_input_tokens=7, num_cached_tokens=5, num_output_tokens=1)
    async with linked(Liar(told)) as link:
        _, finish = await heard(link)
        assert link.stats().num_bounded == 0
    assert finish.usage == told


async def test_tokens_that_its_deltas_count_are_within_the_limit() -> None:
    async with linked(Liar(Usage(7, num_output_tokens=HUGE), num_tokens=HUGE)) as link:
        sink, _ = await heard(link)
    assert 0 <= sink.num_tokens <= LIMIT


async def test_one_that_does_not_stop_is_stopped() -> None:
    most = LIMIT * MAX_TOKEN_BYTES + SPARE_BYTES
    liar = Liar(None, num_texts=most)  # twice the bytes
    async with linked(liar) as link:
        sink, finish = await heard(link)
        await asyncio.wait_for(liar.cancelled.wait(), PATIENCE_S)
        assert link.stats().num_overruns == 1
    assert finish.reason is FinishReason.LENGTH
    assert 0 <= finish.usage.num_output_tokens <= LIMIT
    assert len(sink.text) <= most
