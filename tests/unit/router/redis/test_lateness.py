"""A reply is late if the server is, and not because this process was held up."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import uvloop

from router.redis.connection import TICK_S, LinkLost, RedisLink, done_within, pack

BUDGET_S = 0.05
HELD_UP_S = 0.06  # longer than the budget, each time the loop turns
PATIENCE_S = 60.0  # bounds a hang
LATE_S = 0.2  # the server's reply, by the wall clock


@contextmanager
def late_server() -> Iterator[int]:
    """Answers each PING after `LATE_S`, on a thread that no loop holds up."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        connection.settimeout(PATIENCE_S)
        with connection:
            while connection.recv(1_000):
                time.sleep(LATE_S)
                connection.sendall(b"+PONG\r\n")

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        thread.join()
        listener.close()


async def asked(port: int, is_held_up: bool) -> object:
    """Asks once while the loop is held up on each of its turns; returns the reply."""
    loop = asyncio.get_running_loop()
    _, link = await loop.create_connection(RedisLink, "127.0.0.1", port)
    try:
        answer = link.call(pack(("PING",)), link.now_s() + BUDGET_S)
        while not answer.done():
            if is_held_up:
                time.sleep(HELD_UP_S)  # noqa: ASYNC251 - as a busy machine does
            await asyncio.sleep(0)
        return await answer
    finally:
        link.close("the test is over")


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_time_that_this_process_lost_does_not_count(run) -> None:  # type: ignore[no-untyped-def]
    with late_server() as port:
        assert run(asked(port, True)) == b"PONG"


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_reply_that_comes_late_is_heard_of(run) -> None:  # type: ignore[no-untyped-def]
    async def late_reply(port: int) -> object:
        loop = asyncio.get_running_loop()
        _, link = await loop.create_connection(RedisLink, "127.0.0.1", port)
        with pytest.raises(LinkLost, match="budget") as failed:
            await link.call(pack(("PING",)), link.now_s() + TICK_S)
        assert not link.is_open, "who asks next needs another connection"
        assert failed.value.late is not None
        try:
            return await failed.value.late
        finally:
            link.close("the test is over")

    with late_server() as port:
        assert run(late_reply(port)) == b"PONG"


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_deadline_right_after_a_tick_is_kept(run) -> None:  # type: ignore[no-untyped-def]
    """A timer of less than half a millisecond is no timer to uvloop."""

    async def all_late(port: int) -> None:
        loop = asyncio.get_running_loop()
        links, answers = [], []
        for number in range(50):
            _, link = await loop.create_connection(RedisLink, "127.0.0.1", port)
            links.append(link)
            budget_s = TICK_S + number / 10_000
            answers.append(link.call(pack(("PING",)), link.now_s() + budget_s))
        try:
            for failed in await asyncio.gather(*answers, return_exceptions=True):
                assert isinstance(failed, LinkLost)
        finally:
            for link in links:
                link.close("the test is over")

    with socket.create_server(("127.0.0.1", 0), backlog=50) as silent:
        run(all_late(silent.getsockname()[1]))


async def test_a_wait_counts_turns_and_not_time() -> None:
    """What is done when the loop turns at last was done in time."""
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    loop.call_later(3 * TICK_S, done.set_result, None)
    waiting = asyncio.ensure_future(done_within(done, 2 * TICK_S))
    await asyncio.sleep(0)
    time.sleep(4 * TICK_S)  # noqa: ASYNC251 - as a busy machine does
    assert await waiting
    assert not await done_within(loop.create_future(), TICK_S)
