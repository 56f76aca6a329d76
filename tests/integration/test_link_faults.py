"""A peer that does not keep the link's protocol: its generations end, and the link comes back."""

import asyncio
from collections.abc import Callable

import msgspec
import pytest
from websockets.asyncio.server import ServerConnection, serve

from backends.contract import (
    BackendInfo,
    BackendStats,
    Delta,
    DeltaKind,
    Finish,
    FinishReason,
    GenerateRequest,
    Usage,
)
from backends.frames import (
    VERSION,
    Hello,
    Start,
    Step,
    StepBuilder,
    encode,
    gateway_frames,
)
from backends.link import LinkBackend, LinkOptions

PATIENCE_S = 10.0
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
    """A sink that keeps its finish."""

    def __init__(self) -> None:
        self.finished: asyncio.Future[Finish] = asyncio.get_running_loop().create_future()
        self.text = ""
        self.deltas: list[Delta] = []

    def push(self, delta: Delta) -> None:
        self.text += delta.text
        self.deltas.append(delta)

    def finish(self, finish: Finish) -> None:
        self.finished.set_result(finish)


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
