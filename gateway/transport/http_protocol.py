"""Bounds what uvicorn's HTTP protocol reads, and hands upgrades to `SocketProtocol`.

An upgrade to anything but a WebSocket is ignored, as RFC 9110 7.8 allows: Java's client offers h2c
with each first request. The parser stops at any upgrade and passes over a body, so such a request
is parsed again, from its head without the offer. This is an edge.
"""

import asyncio
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, cast

from httptools import HttpParserCallbackError, HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.transport.client_address import Network, forwarded_address
from gateway.transport.connection_limits import Visit, uncounted
from gateway.transport.gathered_writes import GatheredWrites
from gateway.transport.keepalive import AcceptQueue
from gateway.transport.refusals import (
    BUSY,
    HEAD_TOO_LARGE,
    NO_HOST,
    SAID_TWICE,
    TOO_MANY_CONNECTIONS,
    TWO_IDEMPOTENCY_KEYS,
    HttpRefusal,
    not_http,
)
from gateway.transport.response_cycle import CycleUntilClose, ResponseCycle
from gateway.transport.socket_handshake import can_be_parsed, plain_key
from gateway.transport.socket_protocol import VISIT, WATCH, WRITE_NOW, SocketProtocol
from gateway.transport.unbroken_lines import LINE_SEPARATORS, NEXT_LINE, unbroken

# What a request's line and headers may hold. A browser's are below 16 KiB.
MAX_HEAD_BYTES = 64 << 10
_LINE_BYTES, _FIELD_BYTES = len(b"  HTTP/1.1\r\n\r\n"), len(b": \r\n")  # besides their texts
MAX_HEADERS = 256  # the most of browsers and proxies are below 100
# A request may have so many times its body's bytes: chunks have sizes, and trailers may follow.
MAX_FRAMING = 2
# Heads that one read may hold to be parsed at once. Where there are more, it is parsed in pieces,
# each once what came before is answered: a read of 256 KiB can hold 10,000 requests.
MAX_HEADS_AT_ONCE = 16
PIECE_BYTES = 1_024
OPEN_PATHS = ("/healthz", "/health", "/readyz", "/metrics")  # answered with the last descriptors


