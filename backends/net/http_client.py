"""Sends requests to one HTTP/1.1 server and passes the response's bytes to a callback at once.

The bytes of a read are parsed (by httptools, which is Node's parser) and passed on within the same
turn of the event loop, without a queue or a task. The client has only what upstreams need: one
exchange at a time on a connection; no redirects, cookies, proxies or content codings.
This is an edge.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from functools import cache
from typing import cast
from urllib.parse import quote, urlsplit

import msgspec
from aiohappyeyeballs import start_connection
from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from backends.net.read_hold import LARGE_READ_BYTES, ReadHold, give_way

Take = Callable[[bytes], bool]  # takes more of a response's body; returns True if it wants no more

MAX_DRY_BYTES = 64 << 10  # without any of a body: mostly a response's head
MAX_ERROR_BYTES = 64 << 10  # kept of the body of a response other than 200
ERROR_TIMEOUT_S = 5.0  # to read such a body
DRAIN_TIMEOUT_S = 1.0  # for the end of a response whose rest is not wanted
CLOSE_TIMEOUT_S = 1.0
HAPPY_EYEBALLS_DELAY_S = 0.25  # RFC 8305, 5: the recommended Connection Attempt Delay

OK = 200


class BrokenError(Exception):
    """Says that no response came, or not all of it."""

    def __init__(self, message: str, *, begun: bool = False, stale: bool = False) -> None:
        super().__init__(message)
        self.begun = begun  # the response's head has come
        self.stale = stale  # the connection was a reused one, and nothing came on it


class Answer(msgspec.Struct, frozen=True):
    """Is the response to a request."""

    status: int
    # Both are kept only for a status other than 200.
    headers: dict[str, str]  # names in lower case; of repeated ones the last
    body: bytes  # its beginning


class HttpClient:
    """Keeps connections to one server. Must be made inside the event loop."""

    def __init__(
        self,
        url: str,
        *,
        connect_timeout_s: float,
        max_idle_s: float,
        max_idle: int,
    ) -> None:
        """Keeps up to `max_idle` connections for up to `max_idle_s` without use.

        Requests' paths are appended to the path of `url`. `connect_timeout_s` is for name
        resolution, connection and TLS together.
        """
        parts = urlsplit(url)
        assert parts.hostname is not None
        host = parts.hostname
        self._host = host if host.isascii() else host.encode("idna").decode()
        self._prefix = parts.path
        self._tls = _tls() if parts.scheme == "https" else None
        self._port = parts.port or (80 if self._tls is None else 443)
        named = f"[{self._host}]" if ":" in self._host else self._host
        shown = named if parts.port is None else f"{named}:{parts.port}"
        own = {"host": shown, "user-agent": "lanewise", "accept-encoding": "identity"}
        self._headers = _lines(own)
        self._connect_timeout_s = connect_timeout_s
        self._max_idle_s = max_idle_s
        self._max_idle = max_idle
        self._loop = asyncio.get_running_loop()
        self._connections: set[_Connection] = set()
        self._idle: list[_Connection] = []  # by the time of their last use
        self._empty = asyncio.Event()
        self._is_open = True

    def head(self, method: str, path: str, headers: dict[str, str]) -> bytes:
        """Encodes what requests have in common but for their bodies; for `request`.

        Raises ValueError if a header is not one line of ASCII.
        """
        target = quote(self._prefix + path, safe="/%:@!$&'()*+,;=~?")
        first = f"{method} {target} HTTP/1.1\r\n".encode()
        return first + self._headers + _lines(headers)

    async def request(
        self, head: bytes, body: bytes, take: Take, reading: ReadHold | None = None
    ) -> Answer:
        """Sends a request; returns at the response's end, or once `take` wants no more of it.

        `head` made the head. `take` is given the body if the status is 200, and its exceptions are
        raised from here. `reading` can pause the connection meanwhile. Raises `BrokenError` if no
        response came, or not all of it. Cancelling closes the connection within one turn of the
        event loop.
        """
        connection = self._kept() or await self._connect()
        # A GET has no length: some servers of WebSockets refuse one that has.
        length = b"content-length: %d\r\n" % len(body) if body else b""
        answered = connection.begin(b"%b%b\r\n%b" % (head, length, body), take)
        if reading is not None:
            reading.own(connection)
        try:
            return await answered
        finally:
            if reading is not None:
                reading.disown()
            if answered.cancelled():
                connection.abort()

    async def get(self, path: str, timeout_s: float, headers: dict[str, str]) -> Answer:
        """Sends a GET and reads the response's body to its end without keeping it.

        Raises `BrokenError` if no response came in time, or not all of it.
        """
        head = self.head("GET", path, {"accept": "*/*", **headers})
        try:
            async with asyncio.timeout(timeout_s):
                try:
                    return await self.request(head, b"", lambda _: False)
                except BrokenError as error:
                    if not error.stale:
                        raise
                return await self.request(head, b"", lambda _: False)
        except TimeoutError:
            raise BrokenError(f"no answer within {timeout_s:g} s") from None

    def close_idle(self) -> None:
        now_s = self._loop.time()
        while self._idle and now_s - self._idle[0].used_s > self._max_idle_s:
            self._idle.pop(0).abort()

    async def close(self) -> None:
        """Closes every connection, the busy ones too."""
        self._is_open = False
        for connection in self._connections:
            connection.abort()
        if self._connections:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._empty.wait(), CLOSE_TIMEOUT_S)

    def keep(self, connection: "_Connection") -> None:
        self._idle.append(connection)
        if len(self._idle) > self._max_idle:
            self._idle.pop(0).abort()

    def forget(self, connection: "_Connection") -> None:
        self._connections.discard(connection)
        with contextlib.suppress(ValueError):
            self._idle.remove(connection)
        if not self._connections:
            self._empty.set()

    def _kept(self) -> "_Connection | None":
        self.close_idle()
        while self._idle:  # the newest first, so that the oldest expire
            connection = self._idle.pop()
            if connection.usable:
                return connection
        return None

    async def _connect(self) -> "_Connection":
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                addresses = await self._loop.getaddrinfo(
                    self._host, self._port, type=socket.SOCK_STREAM
                )
                sock = await start_connection(
                    addresses, happy_eyeballs_delay=HAPPY_EYEBALLS_DELAY_S, loop=self._loop
                )
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                _, connection = await self._loop.create_connection(
                    lambda: _Connection(self),
                    sock=sock,
                    ssl=self._tls,
                    server_hostname=None if self._tls is None else self._host,
                )
        except TimeoutError:
            raise BrokenError(f"no connection within {self._connect_timeout_s:g} s") from None
        except OSError as error:
            raise BrokenError(f"no connection: {error or type(error).__name__}") from error
        if not self._is_open:
            connection.abort()
            raise BrokenError("the client is closed")
        self._connections.add(connection)
        self._empty.clear()
        return connection


class _Connection(asyncio.Protocol):
    """Is one connection: free, request sent, head, body, free; anything unexpected closes it."""

    transport: asyncio.Transport
    reading: ReadHold | None = None  # of the exchange under way

    def __init__(self, client: HttpClient) -> None:
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._pieces: list[bytes] = []  # of the body, from this read
        self.on_body = self._pieces.append
        self._parser: HttpResponseParser | None = HttpResponseParser(self)
        self._timer: asyncio.TimerHandle | None = None
        self.used_s = 0.0  # when it last became free
        self._is_kept = False
        self._is_asked = False  # an exchange is under way
        self._answered: asyncio.Future[Answer] | None = None
        self._forget_exchange()

    def _forget_exchange(self) -> None:
        self._take: Take | None = None
        self._status = 0
        self._headers: dict[bytes, bytes] = {}  # names in lower case
        self._coding = ""  # of the body, if it is not the requested one
        self._error_body = b""
        # Bytes of heads, chunk extensions and trailers since the last byte of a body.
        self._num_dry_bytes = 0
        self._has_heard = False
        self._has_head = self._is_whole = self._is_reusable = False

    def begin(self, request: bytes, take: Take) -> "asyncio.Future[Answer]":
        self._forget_exchange()
        self._is_asked = True
        self._take = take
        self._answered = self._loop.create_future()
        self.transport.write(request)
        return self._answered

    def abort(self) -> None:
        self.transport.abort()

    @property
    def usable(self) -> bool:
        return not self.transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is not a subclass

    def data_received(self, data: bytes) -> None:
        parser = self._parser
        if parser is None or not self._is_asked:
            self.abort()  # there was no request
            return
        self._has_heard = True
        fault = ""
        try:
            parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            fault = f"not HTTP as expected: {error}"
        pieces = self._pieces
        if pieces:
            self._num_dry_bytes = 0
            body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            pieces.clear()
            try:
                if self._take is not None and self._take(body):
                    self._take_no_more()
            except Exception as error:
                self._end_with(error)
        else:
            self._num_dry_bytes += len(data)
            if self._num_dry_bytes > MAX_DRY_BYTES:
                fault = fault or f"{MAX_DRY_BYTES} bytes without any of a body"
        if self._is_whole:
            self._end()
        elif fault:
            self._fail(fault)
        if len(data) >= LARGE_READ_BYTES:
            give_way(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._client.forget(self)
        if self._is_asked:
            # Without a length the connection's end is the body's (RFC 9112, 6.3).
            coding = self._headers.get(b"transfer-encoding", b"").lower()
            has_length = b"content-length" in self._headers or coding.endswith(b"chunked")
            if exc is None and self._has_head and not has_length:
                self._answer()
            else:
                self._fail(f"the connection broke: {exc or 'closed by the server'}")
        self._is_asked = False
        self._parser = None  # its callbacks refer to this object, and no garbage collection runs
        if self._timer is not None:
            self._timer.cancel()

    def on_message_begin(self) -> None:
        if self._is_whole:
            self._is_reusable = False
            raise HttpParserError("an answer to nothing")

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._has_head:  # later ones are trailers
            self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        self._status = self._parser.get_status_code()
        if self._status < OK:  # an informational response (RFC 9110, 15.2)
            self._headers = {}
            return
        self._has_head = True
        coding = self._headers.get(b"content-encoding", b"").decode("latin-1").lower()
        self._coding = "" if coding == "identity" else coding
        self._is_reusable = self._parser.should_keep_alive()
        if self._status != OK:
            self._take = self._keep_error
            self._wait(ERROR_TIMEOUT_S)
        elif self._coding:
            self._take = self._refuse_coding

    def on_message_complete(self) -> None:
        self._is_whole = self._has_head  # False after an informational response

    def _take_no_more(self) -> None:
        """Answers now; the rest of the response is read for the next exchange's sake."""
        self._answer()
        if not self._is_whole:
            self._wait(DRAIN_TIMEOUT_S)

    def _keep_error(self, body: bytes) -> bool:
        """Takes the body of a status other than 200, instead of who asked."""
        self._error_body += body[: MAX_ERROR_BYTES - len(self._error_body)]
        if len(self._error_body) >= MAX_ERROR_BYTES and not self._is_whole:
            self._give_up()
        return False

    def _refuse_coding(self, body: bytes) -> bool:
        raise BrokenError(f"a body in {self._coding}, which was not asked for", begun=True)

    def _end(self) -> None:
        if not self._is_asked:
            return
        self._answer()
        self._is_asked = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # Unsent bytes of this request would be taken for the next one's.
        is_sent = self.transport.get_write_buffer_size() == 0
        if self._is_reusable and is_sent and self.usable:
            self._is_kept = True
            self.used_s = self._loop.time()
            self._client.keep(self)
        else:
            self.abort()

    def _answer(self) -> None:
        self._take = None
        if self._answered is not None and not self._answered.done():
            body, headers = b"" if self._coding else self._error_body, {}
            if self._status != OK:
                for name, value in self._headers.items():
                    headers[name.decode("latin-1")] = value.decode("latin-1")
            self._answered.set_result(Answer(self._status, headers, body))
        self._answered = None

    def _fail(self, message: str) -> None:
        is_stale = self._is_kept and not self._has_heard
        self._end_with(BrokenError(message, begun=self._has_head, stale=is_stale))

    def _end_with(self, error: Exception) -> None:
        self._take = None
        self._is_asked = self._is_whole = False
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(error)
        self._answered = None
        self.abort()

    def _wait(self, timeout_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(timeout_s, self._give_up)

    def _give_up(self) -> None:
        self._answer()
        self._is_asked = False
        self.abort()


@cache
def _tls() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _lines(headers: dict[str, str]) -> bytes:
    lines = []
    for name, value in headers.items():
        if not value.isprintable() or not value.isascii():
            raise ValueError(f"the header {name} must be one line of ASCII characters")
        lines.append(f"{name}: {value}\r\n")
    return "".join(lines).encode()
