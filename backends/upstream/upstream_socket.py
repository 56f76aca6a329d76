"""Carries responses over one socket to an upstream, one at a time or several on streams of it.

An abandoned response is stopped at once: by `response.cancel` on a shared socket, else by closing
the connection. This is an edge.
"""

import asyncio
import math
from collections import deque
from collections.abc import Iterable
from operator import attrgetter
from typing import Any, Literal

import msgspec
from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.frames import CloseCode

from backends.net.quick_connection import QuickConnection
from backends.net.read_hold import ReadHold
from backends.upstream.answer.errors import (
    SOCKET_AGED,
    Failure,
    broken,
    refused_size,
    too_much,
)
from backends.upstream.answer.reader import NO_EVENT, decoded
from backends.upstream.answer.responses_events import TERMINALS, Event, decode_event, read_event
from backends.upstream.answer.split_pairs import PairJoiner
from backends.upstream.chain import (
    FIRST_EVENT_BYTES,
    PARENT_LOST,
    SOCKET_TRACEPARENT,
    Chain,
    Turn,
)
from backends.upstream.free_streams import FreeStreams
from backends.upstream.http_exchange import Receive
from backends.upstream.options import UpstreamOptions

CANCEL_TIMEOUT_S = 5.0  # for a cancelled response to end; after that its socket takes no turn
MAX_CANCELS = 64  # that are remembered
LIMIT_KEPT_S = 600.0  # for which a server's limit is remembered, as it may have another by then
NOT_FOUND = "response_not_found"  # a server's code where there is nothing to cancel, and ours
STALE_AFTER_S = 1.0  # a socket idle for longer may have been closed without our noticing

_CREATED = "response.created"
_LAST = frozenset({*TERMINALS, "error"})
_type_of = attrgetter("type")
_PARENT = "previous_response_id"  # the field that names the response to continue


class ParentLostError(Exception):
    """Says that the server has lost the response to continue; no event was passed on."""


class RequestLimit:
    """Remembers the size of a request that the server refused: the next would end others, too."""

    def __init__(self) -> None:
        self.num_bytes = math.inf  # none is known
        self._until_s = -math.inf  # by the loop's clock

    def note(self, num_bytes: int, now_s: float) -> None:
        self.num_bytes, self._until_s = num_bytes, now_s + LIMIT_KEPT_S

    def refuses(self, num_bytes: int, now_s: float) -> bool:
        return num_bytes >= self.num_bytes and now_s < self._until_s


