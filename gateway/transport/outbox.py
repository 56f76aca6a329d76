"""Holds one connection's outgoing frames, and its streams with text to flush.

Producers never wait: they append a frame, or mark a stream that has new text. One writer task wakes
and drains the queue. A frame that only announces something is held a little for the next one, so
that a quick first token takes one write and not two. While the transport has room, a flush and the
end of the next turn of the event loop write directly, without waking the task.

Text is buffered in its stream until a flush; only where text is rare, as that of one stream of
fifty tokens a second, it leaves without one. What a client does not read is bounded. While a write
waits, each flush that is due looks at how much waits behind it. Above the limit it pauses the
streams whose upstream connection is their own. A stream that cannot pause, since others share its
connection, has its client cut once the text alone is above the limit. This is an edge.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol

from gateway.transport.flush_timer import FlushTimer
from gateway.transport.light_event import LightEvent
from gateway.wire.item_events import OPENING, TERMINAL

# So much may be queued before the client's next frame is read. Buffered text does not count: its
# responses bound it.
MAX_QUEUED_BYTES = 4 << 20
MAX_WRITE_BYTES = 256 << 10  # per write; between two the transport can say that it is full

Write = Callable[[list[bytes]], Awaitable[None]]
WriteNow = Callable[[Sequence[bytes]], bool]
NoteSizes = Callable[[Iterable[int]], None]


class Flushable(Protocol):
    """Is a stream that buffers text."""

    def flush(self) -> None: ...

    def gathered_bytes(self) -> int:
        """Joins the buffered text, which saves memory, and returns its size."""
        return 0

    def pause(self) -> bool:
        """Stops new text until `resume`; returns false if others would have to stop as well."""
        return True

    def resume(self) -> None:
        """Lets text come again; harmless if it was not paused."""
        return


def _forget(sizes: Iterable[int]) -> None:
    """Takes sizes that nobody asked for."""


async def no_frames(frames: list[bytes]) -> None:
    """Is what an outbox writes with that only flushes streams."""


class Outbox:
    """Queues frames for one writer, `run`."""

    def __init__(self, flush_timer: FlushTimer, max_unread_bytes: int = 1 << 20) -> None:
        """Bounds what waits behind a write to about `max_unread_bytes`."""
        self._loop = asyncio.get_running_loop()
        self._flush_timer = flush_timer
        self._frames: deque[bytes] = deque()
        self._dirty: dict[Flushable, None] = {}
        self._is_leaving = False  # what is queued is about to be written, and all that joins it
        self._held_since_s = 0.0  # the loop's time, if the first frame is to be held
        self._is_due = False  # a flush is left to the writer
        self._fault: Exception | None = None  # of a flush; the writer raises it
        self._write_now: WriteNow | None = None  # while the writer waits for something to write
        self._note_sizes: NoteSizes = _forget  # takes those of the frames that were written
        self._wake = LightEvent()
        self._closed = False
        self._queued_bytes = 0
        self._room = LightEvent(is_set=True)
        self.blocked_since_s: float | None = None  # when the pending write began
        self._max_unread_bytes = max_unread_bytes
        self._paused: dict[Flushable, None] = {}
        self._cut: Callable[[], object] | None = None  # closes the connection; once, while it runs

    def emit(self, kind: str, /, *events: bytes) -> None:
        """Sends events of a response: the first may wait for the next, the last do not.

        `kind` is the type of the last of these.
        """
        self._frames.extend(events)
        self._queued_bytes += sum(map(len, events))
        if kind in TERMINAL:
            self._write_queued()
        elif self._is_leaving:
            return  # with the others
        elif kind not in OPENING:
            self._leave_soon()
            self._flush_timer.put_off()
        elif len(self._frames) == len(events):  # what is before them has a time to leave at
            self._held_since_s = self._loop.time()
            self._flush_timer.hold(self)

    def send(self, frame: bytes) -> None:
        """Queues a finished frame."""
        self._frames.append(frame)
        self._queued_bytes += len(frame)
        if not self._is_leaving:
            self._leave_soon()
            self._flush_timer.put_off()

    def _leave_soon(self) -> None:
        """Has what is queued written at the end of the next turn of the loop.

        That is one turn later than what this turn has woken: the end of a short answer, of which
        all came in one read, is then in the same write. A write costs as much as a short step.
        """
        self._is_leaving = True
        self._loop.call_soon(self._loop.call_soon, self._write_queued)

    @property
    def has_room(self) -> bool:
        """Says whether less than the limit is queued."""
        return self._queued_bytes <= MAX_QUEUED_BYTES

    async def room(self) -> None:
        """Waits until less than the limit is queued; call it before reading more requests."""
        while not self.has_room:
            self._room.clear()
            await self._room.wait()

    def mark(self, stream: Flushable) -> None:
        """Notes that a stream has text, for the next flush; where text is rare, it leaves soon."""
        if not self._dirty:
            if self._write_now is not None and self._flush_timer.lets_pass():
                if not self._is_leaving:
                    self._leave_soon()  # with the frame that the stream makes of its text
                stream.flush()
                return
            self._flush_timer.add(self)
        self._dirty[stream] = None

    def close(self) -> None:
        """Lets `run` return once everything queued is written."""
        self._closed = True
        self._write_now = None
        self._wake.set()

    def flush(self) -> None:
        """Queues the buffered text before its flush is due."""
        self._gather()
        self._wake.set()

    def flush_due(self) -> None:
        """Writes the buffered text, or lets the writer do it later."""
        if not self._dirty:
            return
        if self._write_now is not None:
            num_frames = len(self._frames)
            try:
                self._gather()
            except Exception as error:
                self._fault = error
                self._wake.set()
            if len(self._frames) > num_frames:  # those before it have a time to leave at
                self._write_queued()
            return
        self._is_due = True
        self._wake.set()
        if self.blocked_since_s is not None:
            self._bound()
            self._flush_timer.add(self)  # to look again

    def let_go(self, before_s: float) -> None:
        """Writes frames that are held since then, or longer; holds later ones on."""
        if not self._frames:
            return
        if self._held_since_s > before_s:
            self._flush_timer.hold(self)
        else:
            self._write_queued()

    def _bound(self) -> None:
        """Pauses the streams whose text waits, or cuts the client, if too much is unread."""
        text_bytes = sum(stream.gathered_bytes() for stream in self._dirty)
        if self._queued_bytes + text_bytes <= self._max_unread_bytes:
            return
        may_grow = False
        for stream in self._dirty:
            if stream.pause():
                self._paused[stream] = None
            else:
                may_grow = True
        if may_grow and text_bytes > self._max_unread_bytes and self._cut is not None:
            cut, self._cut = self._cut, None
            cut()

    def _resume(self) -> None:
        paused, self._paused = self._paused, {}
        for stream in paused:
            stream.resume()

    def _write_queued(self) -> None:
        """Writes all of it if the transport has room; otherwise wakes the writer."""
        self._is_leaving = False
        frames, write_now = self._frames, self._write_now
        if not frames:
            return  # the writer or an earlier write has taken them
        if write_now is not None and self._queued_bytes <= MAX_WRITE_BYTES:
            try:
                if write_now(frames):
                    self._note_sizes(map(len, frames))
                    frames.clear()
                    self._queued_bytes = 0
                    return
            except Exception as error:
                self._fault = error
        self._wake.set()

    def _gather(self) -> None:
        """Turns buffered text into frames, which whoever calls this has written."""
        self._is_due = False
        dirty, self._dirty = self._dirty, {}
        self._is_leaving = True
        try:
            for stream in dirty:
                stream.flush()
        finally:
            self._is_leaving = False

    def _take(self) -> tuple[list[bytes], int]:
        """Takes the next frames to write, and their size."""
        frames = [self._frames.popleft()]
        num_bytes = len(frames[0])
        while self._frames and num_bytes + len(self._frames[0]) <= MAX_WRITE_BYTES:
            frames.append(self._frames.popleft())
            num_bytes += len(frames[-1])
        return frames, num_bytes

    async def run(
        self,
        write: Write,
        write_now: WriteNow | None = None,
        cut: Callable[[], object] | None = None,
        note_sizes: NoteSizes = _forget,
    ) -> None:
        """Writes frames, several at once, until closed. Cancelling drops the rest.

        If the transport is full, `write` waits, and `write_now` returns false and writes nothing.
        `cut` closes the connection of a client that leaves too much unread. `note_sizes` takes the
        frames' sizes in bytes, once they are written.
        """
        self._cut, self._note_sizes = cut, note_sizes
        try:
            while not self._closed or self._frames or self._dirty:
                if not self._closed:
                    self._write_now = write_now
                await self._wake.wait()
                self._wake.clear()
                if self._fault is not None:
                    raise self._fault
                if self._is_due or self._closed:
                    self._gather()
                while self._frames:
                    self._write_now, self.blocked_since_s = None, self._loop.time()
                    frames, num_bytes = self._take()
                    await write(frames)
                    note_sizes(map(len, frames))
                    self.blocked_since_s = None
                    self._queued_bytes -= num_bytes
                    if self.has_room:
                        self._room.set()
                if self._paused and not self._is_due:
                    self._resume()
        finally:
            self._write_now = self._cut = None
            self._note_sizes = _forget
            self._fault = None  # its traceback holds the connection, which holds this
