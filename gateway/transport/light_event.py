"""asyncio's Event and Queue for objects of which there are ten thousand.

An empty `deque` takes 0.6 KiB, and asyncio keeps one in each Event and three in each Queue, for
waiters that an idle connection does not have. These make room for waiters when there are any.

An edge: it uses the event loop.
"""

import asyncio
from collections import deque
from typing import Generic, TypeVar

_Message = TypeVar("_Message")


class LightEvent:
    """An `asyncio.Event` that is small while nobody waits."""

    __slots__ = ("_is_set", "_waiters")

    def __init__(self, *, is_set: bool = False) -> None:
        self._is_set = is_set
        self._waiters: list[asyncio.Future[None]] | None = None

    def is_set(self) -> bool:
        """Whether `wait` would return at once."""
        return self._is_set

    def set(self) -> None:
        """Let everyone go on."""
        if self._is_set:
            return  # then nobody waits
        self._is_set = True
        waiters, self._waiters = self._waiters, None
        for waiter in waiters or ():
            if not waiter.done():
                waiter.set_result(None)

    def clear(self) -> None:
        """Who comes now waits."""
        self._is_set = False

    async def wait(self) -> None:
        """Return once it is set, or has been since. Cancelling leaves nothing behind."""
        if self._is_set:
            return
        waiter = asyncio.get_running_loop().create_future()
        if self._waiters is None:
            self._waiters = []
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if self._waiters is not None and waiter in self._waiters:
                self._waiters.remove(waiter)
            raise


class LightQueue(Generic[_Message]):
    """An `asyncio.Queue` for one reader, small while it is empty; who fills it bounds it."""

    __slots__ = ("_messages", "_reader")

    def __init__(self) -> None:
        self._messages: deque[_Message] | None = None
        self._reader: asyncio.Future[None] | None = None

    def empty(self) -> bool:
        """Whether `get` would wait."""
        return self._messages is None

    def put_nowait(self, message: _Message) -> None:
        """Add one."""
        if self._messages is None:
            self._messages = deque()
        self._messages.append(message)
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    async def get(self) -> _Message:
        """Take the oldest, or wait for one. Cancelling takes none."""
        while self._messages is None:
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        message = self._messages.popleft()
        if not self._messages:
            self._messages = None
        return message