class UpstreamSocket:
    """Is one connection to the server, with one or several streams. Belongs to one event loop."""

    def __init__(
        self,
        backend: str,
        options: UpstreamOptions,
        connection: QuickConnection,
        free: "FreeStreams[SocketStream]",
        limit: RequestLimit,
    ) -> None:
        """Puts its streams among the `free` ones; `limit` is of all sockets to the server."""
        self.backend = backend
        self.limit = limit
        self._options = options
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._opened_s = self._loop.time()
        self.used_s = self._opened_s  # when a response of it last ended
        self._retired = False
        self._closing: list[asyncio.Task[None]] = []
        num_streams = options.max_streams_per_socket
        # Names are reused: a server counts the distinct ones of a connection (OpenAI: 32).
        names = [f"s{number}" for number in range(num_streams)] if num_streams > 1 else [None]
        self._streams = {name: SocketStream(self, name) for name in names}
        self.first_stream = next(iter(self._streams.values()))
        self._only = self.first_stream if num_streams == 1 else None
        self._free = free
        for stream in reversed(self._streams.values()):
            free.add(stream)
        # When responses were cancelled, each of which may be answered by an error.
        self._cancelled_s: deque[float] = deque(maxlen=MAX_CANCELS)
        self._joiner = PairJoiner(read_event)
        self._is_spoilt = False  # a cancelled response goes on: it closes behind the others
        self._fault: Failure | None = None  # of an invalid event: later ones are ignored
        self._max_event_bytes = FIRST_EVENT_BYTES
        connection.listen(self._take, FIRST_EVENT_BYTES)
        self._reader = asyncio.create_task(self._read())

    @property
    def usable(self) -> bool:
        until_s = self._opened_s + self._options.socket_max_age_s
        return not self._retired and self._loop.time() < until_s

    def take_no_more(self) -> None:
        """Takes no turn from now on."""
        self._retired = True
        for stream in self._streams.values():
            self._free.remove(stream)

    def release(self, stream: "SocketStream") -> None:
        self.used_s = self._loop.time()
        if not self._retired:
            self._free.add(stream)
        elif self._is_spoilt and self._is_idle:
            self.abandon()

    def is_done(self, *, is_spare: bool) -> bool:
        idle_s = self._loop.time() - self.used_s
        too_long = is_spare and idle_s > self._options.socket_max_idle_s
        return self._reader.done() or (self._is_idle and (too_long or not self.usable))

    @property
    def _is_idle(self) -> bool:
        return all(stream.turn is None for stream in self._streams.values())

    def ask(self, request: bytes, max_event_bytes: int, reading: ReadHold) -> bool:
        """Sends a request, for which events of that size may come; false if it is closing.

        Its response can pause the connection, if it is the only one that can be on it.
        """
        connection = self._connection
        if max_event_bytes > self._max_event_bytes:  # than any before
            self._max_event_bytes = max_event_bytes
            connection.allow(max_event_bytes)
        if self._only is not None:
            reading.own(connection)
        return connection.send_text_now(request)

    def drop(self, stream: "SocketStream", response_id: str | None) -> None:
        """Cancels a stream's response; closes the socket if that fails or none is wanted on it."""
        if len(self._streams) == 1 or (self._is_spoilt and self._is_idle):
            self.abandon()
            return
        self._loop.call_later(CANCEL_TIMEOUT_S, self._give_up, stream, stream.serial)
        if response_id is not None:
            self._cancelled_s.append(self._loop.time())
            event = {"type": "response.cancel", "response_id": response_id}
            if not self._connection.send_text_now(msgspec.json.encode(event)):
                self.abandon()

    def abandon(self) -> None:
        """Closes the connection at once, with all of its responses."""
        self.take_no_more()
        self._connection.leave_now()

    def retire(self) -> None:
        """Closes an unused connection with a closing handshake."""
        self.take_no_more()
        self._closing.append(asyncio.create_task(self._connection.close()))

    async def close(self) -> None:
        """Closes the connection and waits for its reader to end."""
        if self._is_idle:
            self.retire()
        else:
            self.abandon()
        await asyncio.gather(self._reader, *self._closing, return_exceptions=True)

    def _give_up(self, stream: "SocketStream", serial: int) -> None:
        """Closes behind the others where a cancelled response goes on."""
        if stream.serial == serial and stream.abandoned:
            self._is_spoilt = True
            self.take_no_more()
            if self._is_idle:
                self.abandon()

    async def _read(self) -> None:
        """Reads until the connection closes; messages that `listen` does not pass on come here."""
        reason, is_overrun = "the upstream closed the socket", False
        too_large: SocketStream | None = None
        try:
            async for message in self._connection:
                self._take([message.encode() if isinstance(message, str) else message])
        except WebSocketException as error:
            reason = f"the upstream's socket broke: {error}"
            # Where there are several streams, nobody knows which one it came for.
            is_overrun = _is_too_big(error, "sent") and len(self._streams) == 1
            if _is_too_big(error, "rcvd"):
                too_large = max(self._streams.values(), key=SocketStream.num_unanswered_bytes)
        finally:
            if self._fault is not None:
                reason = self._fault.error.message
            self.abandon()
            for stream in self._streams.values():
                if is_overrun:
                    stream.fail(too_much(self.backend, reason))
                elif stream is too_large and (num_bytes := stream.num_unanswered_bytes()):
                    self.limit.note(num_bytes, self._loop.time())
                    stream.fail(refused_size(self.backend, num_bytes))
                else:
                    is_other = too_large is not None
                    stream.fail(broken(self.backend, reason, stale=stream.is_stale or is_other))

    def _take(self, messages: list[bytes]) -> None:
        """Decodes events; an invalid one ends the connection, and later ones are ignored."""
        if self._fault is not None:
            return
        try:
            events = list(map(decode_event, messages))
        except NO_EVENT:
            # Where there are several streams, nobody knows which halves of a character belong
            # together.
            joiner = self._joiner if self._only is not None else PairJoiner(read_event)
            events, self._fault = decoded(joiner.decode, messages, self.backend)
        only = self._only
        num_bytes = sum(map(len, messages))
        if only is not None and (turn := only.turn) is not None and turn.go_on is not None:
            is_within = num_bytes <= turn.num_bytes_left and self._fault is None
            if is_within and turn.go_on(events):
                turn.num_bytes_left -= num_bytes
                return
        types = set(map(_type_of, events))
        is_last = not _LAST.isdisjoint(types)
        if "error" in types and any(map(_is_aged, events)):
            self.take_no_more()
        if only is None:
            sizes = dict(zip(map(id, events), map(len, messages), strict=False))
            for name, together in self._by_stream(events).items():
                if name in self._streams:
                    num_bytes = sum(sizes[id(event)] for event in together)
                    is_last = not _LAST.isdisjoint(map(_type_of, together))
                    self._streams[name].take_in(together, num_bytes, is_last=is_last)
        elif events:
            only.take_in(events, num_bytes, is_last=is_last)
        if self._fault is not None:
            self.abandon()

    def _by_stream(self, events: list[Event]) -> dict[str | None, list[Event]]:
        """Groups events by stream; errors that name no stream go to every stream."""
        own: dict[str | None, list[Event]] = {}
        for event in events:
            names: Iterable[str | None] = (event.stream_id,)
            if event.type == "error" and event.stream_id is None:
                names = () if self._is_of_cancel(event) else self._streams
            for name in names:
                own.setdefault(name, []).append(event)
        return own

    def _is_of_cancel(self, event: Event) -> bool:
        """Returns whether an error that names no stream answers a cancel.

        That has come too late, as its response had ended. The error is nobody else's.
        """
        code = event.code if event.error is None else event.error.code
        if code in (SOCKET_AGED, NOT_FOUND):
            return code == NOT_FOUND
        since_s = self._loop.time() - CANCEL_TIMEOUT_S
        while self._cancelled_s:
            if self._cancelled_s.popleft() >= since_s:
                return True
        return False


