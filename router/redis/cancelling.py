"""How a task that talks to Redis is stopped for certain.

An edge: it uses the event loop.
"""

import asyncio
from typing import Any

AGAIN_S = 0.1


async def cancelled(*loops: "asyncio.Task[Any]") -> None:
    """Cancel what runs for ever, and return once all of it has ended.

    More than once: redis-py 8.1 can lose a cancellation that comes while a reply does, and then a
    loop goes on as if nothing had been said.
    """
    left = {loop for loop in loops if not loop.done()}
    while left:
        for loop in left:
            loop.cancel()
        _, left = await asyncio.wait(left, timeout=AGAIN_S)
