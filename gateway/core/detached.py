"""Calls that must end even if whoever asked for them is cancelled.

An edge: it uses the event loop.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any


class DetachedCalls:
    """All of one gateway's."""

    def __init__(self) -> None:
        self._under_way: set[asyncio.Task[Any]] = set()

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run one to its end."""
        call = asyncio.create_task(coroutine)
        self._under_way.add(call)
        call.add_done_callback(self._under_way.discard)
        return call

    async def settled(self) -> None:
        """Wait until all have ended."""
        while self._under_way:
            await asyncio.wait(self._under_way)
