"""Pipelines calls over one connection to one Redis server.

The calls of one turn of the loop share one write, and none waits for earlier replies. A reply later
than its deadline closes the connection and fails all calls in flight, since replies come in order.
`servers` decides where to connect and what to retry. This is an edge.
"""

import asyncio
from collections import deque
from functools import lru_cache
from typing import Any, cast

import hiredis

MAX_IN_FLIGHT = 10_000  # calls without a reply; more are refused at once
GATHER_S = 0.001  # calls wait at most this long to share a write while others are in flight
GRACE_S = 0.002  # for a busy loop, whose timer may run before it reads a reply that is there
MAX_PACKED = 16_384  # cached words: of a call's twenty, two are new


def pack(words: tuple[str | int, ...]) -> bytes:
    """Encodes a command in half the time of `hiredis.pack_command`: most of its words recur."""
    return b"*%d\r\n%b" % (len(words), b"".join(map(_packed, words)))


@lru_cache(MAX_PACKED)
def _packed(word: str | int) -> bytes:
    text = str(word).encode()
    return b"$%d\r\n%b\r\n" % (len(text), text)


class RedisError(Exception):
    """The server replied with an error."""

    @property
    def code(self) -> str:
        """Returns the error's first word: `NOSCRIPT`, `MOVED`, `OOM`, ..."""
        return str(self).partition(" ")[0]


class LinkLost(Exception):  # noqa: N818 - says what is the case
    """The connection broke or a reply was late; calls in flight may have taken effect."""


class RedisLink(asyncio.Protocol):
    """Sends calls and matches replies to them. Not for use from other threads."""

    def __init__(self) -> None:
        self.is_open = False
        self._loop = asyncio.get_running_loop()
        self.now_s = self._loop.time  # the clock of deadlines
        self._transport: asyncio.Transport | None = None
        self._reader = hiredis.Reader(replyError=RedisError)
        self._in_flight: deque[tuple[asyncio.Future[Any], float]] = deque()
        self._unsent: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None
        self._grace = False
        self._flushed_s = 0.0
        self._gathering: asyncio.TimerHandle | None = None
        self._why = "the server closed the connection"

    def call(self, command: bytes, deadline_s: float) -> "asyncio.Future[Any]":
        """Sends a packed command; the future's result is the reply, `RedisError`s included.

        Cancelling the future does not undo the call. `deadline_s` is by the loop's clock; it is not
        checked before the deadlines of earlier calls. `LinkLost` says that the connection is closed
        or full, or (from the future) that it got lost.
        """
        if not self.is_open:
            raise LinkLost(self._why)
        if len(self._in_flight) >= MAX_IN_FLIGHT:
            raise LinkLost(f"more than {MAX_IN_FLIGHT} calls wait for this server")
        if not self._unsent:
            self._flush_soon()
        self._unsent.append(command)
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._in_flight.append((answer, deadline_s))
        if self._timer is None:
            self._timer = self._loop.call_at(deadline_s, self._on_time)
        return answer

    def close(self, why: str) -> None:
        """Closes the connection, and fails all calls in flight with `LinkLost(why)`."""
        self.is_open = False
        self._why = why
        if self._transport is not None:
            self._transport.abort()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._unsent.clear()
        while self._in_flight:
            answer, _ = self._in_flight.popleft()
            if not answer.done():
                answer.set_exception(LinkLost(why))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own is no subclass of it
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        self._grace = False
        reader, in_flight = self._reader, self._in_flight
        try:
            reader.feed(data)
            while (reply := reader.gets()) is not False:
                answer, _ = in_flight.popleft()
                if not answer.done():  # else its caller was cancelled
                    answer.set_result(reply)
        except (hiredis.ProtocolError, IndexError) as error:
            self.close(f"the server does not speak Redis's protocol: {error}")
        if self._gathering is not None:
            self._flush()
        if not in_flight and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def connection_lost(self, exc: Exception | None) -> None:
        self.close(self._why if exc is None else f"{type(exc).__name__}: {exc}")

    def _flush_soon(self) -> None:
        """Flushes at the end of this turn or, soon after a write, with its replies."""
        now_s = self._loop.time()
        if not self._in_flight or now_s - self._flushed_s > GATHER_S:
            self._flushed_s = now_s
            self._loop.call_soon(self._flush)
        else:
            self._gathering = self._loop.call_later(GATHER_S, self._flush)

    def _flush(self) -> None:
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None
            self._flushed_s = self._loop.time()
        if self._unsent and self._transport is not None and self.is_open:
            self._transport.write(b"".join(self._unsent))
        self._unsent.clear()

    def _on_time(self) -> None:
        self._timer = None
        if not self._in_flight:
            return
        deadline_s = self._in_flight[0][1]
        now_s = self._loop.time()
        if deadline_s > now_s:
            self._timer = self._loop.call_at(deadline_s, self._on_time)
        elif not self._grace:
            self._grace = True
            self._timer = self._loop.call_at(now_s + GRACE_S, self._on_time)
        else:
            self.close("no answer within the budget")
