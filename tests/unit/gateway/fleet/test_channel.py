"""Tests the line between a supervisor and a worker: questions both ways, and how it ends."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest

from gateway.fleet.channel import ALIVE, Answers, Channel, ChannelClosed, opened
from router.redis.cancelling import cancelled


async def nine() -> bytes:
    return b"9"


async def fails() -> bytes:
    raise ValueError("no")


@contextlib.asynccontextmanager
async def line(answers: Answers) -> AsyncIterator[tuple[Channel, Channel, "asyncio.Task[None]"]]:
    """Gives both ends; the task runs the far one."""
    ends = socket.socketpair()
    near, far = await opened(ends[0], {}), await opened(ends[1], answers)
    running = [asyncio.create_task(channel.run()) for channel in (near, far)]
    try:
        yield near, far, running[1]
    finally:
        await cancelled(*running)


async def test_questions_are_answered_by_word() -> None:
    async with line({"nine": nine}) as (near, far, _):
        assert await near.ask("nine", 60.0) == b"9"
        near.answers = {"back": nine}
        assert await asyncio.gather(far.ask("back", 60.0), near.ask("nine", 60.0)) == [b"9", b"9"]


async def test_every_process_says_that_it_is_alive() -> None:
    async with line({}) as (near, _, _):
        assert await near.ask(ALIVE, 60.0) == b""


async def test_what_nobody_answers_fails_in_time() -> None:
    async with line({"fails": fails}) as (near, _, _):
        for word in ("unknown", "fails"):
            with pytest.raises(ChannelClosed, match=word):
                await near.ask(word, 0.01)


async def test_the_end_of_one_side_ends_the_other() -> None:
    async with line({"never": asyncio.Event().wait}) as (near, _, far_end):  # type: ignore[dict-item]
        asked = asyncio.create_task(near.ask("never", 60.0))
        await asyncio.sleep(0)
        await cancelled(far_end)
        with pytest.raises(ChannelClosed):
            await asked
        with pytest.raises(ChannelClosed):
            await near.ask("never", 60.0)
        await near.leave(b"nobody hears it")


async def test_the_last_word_is_kept() -> None:
    async with line({}) as (near, far, far_end):
        await far.leave(b"x" * 1_000_000)  # more than a socket holds
        await cancelled(far_end)
        async with asyncio.timeout(60.0):
            while near.farewell is None:  # noqa: ASYNC110
                await asyncio.sleep(0)
        assert near.farewell == b"x" * 1_000_000
