"""Is the engine's end of the link: serves its backend to gateways, over one socket each.

This is an edge.
"""

import asyncio
from collections.abc import Sequence

import msgspec

from backends.contract import (
    Backend,
    BackendError,
    BackendStats,
    Delta,
    Finish,
    FinishReason,
    Generation,
    Usage,
)
from backends.drive.beats import beat
from backends.drive.driver import monotonic_us
from backends.link.frames import (
    VERSION,
    Cancel,
    Hello,
    Start,
    StepBuilder,
    encode,
    gateway_frames,
)
from gateway.transport.asgi_socket import AsgiSocket
from gateway.transport.flush_timer import FlushTimer
from gateway.transport.outbox import Flushable, Outbox
from gateway.wire.errors import ProtocolError

MAX_GENERATIONS = 16_384  # per link
LONGEST_S = 0.02  # between two frames, at most
STATS_INTERVAL_US = 100_000  # between two reports of the engine's load
OTHERS_INTERVAL_S = 0.25  # between two checks for load from other gateways


class LinkServer(Flushable):
    """Serves one gateway, and cancels its generations when the link ends."""

    def __init__(self, backend: Backend, socket: AsgiSocket) -> None:
        self._backend = backend
        self._socket = socket
        self.outbox = Outbox(FlushTimer(0, LONGEST_S))
        self.steps = StepBuilder()
        self.generations: dict[int, Generation] = {}
        self._stats_due_us = 0
        self._reported: BackendStats | None = None  # the load, as last reported
        self._reader: asyncio.Future[None] | None = None
        self.has_lost_key = False

    async def serve(self) -> None:
        """Serves until the gateway disconnects; cancelling closes the link."""
        info, stats = self._backend.info, self._backend.stats()
        self.outbox.send(encode(Hello(VERSION, monotonic_us(), info, stats)))
        reader = self._reader = asyncio.ensure_future(self._read())
        writer = asyncio.ensure_future(self.outbox.run(self._write, self._write_now))
        telling = asyncio.create_task(self._tell_of_others())
        try:
            await asyncio.wait((reader, writer), return_when=asyncio.FIRST_COMPLETED)
        finally:
            telling.cancel()
            self.outbox.close()
            for generation in self.generations.values():
                generation.cancel()
            self.generations.clear()
            reader.cancel()
            writer.cancel()
            await asyncio.gather(reader, writer, telling, return_exceptions=True)

    def lose_key(self, _: ProtocolError) -> None:
        """Ends the link, as its key has ended."""
        self.has_lost_key = True
        if self._reader is not None:
            self._reader.cancel()

    async def _read(self) -> None:
        """Handles frames until the gateway closes, or sends one that is not valid."""
        while True:
            message = await self._socket.receive()
            content = message.get("bytes")
            if message["type"] == "websocket.disconnect" or content is None:
                return
            try:
                frame = gateway_frames.decode(content)
            except msgspec.DecodeError:
                return
            if isinstance(frame, Cancel):
                self._cancel(frame)
            elif frame.key in self.generations:
                return  # to start another would lose sight of the one that runs
            else:
                self._start(frame)

    def _start(self, frame: Start) -> None:
        sink = _Sink(self, frame.key)
        try:
            if len(self.generations) >= MAX_GENERATIONS:
                message = f"a link carries {MAX_GENERATIONS} generations"
                raise BackendError(
                    self._backend.info.name, "server_is_overloaded", message, retryable=True
                )
            self.generations[frame.key] = self._backend.start(frame.request, sink)
        except BackendError as error:
            sink.finish(Finish(FinishReason.ERROR, Usage(), monotonic_us(), error))

    def _cancel(self, frame: Cancel) -> None:
        generation = self.generations.pop(frame.key, None)
        if generation is not None:
            generation.cancel()
            self.steps.forget(frame.key)
            self.outbox.mark(self)

    async def _tell_of_others(self) -> None:
        """Reports load from other gateways, whose steps do not pass here."""
        while True:
            await beat(OTHERS_INTERVAL_S)
            if self._backend.stats() != self._reported:
                self._stats_due_us = 0
                self.flush()

    def flush(self) -> None:
        """Sends one frame for all buffered deltas, with the load if it is due or all is idle."""
        now_us = monotonic_us()
        stats = None
        if now_us >= self._stats_due_us or not self.generations:
            self._stats_due_us = now_us + STATS_INTERVAL_US
            stats = self._reported = self._backend.stats()
        step = self.steps.take(stats)
        if step is not None:
            self.outbox.send(encode(step))

    async def _write(self, frames: list[bytes]) -> None:
        await self._socket.write(frames, binary=True)

    def _write_now(self, frames: Sequence[bytes]) -> bool:
        return self._socket.write_now(frames, binary=True)


class _Sink:
    """Takes what a generation says into the link, and gathers it for the next frame."""

    __slots__ = ("_key", "_link")

    def __init__(self, link: LinkServer, key: int) -> None:
        self._link = link
        self._key = key

    def push(self, delta: Delta) -> None:
        self._link.steps.add(self._key, delta)
        self._link.outbox.mark(self._link)

    def finish(self, finish: Finish) -> None:
        self._link.generations.pop(self._key, None)
        self._link.steps.end(self._key, finish)
        self._link.outbox.mark(self._link)
