"""Pipelines calls over one connection to one Redis server.

The calls of one turn of the loop share one write, and none waits for earlier replies. A reply later
than its deadline retires the connection and fails all calls in flight, since replies come in order.
A retired connection takes no more calls, and stays open for a while to hear what became of those.

Lateness is judged by what could be read: while calls are in flight a timer ticks, and the time by
which it is late was lost by this process, not by the server. Deadlines move by as much.
`servers` decides where to connect and what to retry. This is an edge.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import Any, cast

import hiredis

MAX_IN_FLIGHT = 10_000  # calls without a reply; more are refused at once
GATHER_S = 0.001  # calls wait at most this long to share a write while others are in flight
GRACE_S = 0.002  # for a busy loop, whose timer may run before it reads a reply that is there
TICK_S = 0.01  # how often calls in flight are looked at
LAG_S = 0.005  # a timer that is later than this shows that the loop was held up
LINGER_S = 10.0  # a retired connection waits at most this long for late replies
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


def is_wrong_type(error: Exception) -> bool:
    """Says whether a key has another type than a call needs; a script's error has it within."""
    return "WRONGTYPE" in str(error)


class LinkLost(Exception):  # noqa: N818 - says what is the case
    """The connection broke or a reply was late; calls in flight may have taken effect.

    `late` is the reply of a call that was sent, and is cancelled if none can come any more.
    """

    def __init__(self, why: str, late: "asyncio.Future[Any] | None" = None) -> None:
        super().__init__(why)
        self.late = late


async def done_within(awaited: "asyncio.Future[Any]", seconds: float) -> bool:
    """Waits until it is done or so many seconds have passed in which this loop was not held up."""
    while seconds > 0 and not awaited.done():
        await asyncio.wait([awaited], timeout=min(seconds, TICK_S))
        seconds -= TICK_S
    if not awaited.done():
        await asyncio.wait([awaited], timeout=GRACE_S)
    return awaited.done()


class RedisLink(asyncio.Protocol):
    """Sends calls and matches replies to them. Not for use from other threads."""

    def __init__(self) -> None:
        self.is_open = False
        self.on_broken: Callable[[], None] = lambda: None  # when the other side ends it
        self._loop = asyncio.get_running_loop()
        self.now_s = self._loop.time  # the clock of deadlines
        self._transport: asyncio.Transport | None = None
        self._reader = hiredis.Reader(replyError=RedisError)
        self._in_flight: deque[tuple[asyncio.Future[Any], float]] = deque()
        self._unsent: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None
        self._tick_s = 0.0  # when it is due; a handle of uvloop's that is due at once cannot tell
        self._last_chance: asyncio.Future[Any] | None = None  # the call that a grace was given
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
        loop, in_flight = self._loop, self._in_flight
        if len(in_flight) >= MAX_IN_FLIGHT:
            raise LinkLost(f"more than {MAX_IN_FLIGHT} calls wait for this server")
        if not self._unsent:  # it leaves at the end of this turn or, soon after a write, later
            now_s = loop.time()
            if not in_flight or now_s - self._flushed_s > GATHER_S:
                self._flushed_s = now_s
                loop.call_soon(self._flush)
            else:
                self._gathering = loop.call_later(GATHER_S, self._flush)
        self._unsent.append(command)
        answer: asyncio.Future[Any] = loop.create_future()
        in_flight.append((answer, deadline_s))
        if self._timer is None:
            self._tick_at(self._flushed_s + TICK_S)
        return answer

    def heard(self, answer: "asyncio.Future[Any]") -> "asyncio.Future[Any]":
        """Returns the reply to a call whose caller was cancelled, and its future with it."""
        for place, (each, deadline_s) in enumerate(self._in_flight):
            if each is answer:
                reply: asyncio.Future[Any] = self._loop.create_future()
                self._in_flight[place] = reply, deadline_s
                return reply
        return answer  # it came at this very moment, or never will

    def close(self, why: str) -> None:
        """Closes the connection, and fails all calls in flight with `LinkLost(why)`."""
        was_open, self.is_open = self.is_open, False
        self._why = why
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._unsent.clear()
        never = self._loop.create_future()
        never.cancel()
        while self._in_flight:
            answer, _ = self._in_flight.popleft()
            if answer.done():
                continue
            if was_open:
                answer.set_exception(LinkLost(why, never))
            else:
                answer.cancel()  # it is itself the late reply to a call that has failed

    def retire(self, why: str) -> None:
        """Takes no more calls, and fails those in flight with a `LinkLost` that tells of replies.

        The connection closes with the last of them, or after `LINGER_S`.
        """
        self._flush()
        self.is_open = False
        self._why = why
        failed = list(self._in_flight)
        self._in_flight.clear()
        for answer, _ in failed:
            late = self._loop.create_future()
            self._in_flight.append((late, math.inf))
            if not answer.done():
                answer.set_exception(LinkLost(why, late))
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(LINGER_S, self.close, why)
        if failed:
            late.add_done_callback(lambda _: self.close(why))
        else:
            self.close(why)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own is no subclass of it
        self.is_open = True

    def data_received(self, data: bytes) -> None:
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

    def connection_lost(self, exc: Exception | None) -> None:
        if self.is_open:
            self.on_broken()
        self.close(self._why if exc is None else f"{type(exc).__name__}: {exc}")

    def _flush(self) -> None:
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None
            self._flushed_s = self._loop.time()
        unsent = self._unsent
        if unsent:
            assert self._transport is not None, "what closes it drops what is unsent"
            self._transport.write(b"".join(unsent))
            unsent.clear()

    def _tick_at(self, when_s: float) -> None:
        self._tick_s = when_s
        self._timer = self._loop.call_at(when_s, self._on_tick)

    def _on_tick(self) -> None:
        now_s = self._loop.time()
        lag_s = now_s - self._tick_s
        self._timer = None
        in_flight = self._in_flight
        if not in_flight:
            return
        if lag_s > LAG_S:
            for _ in range(len(in_flight)):
                answer, deadline_s = in_flight.popleft()
                in_flight.append((answer, deadline_s + lag_s))
        oldest, deadline_s = in_flight[0]
        if deadline_s > now_s:
            self._tick_at(min(deadline_s, now_s + TICK_S))
        elif self._last_chance is not oldest:
            self._last_chance = oldest
            self._tick_at(now_s + GRACE_S)
        else:
            self.retire("no answer within the budget")
