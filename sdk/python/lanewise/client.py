"""Runs the SDK on asyncio: one socket, many turns at once, and conversations that outlive it.

`connect()` is for asyncio, `lanewise.sync` for everything else; docs/sdk.md shows both. What
a turn sends, and what it does about a loss, is decided in `lanewise.turn`. This is an edge.
"""

import asyncio
import contextlib
import os
import random
import time
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, Self

import msgspec
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as open_socket
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from lanewise.turn import (
    ELSEWHERE,
    Done,
    Event,
    Item,
    LanewiseError,
    OtherEvent,
    Rejoined,
    Response,
    Restarted,
    Started,
    TextDelta,
    Turn,
    Waiting,
    create_fields,
    error_of,
    is_loopback,
    retry_delay_s,
    socket_url,
)
from lanewise.types import ContextUse, PoolBalance, RoutedBackend, RoutedClass, Routing, Usage

__all__ = [
    "Client",
    "ContextUse",
    "Done",
    "Event",
    "LanewiseError",
    "OtherEvent",
    "PoolBalance",
    "Rejoined",
    "Response",
    "Restarted",
    "RoutedBackend",
    "RoutedClass",
    "Routing",
    "Started",
    "Stream",
    "TextDelta",
    "Usage",
    "Waiting",
    "connect",
]

DEFAULT_URL = "http://127.0.0.1:8080"
MAX_STREAMS = 32  # named streams per connection, docs/protocol.md
MAX_AGE_S = 55 * 60.0  # then new turns open another socket: servers close theirs after 60 minutes
OPEN_TIMEOUT_S = 10.0
MAX_FRAME_BYTES = 64 << 20
UNREACHABLE = (OSError, InvalidHandshake)  # a TimeoutError is an OSError
# A turn's id comes in one of them.
NAMING = frozenset({"response.waiting", "response.created"})


def connect(
    url: str | None = None, api_key: str | None = None, *, max_retries: int = 5
) -> "Client":
    """Makes a client, to be entered by `async with`.

    Args:
        url: Any address of the gateway: http, https, ws or wss, with or without `/v1`. By default
            `$LANEWISE_URL`, else the local one.
        api_key: By default `$LANEWISE_API_KEY`.
        max_retries: How often a turn is taken up after a lost connection, with growing pauses.
    Raises:
        ValueError: No key, or no URL.
    """
    key = api_key or os.environ.get("LANEWISE_API_KEY")
    if not key:
        raise ValueError("expected an API key: pass api_key, or set LANEWISE_API_KEY")
    address = socket_url(url or os.environ.get("LANEWISE_URL") or DEFAULT_URL)
    return Client(address, key, max_retries)


