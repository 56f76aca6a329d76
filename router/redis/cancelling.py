"""Cancels tasks that use redis-py. This is an edge."""

import asyncio
from typing import Any

AGAIN_S = 0.1


async def cancelled(*loops: "asyncio.Task[Any]") -> None:
    """Cancels endless tasks until they end, since redis-py 8.1 can lose one cancellation."""
    left = {loop for loop in loops if not loop.done()}
    while left:
        for loop in left:
            loop.cancel()
        _, left = await asyncio.wait(left, timeout=AGAIN_S)
