"""Defines an Event and a Queue like asyncio's, but of little memory, for ten thousand connections.

An empty `deque` takes 0.6 KiB; asyncio keeps one in each Event and three in each Queue, even while
nobody waits. These allocate when somebody does. This is an edge.
"""

import asyncio
from collections import deque
from typing import Generic, TypeVar

_Message = TypeVar("_Message")


class LightEvent:
    """Works like `asyncio.Event`, and is small while nobody waits."""

    __slots__ = ("_waiters", "flag")

    def __init__(self, *, is_set: bool = False) -> None:
        self.flag = is_set  # what `is_set` says, for who asks at each write
        self._waiters: list[asyncio.Future[None]] | None = None

    def is_set(self) -> bool:
        """Says whether `wait` would return at once."""
        return self.flag

    def set(self) -> None:
        """Wakes all waiters."""
        if self.flag:
            return  # nobody waits
        self.flag = True
        waiters, self._waiters = self._waiters, None
        for waiter in waiters or ():
            if not waiter.done():
                waiter.set_result(None)

    def clear(self) -> None:
        """Makes later calls of `wait` block."""
        self.flag = False

    async def wait(self) -> None:
        """Returns once it is or was set. Cancelling leaves nothing behind."""
        if self.flag:
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
    """Works like an unbounded `asyncio.Queue` for one reader, and is small while empty."""

    __slots__ = ("_reader", "messages")

    def __init__(self) -> None:
        self.messages: deque[_Message] | None = None  # None: `get` would wait
        self._reader: asyncio.Future[None] | None = None

    def empty(self) -> bool:
        """Says whether `get` would wait."""
        return self.messages is None

    def put_nowait(self, message: _Message) -> None:
        """Appends a message, and wakes the reader."""
        if self.messages is None:
            self.messages = deque()
        self.messages.append(message)
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    async def get(self) -> _Message:
        """Takes the oldest message, or waits for one. Cancelling takes none."""
        while self.messages is None:
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        message = self.messages.popleft()
        if not self.messages:
            self.messages = None
        return message