class Client:
    """Holds sockets to a gateway; entering it raises LanewiseError without one or a good key."""

    def __init__(self, url: str, api_key: str, max_retries: int) -> None:
        self._url = url
        self._headers = {"authorization": f"Bearer {api_key}"}
        self._max_retries = max_retries
        self._socket: _Socket | None = None  # the one that takes new turns
        self._sockets: set[_Socket] = set()  # with those on which turns still end
        self._opening = asyncio.Lock()
        self.slots = asyncio.Semaphore(MAX_STREAMS)  # of turns that are on a socket
        self._closed = False

    async def __aenter__(self) -> Self:
        try:
            await self._open()
        except UNREACHABLE as error:
            raise self._unreachable(error) from error
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes every socket; the gateway stops what still runs on them."""
        self._closed = True
        for socket in list(self._sockets):
            await socket.close()

    async def create(
        self,
        input: str | list[Item],
        *,
        after: Response | str | None = None,
        route: str | None = None,
        strategy: str | None = None,
        deadline_ms: int | None = None,
        **fields: Any,
    ) -> Response:
        """Asks, and waits for the whole answer. Cancelling it cancels the response.

        Args:
            input: A user message, or a list of the protocol's input items.
            after: The response that this continues. A `Response` survives a gateway that has
                forgotten it; an id alone does not.
            route: `fast`, `deep` or `parallel`. Left out, the router decides.
            strategy: How both engines work together (docs/strategies.md).
            fields: Any other field of `response.create`: `model`, `tools`, `instructions`, ...
        Raises:
            LanewiseError: It was refused, failed, or could not be sent within the retries.
        """
        hints: dict[str, Any] = {"route": route, "strategy": strategy, "deadline_ms": deadline_ms}
        async with self.stream(input, after=after, **hints, **fields) as stream:
            return await stream.response()

    def stream(
        self,
        input: str | list[Item],
        *,
        after: Response | str | None = None,
        route: str | None = None,
        strategy: str | None = None,
        deadline_ms: int | None = None,
        **fields: Any,
    ) -> "Stream":
        """Asks as `create` does, to be read event by event; it is sent when read or entered."""
        hints = {"route": route, "strategy": strategy, "deadline_ms": deadline_ms}
        return Stream(self, Turn(create_fields(hints, fields), input, after))

    async def start(self, stream: "Stream") -> None:
        """Sends a turn, for the first time or again; returns when it is on a socket or over."""
        async with stream.starting:  # its reader and who steers it may both find it unsent
            turn = stream.turn
            while stream.socket is None and not turn.over:
                if turn.again is not None and turn.again.counts:
                    if turn.num_retries >= self._max_retries:
                        tried = f"{turn.again.why} Gave up after {turn.num_retries} retries."
                        turn.fail(LanewiseError("connection_lost", tried))
                        return
                    again_s = turn.again.retry_after_s
                    pause_s = retry_delay_s(turn.num_retries, random.random(), again_s)
                    turn.num_retries += 1
                    await asyncio.sleep(pause_s)
                await self.slots.acquire()
                try:
                    socket = await self._open()
                except BaseException as error:
                    self.slots.release()
                    if not isinstance(error, UNREACHABLE):
                        raise
                    turn.lost(str(self._unreachable(error)))
                else:
                    if turn.over:  # it was cancelled while it waited
                        self.slots.release()
                    else:
                        await socket.begin(stream)

    async def _open(self) -> "_Socket":
        """Returns the socket that takes new turns.

        Raises:
            LanewiseError: The key is refused; nothing will change that.
            OSError, InvalidHandshake: Nobody answers as a gateway: `UNREACHABLE`.
        """
        async with self._opening:
            if self._closed:
                raise _closed()
            if self._socket is not None and self._socket.opened_s + MAX_AGE_S > time.monotonic():
                return self._socket
            try:
                connection = await open_socket(
                    self._url,
                    additional_headers=self._headers,
                    open_timeout=OPEN_TIMEOUT_S,
                    max_size=MAX_FRAME_BYTES,
                    compression=None,
                    # A proxy of the environment would look for this machine at itself.
                    proxy=None if is_loopback(self._url) else True,
                )
            except InvalidStatus as error:
                if error.response.status_code in (401, 403):
                    raise _handshake_error(error) from error
                raise
            if self._closed:  # by then
                await connection.close()
                raise _closed()
            opened = _Socket(self, connection)
            former, self._socket = self._socket, opened
            self._sockets.add(opened)
            if former is not None:
                former.retire()
            return opened

    def _unreachable(self, error: Exception) -> LanewiseError:
        return LanewiseError("connection_failed", f"No gateway at {self._url} ({error}).")

    def retired(self, socket: "_Socket") -> None:
        """Has new turns go elsewhere."""
        if self._socket is socket:
            self._socket = None

    def gone(self, socket: "_Socket") -> None:
        """Forgets a socket of which nothing is left."""
        self.retired(socket)
        self._sockets.discard(socket)


class _Socket:
    """Holds an open connection and the turns on it; its reader hands each event to its turn."""

    def __init__(self, client: Client, connection: ClientConnection) -> None:
        self.opened_s = time.monotonic()
        self._client = client
        self._connection = connection
        self._streams: dict[str, Stream] = {}
        self._retired = False
        self._why: LanewiseError | None = None
        self._closing: asyncio.Task[None] | None = None
        self._reader = asyncio.create_task(self._read())

    async def begin(self, stream: "Stream") -> None:
        """Sends a turn on a free stream. A loss on the way is the reader's to tell."""
        names = (f"s{number}" for number in range(MAX_STREAMS))
        name = next(name for name in names if name not in self._streams)
        self._streams[name] = stream
        stream.socket, stream.name = self, name
        frame = stream.turn.frame(name)
        if self._reader.done():
            self._lose()
            return
        try:
            await self.send(frame)
        except Exception:  # a field is no JSON, so nothing was sent
            self._drop(name)
            raise

    async def send(self, frame: dict[str, Any]) -> None:
        """Sends a frame, if there is still anybody to take it."""
        with contextlib.suppress(ConnectionClosed):
            await self._connection.send(msgspec.json.encode(frame).decode())

    def retire(self) -> None:
        """Takes nothing new, and closes when the last turn is over, for which nobody waits."""
        self._retired = True
        self._client.retired(self)
        if not self._streams:
            self._closing = asyncio.create_task(self._connection.close())

    async def close(self) -> None:
        """Closes now; what runs is lost."""
        await self._connection.close()
        await asyncio.gather(self._reader, return_exceptions=True)

    async def _read(self) -> None:
        try:
            async for frame in self._connection:
                await self._receive(msgspec.json.decode(frame))
        except (ConnectionClosed, msgspec.DecodeError):
            pass  # `_lose` says so, the same as a clean close
        finally:
            self._client.gone(self)
            self._lose()
            await self._connection.close()

    async def _receive(self, event: dict[str, Any]) -> None:
        name = event.get("stream_id")
        if name is None:
            if event.get("type") == "error" and event["error"].get("code") != "response_not_found":
                self._why = error_of(event)  # of the connection: it closes next
            return
        stream = self._streams.get(name)
        if stream is None:
            return
        stream.receive(event)
        turn = stream.turn
        if event.get("type") == "error" and event["error"].get("code") in ELSEWHERE:
            self.retire()
        if turn.over or turn.again is not None:
            self._drop(name)
            if self._retired and not self._streams:
                await self._connection.close()
        elif turn.cancelled and event.get("type") in NAMING:  # a cancel before named another
            await self.send(stream.cancel_frame())

    def _lose(self) -> None:
        """Has the turns of a lost connection sent again, unless it said that they must not be."""
        why = self._why
        for name, stream in list(self._streams.items()):
            if why is not None and why.code not in ELSEWHERE:
                stream.turn.fail(why)
            self._drop(name)
            stream.lose(str(why) if why is not None else "The connection was lost.")

    def _drop(self, name: str) -> None:
        self._streams.pop(name).socket = None
        self._client.slots.release()


