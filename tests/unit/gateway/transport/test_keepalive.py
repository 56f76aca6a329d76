"""Tests turns in a storm, and the wheel of pings."""

import asyncio
import time

import pytest

from gateway.transport.keepalive import NUM_SLOTS, AcceptQueue, KeepAlive
from router.redis.cancelling import cancelled


class Watch:
    """Is a clock that only work moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


async def test_a_line_takes_only_so_much_per_turn_and_keeps_the_order() -> None:
    watch = Watch()
    line = AcceptQueue(turn_s=0.010, clock_s=watch)
    done: list[int] = []

    def work(number: int) -> None:
        done.append(number)
        watch.now_s += 0.004

    for number in range(8):
        line.join(lambda number=number: work(number))  # type: ignore[misc]
    assert done == [], "nobody is called by joining"
    per_turn = []
    while len(done) < 8:
        before = len(done)
        await asyncio.sleep(0)
        per_turn.append(len(done) - before)
    assert done == list(range(8))
    assert max(per_turn) == 3, "the third begins within the turn's time"
    line.join(lambda: work(8))
    await asyncio.sleep(0)
    assert done[-1] == 8, "it moves again after it was empty"


async def test_one_that_fails_holds_nobody_up() -> None:
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    line = AcceptQueue()
    done: list[str] = []

    def fail() -> None:
        raise ValueError("no")

    line.join(fail)
    line.join(lambda: done.append("next"))
    for _ in range(3):
        await asyncio.sleep(0)
    assert done == ["next"]
    assert len(told) == 1


class Socket:
    def __init__(self) -> None:
        self.num_pings = 0

    def keep_alive(self) -> None:
        self.num_pings += 1


async def test_each_socket_is_asked_once_a_round_until_it_leaves() -> None:
    keep_alive = KeepAlive(round_s=0.0)
    sockets = [Socket() for _ in range(3 * NUM_SLOTS)]
    slots = [keep_alive.add(socket) for socket in sockets]
    assert len({id(slot) for slot in slots}) > NUM_SLOTS / 2, "they are spread"
    slots[0].discard(sockets[0])
    wheel = asyncio.ensure_future(keep_alive.run())
    while sockets[1].num_pings < 3:  # noqa: ASYNC110
        await asyncio.sleep(0)
    await cancelled(wheel)
    assert sockets[0].num_pings == 0
    assert {socket.num_pings for socket in sockets[1:]} <= {2, 3}


async def test_a_wheel_wakes_for_sockets_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_alive = KeepAlive(round_s=0.4)
    looks = 0
    count = keep_alive._num_empty

    def look() -> int:
        nonlocal looks
        looks += 1
        return count()

    monkeypatch.setattr(keep_alive, "_num_empty", look)
    wheel = asyncio.ensure_future(keep_alive.run())
    await asyncio.sleep(0.05)
    assert looks == 1, "it stands"
    socket = Socket()
    keep_alive.add(socket)
    while socket.num_pings < 3:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    await cancelled(wheel)
    assert looks <= 10, "two for each ping, and one for each hold-up of the loop"


async def test_no_socket_is_asked_twice_for_a_wheel_that_was_held_up() -> None:
    keep_alive = KeepAlive(round_s=0.02)
    sockets = [Socket() for _ in range(5)]
    for socket in sockets:
        keep_alive.add(socket)
    wheel = asyncio.ensure_future(keep_alive.run())
    await asyncio.sleep(0)
    time.sleep(0.2)  # noqa: ASYNC251 - ten rounds, in which nothing runs
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert max(socket.num_pings for socket in sockets) <= 1
    await cancelled(wheel)
