"""Connects a supervisor with one of its processes: by a socket pair, with queries both ways.

It closes when either process ends, which is how the other one notices. This is an edge.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from gateway.fleet.wire import Begin, Farewell, Frame, Query, Reload, Reply, Serving

logger = logging.getLogger("lanewise")

ALIVE = "alive"  # the query that every process answers by itself
LENGTH_BYTES = 4
MAX_FRAME_BYTES = 64 << 20

_decoder: msgspec.msgpack.Decoder[Frame] = msgspec.msgpack.Decoder(Frame)

Answers = Mapping[str, Callable[[], Awaitable[bytes]]]  # by the query's word


class ChannelClosed(Exception):  # noqa: N818 - says what is the case
    """The other process is gone, or does not answer."""


class Channel:
    """Is one end of the channel; `run` reads until the other end closes."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answers: Answers
    ) -> None:
        self.serving = asyncio.Event()  # set when the other end serves
        self.farewell: bytes | None = None  # the metrics of a worker that ended
        self.answers = answers
        self.reload: Callable[[Reload], Awaitable[bytes]] | None = None
        self._reader = reader
        self._writer = writer
        self._asked: dict[int, asyncio.Future[bytes]] = {}
        self._num_asked = 0
        self._answering: set[asyncio.Task[None]] = set()
        self._is_over = False

    def send(self, frame: Frame) -> None:
        """Sends a frame, or drops it if the channel is closed."""
        if not self._writer.is_closing():
            body = msgspec.msgpack.encode(frame)
            self._writer.write(len(body).to_bytes(LENGTH_BYTES, "big") + body)

    async def leave(self, metrics: bytes) -> None:
        """Sends the farewell; returns once it is on its way or the other end is gone."""
        if self._is_over:
            return
        self._writer.transport.set_write_buffer_limits(0)
        self.send(Farewell(metrics))
        with contextlib.suppress(OSError):
            await self._writer.drain()

    async def ask(self, word: str, timeout_s: float, reload: Reload | None = None) -> bytes:
        """Sends a query, or a reload if it is given, and returns the reply.

        Raises `ChannelClosed` if there is no reply in time.
        """
        if self._is_over:
            raise ChannelClosed(f"nobody is there to answer {word!r}")
        self._num_asked += 1
        number = self._num_asked
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        try:
            if reload is None:
                self.send(Query(number, word))
            else:
                self.send(msgspec.structs.replace(reload, id=number))
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            raise ChannelClosed(f"no answer to {word!r} within {timeout_s:g} s") from None
        finally:
            del self._asked[number]

    async def run(self) -> None:
        """Handles frames until the other end closes; then every pending query fails."""
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
        elif isinstance(frame, Query) and frame.word == ALIVE:
            self.send(Reply(frame.id, b""))
        elif isinstance(frame, Query) and frame.word in self.answers:
            self._answer(frame.id, frame.word, self.answers[frame.word]())
        elif isinstance(frame, Reload) and self.reload is not None:
            self._answer(frame.id, "reload", self.reload(frame))

    def _answer(self, number: int, word: str, making: Awaitable[bytes]) -> None:
        async def answer() -> None:
            try:
                self.send(Reply(number, await making))
            except Exception:  # the other end goes on without
                logger.exception("%r could not be answered", word)

        answering = asyncio.create_task(answer())
        self._answering.add(answering)
        answering.add_done_callback(self._answering.discard)


async def receive(reader: asyncio.StreamReader) -> Frame:
    """Reads the next frame. Raises `ChannelClosed`: the other end closed."""
    try:
        size = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
        assert size <= MAX_FRAME_BYTES, f"a frame of {size} bytes: not one of ours"
        return _decoder.decode(await reader.readexactly(size))
    except asyncio.IncompleteReadError:
        raise ChannelClosed("the other process is gone") from None


async def opened(end: socket.socket, answers: Answers) -> Channel:
    """Opens a channel on one end of a socket pair; the caller starts `run`."""
    return Channel(*await asyncio.open_connection(sock=end), answers)


async def begun(end: socket.socket) -> tuple[Begin, Channel]:
    """Opens the worker's end and reads its first frame.

    Raises `ChannelClosed` if the supervisor is gone already.
    """
    channel = await opened(end, {})
    begin = await receive(channel._reader)
    assert isinstance(begin, Begin), f"expected what to be, got {type(begin).__name__}"
    return begin, channel
