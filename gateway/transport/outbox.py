"""One connection's way out: finished frames in order, and streams with text to flush.

Producers never wait: a frame is appended, a stream with new text is marked. The one writer wakes,
drains, and sleeps again. What only says that something begins leaves with what follows, or with the
next flush, so that a quick first token is one write and not two. Between two flushes text gathers
in its stream, so a slow reader costs what its responses hold and no more. Where the transport has
room, a flush and the end of a turn of the loop write by themselves, and no task wakes.

An edge: it uses the event loop.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from gateway.transport.flush_timer import FlushTimer
from gateway.transport.light_event import LightEvent

# Finished frames a connection may have queued before its client's next frame is read. Text that
# still gathers is not among them: it is bounded by its responses.
MAX_QUEUED_BYTES = 4 << 20
MAX_WRITE_BYTES = 256 << 10  # handed on at once; in between the transport can say that it is full

Write = Callable[[list[bytes]], Awaitable[None]]
WriteNow = Callable[[Sequence[bytes]], bool]


class Flushable(Protocol):
    """A stream whose text gathers."""

    def flush(self) -> None: ...


class Outbox:
    """Frames for one writer. All methods but `run` are synchronous."""

    def __init__(self, flush_timer: FlushTimer) -> None:
        self._loop = asyncio.get_running_loop()
        self._flush_timer = flush_timer
        self._frames: deque[bytes] = deque()
        self._dirty: dict[Flushable, None] = {}
        self._is_gathering = False
        self._is_leaving = False  # what this turn of the loop queues goes out at its end
        self._is_due = False  # a flush that the writer is to carry out
        self._fault: Exception | None = None  # of a flush; the writer ends with it
        self._write_now: WriteNow | None = None  # while the writer runs
        self._wake = LightEvent()
        self._closed = False
        self._queued_bytes = 0
        self._room = LightEvent(is_set=True)
        self.blocked_since_s: float | None = None  # a write that has not come back yet

    def send(self, frame: bytes) -> None:
        """Queue a finished frame."""
        self._append(frame)
        if not (self._is_gathering or self._is_leaving):
            self._is_leaving = True
            self._loop.call_soon(self._leave)

    def hold(self, frame: bytes) -> None:
        """Queue a finished frame that may wait for the next one, but no longer than text does."""
        self._append(frame)
        self._flush_timer.add(self)

    def _append(self, frame: bytes) -> None:
        self._frames.append(frame)
        self._queued_bytes += len(frame)
        if self._queued_bytes > MAX_QUEUED_BYTES:
            self._room.clear()

    @property
    def has_room(self) -> bool:
        """Whether not too much is queued."""
        return self._room.is_set()

    async def room(self) -> None:
        """Wait until not too much is queued; who takes in what makes frames asks first."""
        await self._room.wait()

    def mark(self, stream: Flushable) -> None:
        """Note that a stream has text: flushed with the next, or when the reader can."""
        if not self._dirty:
            self._flush_timer.add(self)
        self._dirty[stream] = None

    def close(self) -> None:
        """Let `run` return once everything queued is written."""
        self._closed = True
        self._wake.set()

    def flush(self) -> None:
        """Queue the text that has gathered, though its flush may not be due."""
        self._gather()
        self._wake.set()

    def flush_due(self) -> None:
        """The flush is due: write what has gathered, or have the writer do it in its time."""
        if not self._dirty and not self._frames:
            return  # what was held has left
        self._is_due = True
        self._write_queued()

    def _leave(self) -> None:
        """What this turn of the loop has queued goes out at its end."""
        self._is_leaving = False
        if self._frames:  # else a flush, or the writer, took it along
            self._write_queued()

    def _write_queued(self) -> None:
        """Write all of it if the transport has room for it; else the writer does, in its time."""
        write_now = self._write_now
        if write_now is not None and self.blocked_since_s is None and not self._closed:
            try:
                if self._is_due:
                    self._gather()
                if self._queued_bytes <= MAX_WRITE_BYTES and write_now(self._frames):
                    self._frames.clear()
                    self._queued_bytes = 0
                    return
            except Exception as error:
                self._fault = error
        self._wake.set()

    def _gather(self) -> None:
        """Turn gathered text into frames."""
        self._is_due = False
        dirty, self._dirty = self._dirty, {}
        self._is_gathering = True
        try:
            for stream in dirty:
                stream.flush()
        finally:
            self._is_gathering = False

    def _take(self) -> tuple[list[bytes], int]:
        """The next frames to write, and their size."""
        frames = [self._frames.popleft()]
        num_bytes = len(frames[0])
        while self._frames and num_bytes + len(self._frames[0]) <= MAX_WRITE_BYTES:
            frames.append(self._frames.popleft())
            num_bytes += len(frames[-1])
        return frames, num_bytes

    async def run(self, write: Write, write_now: WriteNow | None = None) -> None:
        """Write until closed, whatever is queued together. Cancelling drops the rest.

        Args:
            write: Waits for a full transport.
            write_now: Writes where the transport has room; otherwise does nothing and says false.
        """
        self._write_now = write_now
        try:
            while not self._closed or self._frames or self._dirty:
                await self._wake.wait()
                self._wake.clear()
                if self._fault is not None:
                    raise self._fault
                if self._is_due or self._closed:
                    self._gather()
                while self._frames:
                    self.blocked_since_s = self._loop.time()
                    frames, num_bytes = self._take()
                    await write(frames)
                    self.blocked_since_s = None
                    self._queued_bytes -= num_bytes
                    if self._queued_bytes <= MAX_QUEUED_BYTES:
                        self._room.set()
        finally:
            self._write_now = None