class SocketStream:
    """Carries one response at a time; after an abandoned one it is free once that has ended."""

    def __init__(self, socket: UpstreamSocket, name: str | None) -> None:
        self.socket = socket
        self._name = name
        self._receive: Receive | None = None  # while a response is wanted
        self.turn: Turn | None = None  # as long
        self._reading = ReadHold()  # of that turn
        self._loop = asyncio.get_running_loop()
        self._done = self._loop.create_future()  # of the response under way
        self._response_id: str | None = None
        self._created_id: str | None = None  # of the latest response that was announced
        self.serial = 0  # of its responses
        self._num_sent_bytes = 0  # for the response under way
        self.abandoned = False
        self.is_stale = False  # nothing came for this response yet, on a socket that was idle
        self.chain: Chain | None = None  # the response that the server remembers
        self._continues = False  # the current response continues the chain

    async def run(
        self, turn: Turn, body: dict[str, Any], receive: Receive, reading: ReadHold
    ) -> None:
        """Makes a request of a body, sends it and passes its events on.

        Raises `ParentLostError` if the server has lost the response to continue.
        """
        self.chain = None
        self._continues = _PARENT in body
        body["type"] = "response.create"
        body.pop("stream", None)
        if self._name is not None:
            body["stream_id"] = self._name
        if turn.traceparent is not None:
            body["client_metadata"] = {SOCKET_TRACEPARENT: turn.traceparent}
        socket, now_s = self.socket, self._loop.time()
        self.is_stale = now_s - socket.used_s > STALE_AFTER_S
        encoded = msgspec.json.encode(body)
        self._num_sent_bytes = num_bytes = len(encoded)
        if num_bytes >= socket.limit.num_bytes and socket.limit.refuses(num_bytes, now_s):
            socket.release(self)
            raise refused_size(socket.backend, num_bytes)
        turn.sent(num_bytes)
        self.serial += 1
        self._receive, self.turn, self._reading = receive, turn, reading
        self._response_id = None
        self._done = self._loop.create_future()
        try:
            if not socket.ask(encoded, turn.max_event_bytes, reading):
                raise broken(socket.backend, "its socket is closing", stale=self.is_stale)
            await self._done
        finally:
            reading.disown()
            self.turn = None
            # The stream is free only now: its late events would be taken for the next response's.
            if self._receive is None:
                self.chain = turn.chain()
                socket.release(self)
            else:  # not ended by an event
                self._receive = None
                self.abandoned = True
                socket.drop(self, self._response_id)

    def take_in(self, events: list[Event], num_bytes: int, *, is_last: bool) -> None:
        """Takes events that came together; `is_last`: the response's end is among them."""
        self.is_stale = False
        turn, receive, done = self.turn, self._receive, self._done
        if turn is not None:
            turn.num_bytes_left -= num_bytes
        if self.abandoned:
            self._pass_over(events, is_last)
            return
        if receive is None:
            if any(map(_is_of_response, events)):  # more may come, and the next turn would get it
                self.socket.take_no_more()
            return
        if self._response_id is None and events[0].type != _CREATED:
            events = self._own(events)
            is_last = is_last and not _LAST.isdisjoint(map(_type_of, events))
            if not events and turn is not None and turn.num_bytes_left >= 0:
                return
        if done.done():  # it failed, and its exchange is about to end
            self._receive = None if is_last else receive
            return
        failure: Exception | None = None
        try:
            if self._response_id is None:
                if self._continues and any(map(_is_parent_lost, events)):
                    raise ParentLostError
                self._note_id(events)
            if turn is not None and turn.num_bytes_left < 0:
                self._reading.take_one = None
                message = "the upstream sent too much for one answer"
                raise too_much(self.socket.backend, message)
            is_enough = receive(events)
        except (Failure, ParentLostError) as error:
            is_enough, failure = True, error
        if is_last:
            self._receive = None
        if done.done():  # it was cancelled meanwhile
            return
        if failure is not None:
            done.set_exception(failure)
        elif is_enough or is_last:
            done.set_result(None)

    def _pass_over(self, events: list[Event], is_last: bool) -> None:
        if is_last:
            self.abandoned = False
            self.socket.release(self)
        elif self._response_id is None:
            self._note_id(events)
            if self._response_id is not None:  # now it can be cancelled
                self.socket.drop(self, self._response_id)

    def _own(self, events: list[Event]) -> list[Event]:
        """Leaves out what belongs to the response before: all until this one is announced.

        That holds for a server that announced the one before; of others everything is taken.
        """
        earlier_id = self._created_id
        if earlier_id is None:
            return events
        for number, event in enumerate(events):
            is_other = event.response is not None and event.response.id not in (None, earlier_id)
            if event.type == _CREATED or is_other:
                return events[number:]
        return [event for event in events if not _is_of_response(event)]

    def _note_id(self, events: list[Event]) -> None:
        for event in events:
            response = event.response
            if response is not None:
                self._response_id = self._response_id or response.id
                if event.type == _CREATED:
                    self._created_id = response.id
                    return

    def num_unanswered_bytes(self) -> int:
        """Returns the size of the request that nothing came for yet; 0 without one."""
        is_answered = self.turn is None or self._response_id is not None
        return 0 if is_answered else self._num_sent_bytes

    def fail(self, failure: Failure) -> None:
        if self._receive is not None and not self._done.done():
            self._receive = None
            self._done.set_exception(failure)


def _is_too_big(error: WebSocketException, which: Literal["sent", "rcvd"]) -> bool:
    """Returns whether we, or the server, closed the connection for the size of a message."""
    close = getattr(error, which) if isinstance(error, ConnectionClosed) else None
    return close is not None and close.code == CloseCode.MESSAGE_TOO_BIG


def _is_aged(event: Event) -> bool:
    return event.error is not None and event.error.code == SOCKET_AGED


def _is_parent_lost(event: Event) -> bool:
    error = event.error
    return error is not None and (error.code == PARENT_LOST or error.param == _PARENT)


def _is_of_response(event: Event) -> bool:
    return event.type.startswith("response.")
