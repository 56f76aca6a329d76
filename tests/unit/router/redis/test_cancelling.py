"""A loop that loses a cancellation ends all the same."""

import asyncio

from router.redis.cancelling import cancelled


async def test_a_lost_cancellation_is_repeated() -> None:
    num_lost = 0

    async def forgetful() -> None:
        nonlocal num_lost
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if num_lost == 2:
                    raise
                num_lost += 1

    loops = [asyncio.create_task(forgetful()), asyncio.create_task(asyncio.Event().wait())]
    await asyncio.sleep(0)
    await cancelled(*loops)
    assert all(loop.cancelled() for loop in loops)
    assert num_lost == 2
    await cancelled(*loops)  # harmless when repeated
