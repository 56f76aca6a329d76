"""The lean event and queue behave as asyncio's do."""

import asyncio

import pytest

from gateway.transport.light_event import LightEvent, LightQueue


async def turns(number: int = 5) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def test_a_latch_holds_until_it_is_set_and_lets_all_go() -> None:
    latch = LightEvent()
    waiters = [asyncio.ensure_future(latch.wait()) for _ in range(3)]
    await turns()
    assert not any(waiter.done() for waiter in waiters)
    latch.set()
    latch.clear()  # who waited when it was set goes on even so
    await turns()
    assert all(waiter.done() for waiter in waiters)
    late = asyncio.ensure_future(latch.wait())
    await turns()
    assert not late.done()
    latch.set()
    await late
    assert latch.is_set()
    await latch.wait()


async def test_a_waiter_that_is_cancelled_leaves_the_others() -> None:
    latch = LightEvent()
    first, second = (asyncio.ensure_future(latch.wait()) for _ in range(2))
    await turns()
    first.cancel()
    await turns()
    assert first.cancelled()
    latch.set()
    await second


async def test_a_mailbox_gives_in_order_and_keeps_what_a_cancelled_reader_did_not_take() -> None:
    mailbox: LightQueue[int] = LightQueue()
    reader = asyncio.ensure_future(mailbox.get())
    await turns()
    for number in range(4):
        mailbox.put_nowait(number)
    assert await reader == 0
    assert not mailbox.empty()
    assert [await mailbox.get() for _ in range(3)] == [1, 2, 3]
    assert mailbox.empty()
    reader = asyncio.ensure_future(mailbox.get())
    await turns()
    mailbox.put_nowait(4)
    reader.cancel()  # in the same turn: it was woken, and is cancelled before it takes
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert await mailbox.get() == 4