class Stream:
    """Yields one turn's events: iterate, steer, cancel it. Leaving `async with` cancels it."""

    def __init__(self, client: Client, turn: Turn) -> None:
        self.turn = turn
        self.socket: _Socket | None = None
        self.name = ""  # of its `stream_id`, while it is on a socket
        self.starting = asyncio.Lock()
        self._client = client
        self._events: deque[Event] = deque()  # text gathers, so it holds an answer at most
        self._changed = asyncio.Event()  # the next one, of every change

    async def __aenter__(self) -> Self:
        try:
            await self._client.start(self)
        except BaseException:  # it may have been sent by then
            await self.cancel()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.cancel()

    async def __aiter__(self) -> AsyncIterator[Event]:
        """Yields events until `Done`. Raises LanewiseError as `create` does."""
        while (event := await self.next()) is not None:
            yield event

    async def next(self) -> Event | None:
        """Returns the next event; None after the last."""
        while not self._events:
            if self.turn.error is not None:
                raise self.turn.error
            if self.turn.over:
                return None
            await self._progress()
        return self._events.popleft()

    async def response(self) -> Response:
        """Returns the whole answer; passes over the events that were not read."""
        async for event in self:
            if isinstance(event, Done):
                return event.response
        raise LanewiseError("stream_consumed", "The answer of this stream was read already.")

    async def steer(self, input: str | list[Item], *, subtask: str | None = None) -> None:
        """Redirects the answer: what was said stays, and it goes on from there.

        Args:
            subtask: The id of a sub-task in `routing.delegations`, to steer that one alone.
        Raises:
            LanewiseError: The response has ended or was cancelled, or the input is none.
        """
        while not (self.turn.takes_steers or self.turn.over):
            await self._progress()
        steer = self.turn.steer(subtask or self.turn.response_id or "", input)
        frame = {"type": "response.steer", "previous_response_id": steer.target, "input": input}
        if self.socket is not None and steer.outcome is None:
            try:
                await self.socket.send(frame)
            except Exception:  # the input is no JSON, so nothing was sent
                self.turn.unsteer(steer)
                raise
        while steer.outcome is None:
            await self._changed.wait()
        if isinstance(steer.outcome, LanewiseError):
            raise steer.outcome

    async def cancel(self, *, subtask: str | None = None) -> None:
        """Stops the answer, or one sub-task of it. The last event tells how far it came."""
        turn = self.turn
        if subtask is None:
            turn.cancelled = True
        if self.socket is not None and not turn.over:
            await self.socket.send(self.cancel_frame(subtask))
        elif not turn.over:
            self.lose("cancelled")

    def cancel_frame(self, subtask: str | None = None) -> dict[str, Any]:
        """Returns what stops the answer, or a sub-task of it; while it has no id, by its stream."""
        response_id = subtask or self.turn.response_id
        if response_id is None:
            return {"type": "response.cancel", "stream_id": self.name}
        return {"type": "response.cancel", "response_id": response_id}

    def receive(self, event: dict[str, Any]) -> None:
        """Takes an event; called by the socket's reader."""
        for heard in self.turn.receive(event):
            last = self._events[-1] if self._events else None
            if (
                isinstance(heard, TextDelta)
                and isinstance(last, TextDelta)
                and heard.item_id == last.item_id
            ):
                last.text += heard.text
            else:
                self._events.append(heard)
        self._wake()

    def lose(self, why: str) -> None:
        """Notes that the socket is gone; called by it."""
        self._events.extend(self.turn.lost(why))
        self._wake()

    async def _progress(self) -> None:
        await (self._client.start(self) if self.socket is None else self._changed.wait())

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _closed() -> LanewiseError:
    return LanewiseError("client_closed", "This client is closed. Connect again.")


def _handshake_error(error: InvalidStatus) -> LanewiseError:
    status = error.response.status_code
    try:
        answer = msgspec.json.decode(error.response.body or b"{}")
    except msgspec.DecodeError:
        answer = {}
    if not isinstance(answer, dict) or not isinstance(answer.get("error"), dict):
        return LanewiseError("invalid_api_key", f"The gateway answered {status}.", status=status)
    refusal = error_of(answer)
    refusal.status = status
    return refusal