class HttpProtocol(HttpToolsProtocol):
    """Adds `write_now` to each request's state, queues upgrades, and bounds what it reads."""

    flow: "_Flow"
    cycle: ResponseCycle

    def __init__(
        self,
        line: AcceptQueue,
        max_message_bytes: int,
        trusted: Sequence[Network] = (),
        *,
        visit: Visit | None = None,
        **options: Any,
    ) -> None:
        """Takes headers about the client's address from `trusted` networks."""
        super().__init__(**options)
        self._line = line
        self._max_request_bytes = MAX_HEAD_BYTES + MAX_FRAMING * max_message_bytes
        self._trusted = trusted
        self._visit = visit or uncounted()
        self._in_head = self._in_body = False
        self._is_read_again = False  # it offers an upgrade that is ignored
        self._num_bytes = 0  # that arrived of the request
        self._read_bytes = 0  # of the latest read
        self._most_bytes = 0  # of the reads in which the request came, and others may have come
        self._has_ended_one = False  # the latest read, which may have begun the next
        self._earlier: list[ResponseCycle] = []  # not yet answered, as a later one comes
        self._unread: bytearray | None = None  # what came and waits for answers to what came before
        self._is_over = False  # what still comes is no request

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = _Flow(transport)
        self._writes = GatheredWrites(transport)
        self.transport = cast("asyncio.Transport", self._writes)

    def connection_lost(self, exc: Exception | None) -> None:
        self._visit.leave()
        super().connection_lost(exc)
        latest = self.cycle
        if latest is not None and not latest.response_complete:
            latest.leave()
        for cycle in self._earlier:  # uvicorn tells the latest alone
            cycle.leave()
        self._earlier.clear()
        self._unread = None
        if self.pipeline:  # none will begin; they hold this protocol, and both may be frozen
            self.pipeline.clear()
            self.cycle = None  # type: ignore[assignment]  # the last of them

    def data_received(self, data: bytes) -> None:
        """Reads more of a request, and ends what grows too large."""
        is_long = len(data) > PIECE_BYTES
        if (
            self.pipeline
            or self._unread is not None
            or (is_long and data.count(b"\n\r\n") + data.count(b"\n\n") > MAX_HEADS_AT_ONCE)
        ):
            self._unread = (self._unread or bytearray()) + data
            self._read_on()
            return
        self._unset_keepalive_if_required()
        self._has_ended_one = False
        self._read_bytes = len(data)
        self._most_bytes += self._read_bytes
        self._parse(data)
        if not (self._in_head or self._in_body):
            return
        if not self._has_ended_one:  # otherwise most of it may be an earlier request's
            self._num_bytes += len(data)
        if self._in_head and self._num_bytes > MAX_HEAD_BYTES:
            self._visit.cut_for("head")
            self._refuse(HEAD_TOO_LARGE)
        elif self._num_bytes > self._max_request_bytes:
            self._visit.cut_for("body")
            self.transport.abort()
        else:
            self._visit.read(len(data), in_head=self._in_head, is_held=self._is_held)

    def _read_on(self) -> None:
        """Reads of what waits until an answer has to come first; meanwhile nothing more is read."""
        unread, self._unread = self._unread, None
        while unread and not (self.pipeline or self._is_over or self.transport.is_closing()):
            piece = bytes(unread[:PIECE_BYTES])
            del unread[:PIECE_BYTES]
            self.data_received(piece)
        if self._is_over or self.transport.is_closing():
            return
        if unread:
            self._unread = unread
            self.flow.pause_reading()
        self.flow.is_held = bool(unread)
        self.flow.resume_reading()

    def _parse(self, data: bytes) -> None:
        """Feeds the parser, as uvicorn does, and again after each upgrade that is ignored."""
        pieces: list[bytes | memoryview] = [data]  # the last comes first
        while pieces:
            piece = pieces.pop()
            try:
                self.parser.feed_data(piece)
            except HttpParserError as error:
                self.logger.warning("Invalid HTTP request received.")
                # An error of a callback: the parser took the target, and it is no URL.
                is_ours = isinstance(error, HttpParserCallbackError)
                why = "Its target is no path" if is_ours else error
                self._refuse(not_http(f"This is no request in HTTP/1.1. {why}."))
                return
            except HttpParserUpgrade as upgrade:
                if not self._is_read_again:
                    self._follow_upgrade()
                    return
                # A view: what follows may hold thousands of such requests.
                pieces += [memoryview(piece)[upgrade.args[0] :], self._head_without_upgrade()]
                self._is_read_again = False
                self._read_bytes = self._most_bytes  # it may have begun in an earlier read
                self.parser = HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn

    def _follow_upgrade(self) -> None:
        self._is_over = True
        if self._should_upgrade():
            self.handle_websocket_upgrade()
        else:  # CONNECT, which is answered; what follows would be of a tunnel
            self.cycle.keep_alive = False

    def _head_without_upgrade(self) -> bytes:
        version = self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, version)]
        lines += [name + b": " + value for name, value in self.headers if name != b"upgrade"]
        return b"\r\n".join([*lines, b"\r\n"])

    def _is_held(self) -> bool:
        return self.flow.read_paused

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._num_bytes = 0
        self._most_bytes = self._read_bytes

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade() and not self._should_upgrade():
            self._is_read_again = self.parser.get_method() != b"CONNECT"
            if self._is_read_again:
                return
        before, visit = self.cycle, self._visit
        visit.is_answering = True
        told, refusal = dict(self.headers), None
        if len(told) < len(self.headers) or b"host" not in told:
            refusal = self._refusal_of_names()
        may_be_large = self._most_bytes > MAX_HEAD_BYTES or len(self.headers) > MAX_HEADERS
        if refusal is None and (may_be_large or visit.is_proxied or visit.is_last_resort):
            refusal = self._refusal()
        if refusal is not None:
            self.app = refusal
        super().on_headers_complete()
        self._in_head, self._in_body = False, True
        if self.cycle is not before:  # otherwise it is an upgrade
            if before is not None and not before.response_complete:
                self._earlier.append(before)
            # Weakly: the cycle holds the state, and the collector may have frozen both.
            cycle = weakref.ref(self.cycle)
            self.scope["state"] |= {
                WRITE_NOW: partial(_write_body_now, cycle),
                WATCH: partial(_watch, cycle),
                VISIT: visit,
            }
            # uvicorn made it, and its task has not begun.
            is_old = self.scope["http_version"] < "1.1"
            self.cycle.__class__ = CycleUntilClose if is_old else ResponseCycle
            self.headers = _Trailers()

    def _refusal_of_names(self) -> HttpRefusal | None:
        """Returns the answer to who says a thing twice, or not at all."""
        names = [name for name, _ in self.headers]
        num_hosts = names.count(b"host")
        if num_hosts > 1 or names.count(b"authorization") > 1:
            return SAID_TWICE
        if not num_hosts and self.parser.get_http_version() == "1.1":
            return NO_HOST
        return TWO_IDEMPOTENCY_KEYS if names.count(b"idempotency-key") > 1 else None

    def _is_head_too_large(self) -> bool:
        """Says so of a head that is whole: it may have come in one go."""
        num_bytes = len(self.parser.get_method()) + len(self.url) + _LINE_BYTES
        num_bytes += sum([len(name) + len(value) + _FIELD_BYTES for name, value in self.headers])
        return num_bytes > MAX_HEAD_BYTES or len(self.headers) > MAX_HEADERS

    def _refusal(self) -> HttpRefusal | None:
        """Returns the answer to who may not ask, or may not ask this."""
        visit = self._visit
        if self._is_head_too_large():
            visit.cut_for("head")
            return HEAD_TOO_LARGE
        if visit.is_last_resort and self.url.partition(b"?")[0].decode() not in OPEN_PATHS:
            return BUSY
        if visit.is_proxied:
            address = forwarded_address(self.headers, self._trusted)
            if address is not None and not visit.comes_from(address):
                return TOO_MANY_CONNECTIONS
        return None

    def on_message_complete(self) -> None:
        if self._is_read_again:
            return
        self._in_body = False
        self._has_ended_one = True
        self._visit.read_whole()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._visit.is_answering = bool(self.pipeline)
        if self._earlier:
            self._earlier = [each for each in self._earlier if not each.response_complete]
        super().on_response_complete()
        if self._unread is not None and not self.pipeline:
            self.loop.call_soon(self._read_on)

    def _refuse(self, refusal: HttpRefusal) -> None:
        """Answers a request that is not whole, and closes."""
        self._is_over = True
        latest = self.cycle
        is_further = self._in_head and latest is not None and not latest.response_complete
        is_begun = self._in_body and latest.response_started
        if self._earlier or is_further or is_begun:  # it would stand within another answer
            self.transport.abort()
        else:
            self.transport.write(refusal.written())
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Refuses a handshake in the form of all errors."""
        self.transport.write(not_http(msg).written())
        self.transport.close()

    def handle_websocket_upgrade(self) -> None:
        self._writes.flush()
        self.transport = self._writes.bare  # a socket's messages are gathered by its outbox
        self._in_head = self._in_body = False
        self._visit.read_whole()
        self._line.join(self._upgrade)

    def _upgrade(self) -> None:
        if self.transport.is_closing():  # the client went while it waited
            return
        if isinstance(self.app, HttpRefusal):
            self.transport.write(self.app.written())
            self.transport.close()
            return
        make = cast("Callable[..., SocketProtocol]", self.ws_protocol_class)
        self.ws_protocol_class = partial(make, visit=self._visit)  # type: ignore[assignment]
        key = plain_key(self.scope["method"].encode(), self.url, self.headers)
        if self.scope["http_version"] != "1.1":  # RFC 6455 4.1: at least; and httptools knows no 2
            self.send_400_response("A WebSocket needs HTTP/1.1.")
        elif key is None and not can_be_parsed(self.headers):
            self.send_400_response("Invalid upgrade request.")
        elif key is None:
            super().handle_websocket_upgrade()
            made = cast("SocketProtocol", self.transport.get_protocol())
            if not made.handshake_initiated:  # `websockets` could not parse it
                self.send_400_response("Invalid upgrade request.")
        else:
            self._upgrade_plainly(key)
        self.parser = None  # type: ignore[assignment]  # it was a cycle

    def _upgrade_plainly(self, key: bytes) -> None:
        """Does what uvicorn does, without serializing the head again."""
        self.connections.discard(self)
        protocol: SocketProtocol = self.ws_protocol_class(  # type: ignore[call-arg, misc, assignment]
            config=self.config, server_state=self.server_state, app_state=self.app_state
        )
        protocol.begin(self, key)
        self.transport.set_protocol(protocol)


class _Flow(FlowControl):
    """Reads on once no answer has to come first, whoever asks."""

    is_held = False

    def resume_reading(self) -> None:
        """Reads on, unless something that was read has to wait."""
        if self.read_paused and not self.is_held:
            self.read_paused = False
            self._transport.resume_reading()


class _Trailers(list[tuple[bytes, bytes]]):
    """Drops headers after a chunked body: they mean nothing here, and there may be any number."""

    def append(self, header: tuple[bytes, bytes]) -> None:
        """Drops a trailer."""


def _watch(
    cycle: "weakref.ref[ResponseCycle]", on_left: Callable[[], object]
) -> Callable[[], object]:
    """Has `on_left` called once a request's client leaves; returns what ends that."""
    one = cycle()
    assert one is not None  # while it is served
    return one.watch(on_left)


def _write_body_now(cycle: "weakref.ref[ResponseCycle]", pieces: Iterable[bytes]) -> bool:
    """Sends more server-sent events, as one chunk, if the transport has room.

    Otherwise, or if the response is not chunked, it returns false: use ASGI's `send` then.
    """
    one = cycle()
    if one is None or one.disconnected or one.response_complete or one.flow.write_paused:
        return False
    if not (one.response_started and one.chunked_encoding):
        return False
    body = b"".join(pieces)
    if LINE_SEPARATORS in body or NEXT_LINE in body:
        body = unbroken(body)
    if body:  # an empty chunk would end the response
        writes: Any = one.transport  # it gathers; what comes here is gathered
        chunk = b"%x\r\n%b\r\n" % (len(body), body)
        if writes.pieces:
            writes.pieces.append(chunk)  # in one write with the head
            writes.flush()
        else:
            writes.bare.write(chunk)
    return True
