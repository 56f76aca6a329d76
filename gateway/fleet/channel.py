"""The line between a supervisor and one of its processes: a socket pair, questions both ways.

It ends with either process, however that ends: that is how a worker knows that its supervisor is
gone, and the other way round.

An edge: it uses the event loop, sockets and the log.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping

from gateway.fleet.wire import (
    LENGTH_BYTES,
    MAX_FRAME_BYTES,
    Begin,
    Farewell,
    Frame,
    Query,
    Reply,
    Serving,
    decoded,
    encoded,
)

logger = logging.getLogger("lanewise")

Answers = Mapping[str, Callable[[], Awaitable[bytes]]]  # by the word that asks


class ChannelClosed(Exception):  # noqa: N818 - says what is the case
    """The other process is gone, or does not answer."""


class Channel:
    """One end. `run` reads until the other end closes."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answers: Answers
    ) -> None:
        self.serving = asyncio.Event()  # once the other end said so
        self.farewell: bytes | None = None  # the metrics that it left
        self.answers = answers
        self._reader = reader
        self._writer = writer
        self._asked: dict[int, asyncio.Future[bytes]] = {}
        self._num_asked = 0
        self._answering: set[asyncio.Task[None]] = set()
        self._is_over = False

    def send(self, frame: Frame) -> None:
        """Send one; dropped where nobody is left to read it."""
        if not self._writer.is_closing():
            self._writer.write(encoded(frame))

    async def leave(self, metrics: bytes) -> None:
        """Say the last word; returns once it is on its way, or nobody is left to hear it."""
        if self._is_over:
            return
        self._writer.transport.set_write_buffer_limits(0)
        self.send(Farewell(metrics))
        with contextlib.suppress(OSError):
            await self._writer.drain()

    async def ask(self, word: str, timeout_s: float) -> bytes:
        """The other end's answer.

        Raises:
            ChannelClosed: There is none in time.
        """
        if self._is_over:
            raise ChannelClosed(f"nobody is there to answer {word!r}")
        self._num_asked += 1
        number = self._num_asked
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        try:
            self.send(Query(number, word))
            return await asyncio.wait_for(answer, timeout_s)
        except TimeoutError:
            raise ChannelClosed(f"no answer to {word!r} within {timeout_s:g} s") from None
        finally:
            del self._asked[number]

    async def run(self) -> None:
        """Take frames until the other end closes; then every question fails."""
        try:
            while True:
                self._take(await receive(self._reader))
        except (ChannelClosed, OSError):
            return
        finally:
            self._is_over = True
            for answer in self._asked.values():
                if not answer.done():
                    answer.set_exception(ChannelClosed("the other process is gone"))
            for answering in self._answering:
                answering.cancel()
            self._writer.close()

    def _take(self, frame: Frame) -> None:
        if isinstance(frame, Serving):
            self.serving.set()
        elif isinstance(frame, Farewell):
            self.farewell = frame.metrics
        elif isinstance(frame, Reply):
            asked = self._asked.get(frame.id)
            if asked is not None and not asked.done():
                asked.set_result(frame.body)
        elif isinstance(frame, Query) and frame.word in self.answers:
            answering = asyncio.create_task(self._answer(frame))
            self._answering.add(answering)
            answering.add_done_callback(self._answering.discard)

    async def _answer(self, ask: Query) -> None:
        try:
            self.send(Reply(ask.id, await self.answers[ask.word]()))
        except Exception:  # who asked goes on without
            logger.exception("%r could not be answered", ask.word)


async def receive(reader: asyncio.StreamReader) -> Frame:
    """The next frame.

    Raises:
        ChannelClosed: The other end closed.
    """
    try:
        size = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
        assert size <= MAX_FRAME_BYTES, f"a frame of {size} bytes: not one of ours"
        return decoded(await reader.readexactly(size))
    except asyncio.IncompleteReadError:
        raise ChannelClosed("the other process is gone") from None


async def opened(end: socket.socket, answers: Answers) -> Channel:
    """A channel on one end of a socket pair; `run` is the caller's to start."""
    return Channel(*await asyncio.open_connection(sock=end), answers)


async def begun(end: socket.socket) -> tuple[Begin, Channel]:
    """The worker's end, after its first frame.

    Raises:
        ChannelClosed: The supervisor is gone already.
    """
    channel = await opened(end, {})
    begin = await receive(channel._reader)
    assert isinstance(begin, Begin), f"expected what to be, got {type(begin).__name__}"
    return begin, channel
