"""One connection's way out: finished frames in order, and streams with text to flush.

Producers never wait: a frame is appended, a stream with new text is marked. The one writer wakes,
drains, and sleeps again. Between two flushes text gathers in its stream, so a slow reader costs
what its responses hold and no more.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol

# Finished frames a connection may have queued before its client's next frame is read. Text that
# still gathers is not among them: it is bounded by its responses.
MAX_QUEUED_BYTES = 4 << 20
MAX_WRITE_BYTES = 256 << 10  # handed on at once; in between the transport can say that it is full


class Flushable(Protocol):
    """A stream whose text gathers."""

    def flush(self) -> None: ...


class Outbox:
    """Frames for one writer. All methods but `run` are synchronous."""

    def __init__(self, flush_interval_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._flush_interval_s = flush_interval_s
        self._frames: deque[bytes] = deque()
        self._dirty: dict[Flushable, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._wake = asyncio.Event()
        self._closed = False
        self._queued_bytes = 0
        self._room = asyncio.Event()
        self._room.set()
        self.blocked_since_s: float | None = None  # a write that has not come back yet

    def send(self, frame: bytes) -> None:
        """Queue a finished frame."""
        self._frames.append(frame)
        self._queued_bytes += len(frame)
        if self._queued_bytes > MAX_QUEUED_BYTES:
            self._room.clear()
        self._wake.set()

    async def room(self) -> None:
        """Wait until not too much is queued; who takes in what makes frames asks first."""
        await self._room.wait()

    def mark(self, stream: Flushable) -> None:
        """Note that a stream has text: flushed within the interval, or when the reader can."""
        self._dirty[stream] = None
        if self._timer is None:
            self._timer = self._loop.call_later(self._flush_interval_s, self._due)

    def close(self) -> None:
        """Let `run` return once everything queued is written."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._wake.set()

    def _due(self) -> None:
        self._timer = None
        self._wake.set()

    def flush(self) -> None:
        """Queue the text that has gathered, though its interval may not be over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        dirty, self._dirty = self._dirty, {}
        for stream in dirty:
            stream.flush()

    def _take(self) -> tuple[list[bytes], int]:
        """The next frames to write, and their size."""
        frames = [self._frames.popleft()]
        num_bytes = len(frames[0])
        while self._frames and num_bytes + len(self._frames[0]) <= MAX_WRITE_BYTES:
            frames.append(self._frames.popleft())
            num_bytes += len(frames[-1])
        return frames, num_bytes

    async def run(self, write: Callable[[list[bytes]], Awaitable[None]]) -> None:
        """Write until closed, whatever is queued together.

        `write` waits for a full transport. Cancelling drops the rest.
        """
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._timer is None or self._closed:
                self.flush()
            while self._frames:
                self.blocked_since_s = self._loop.time()
                frames, num_bytes = self._take()
                await write(frames)
                self.blocked_since_s = None
                self._queued_bytes -= num_bytes
                if self._queued_bytes <= MAX_QUEUED_BYTES:
                    self._room.set()
            if self._closed and not self._dirty:
                return
