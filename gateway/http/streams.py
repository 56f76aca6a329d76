"""Runs one job per HTTP request, and answers whole as JSON or piece by piece as SSE.

This is an edge.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from operator import methodcaller
from typing import Any, Protocol
from urllib.parse import quote

import msgspec
from litestar import Request
from litestar.exceptions import SerializationException
from litestar.response.base import ASGIResponse
from litestar.types import Receive, Scope, Send

from backends.contract import BackendGroup
from gateway.core.budget_answers import budget_headers
from gateway.core.gateway import Gateway
from gateway.core.job import Ended, Job, Parent
from gateway.core.ratelimit import rate_limit_headers
from gateway.task.context import give_back_opened, load_task
from gateway.task.own_input import check_values, parse_request
from gateway.task.pipeline import handle_task
from gateway.transport.light_event import LightEvent
from gateway.transport.outbox import Outbox, WriteNow
from gateway.transport.response_cycle import attended, watched
from gateway.transport.socket_protocol import WRITE_NOW
from gateway.transport.unbroken_lines import LINE_SEPARATORS, NEXT_LINE, unbroken
from gateway.wire.agents import TURN_STATE, is_codex
from gateway.wire.compaction import compaction_object
from gateway.wire.errors import ProtocolError, missing_parameter
from gateway.wire.events import CompactBody, CreateBody, not_json
from gateway.wire.item_events import TYPE_AT
from gateway.wire.requests import ParsedCreate
from gateway.wire.response import ResponseStream, ResponseWriter, unheard
from router.classify.task import Task, Tenant
from router.policy.policy import AUTO
from router.waiting.fair_queue import QueuePosition


class AnyRequest(Request[Any, Any, Any]):
    """Reads a body that may be no JSON, or no UTF-8, for which the framework has no error."""

    async def document(self) -> bytes:
        """Returns the body; raises `ProtocolError` if it has too many values to be decoded."""
        content = await self.body()
        await check_values(content)
        return content

    async def json(self) -> Any:
        """Returns the body's document, or raises `ProtocolError`."""
        content = await self.document()
        try:
            return await super().json()
        except (UnicodeDecodeError, SerializationException) as error:
            raise not_json(error, text=content) from None


# Questions about a context may be about one that no engine takes; the counting is bounded.
MAX_COUNTED_TOKENS = 1 << 20

_LEFT = "The client left before the response ended."
JSON = "application/json"
SSE = b"text/event-stream; charset=utf-8"
_HEADER_CHARS = "".join(map(chr, range(0x20, 0x7F)))  # a header's value may have them as they are


def json_response(
    body: bytes | dict[str, Any], status: int = 200, headers: dict[str, str] | None = None
) -> ASGIResponse:
    """Makes a JSON answer; bytes are JSON already."""
    content = body if isinstance(body, bytes) else msgspec.json.encode(body)
    return ASGIResponse(body=content, media_type=JSON, status_code=status, headers=headers or {})


def error_response(error: ProtocolError) -> ASGIResponse:
    """Makes an HTTP answer of an error."""
    return json_response(error.body(), error.kind.status, error.headers | challenge(error))


def challenge(error: ProtocolError) -> dict[str, str]:
    """Returns the header that an answer without a good key has to have (RFC 9110 11.6.1)."""
    return {"www-authenticate": "Bearer"} if error.kind.status == 401 else {}


# Lets a response go on whose client left: its job and writer, bytes that it holds, and its pump.
Keep = Callable[[Job, ResponseStream, int, "asyncio.Task[Ended | None]"], bool]

_LATIN = methodcaller("encode", "latin-1")


class HttpAnswer(ASGIResponse):
    """Answers at a fifth of the framework's cost, of whose answers it is one in name only."""

    def __init__(
        self,
        media_type: bytes,
        headers: dict[str, str],
        body: bytes = b"",
        *,
        is_final: bool = True,
    ) -> None:
        """Takes as `is_final` whether the job came to its own end, as far as that is known."""
        self.is_final = is_final
        self.body = body
        names, values = map(_LATIN, headers), map(_LATIN, headers.values())
        self._headers = [(b"content-type", media_type), *zip(names, values, strict=True)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the answer."""
        length = (b"content-length", str(len(self.body)).encode())
        await self._start(send, length)
        await send({"type": "http.response.body", "body": self.body, "more_body": False})

    async def _start(self, send: Send, *more: tuple[bytes, bytes]) -> None:
        headers = [*self._headers, *more]
        await send({"type": "http.response.start", "status": 200, "headers": headers})


class Exchange:
    """Runs one HTTP request's job, and holds what became known of it."""

    def __init__(
        self,
        gw: Gateway,
        tenant: Tenant,
        parsed: ParsedCreate,
        writer: ResponseWriter,
        stream: ResponseStream | None = None,
        *,
        is_codex: bool = False,
        parent: Parent | None = None,
    ) -> None:
        """Begins the job.

        Args:
            stream: The writer, if it can send events before the response begins.
            parent: What it continues, if that is remembered here.
            is_codex: The client takes a turn's state as a header, and sends it back.
        """
        self._stream = stream
        self._turn_state: str | None = None
        self.refusal: ProtocolError | None = None
        self.opened = LightEvent()  # there will be events, or there is a refusal
        self.job = Job(
            parsed,
            writer,
            tenant,
            arrived_us=gw.clock_us(),
            refuse=self._refuse,
            on_open=self.opened.set,
            on_queue_position=self._report_queue_position if stream is not None else None,
            on_turn_state=self._note_turn_state if is_codex else None,
        )
        if parent is not None:
            self.job.bring(parent)
        loop = asyncio.get_running_loop()
        self.pump: asyncio.Task[Ended | None] = loop.create_task(handle_task(gw, self.job))
        self._key_error: ProtocolError | None = None  # set once its key no longer holds
        self._release_key = gw.key_sessions.add(tenant, self._lose_key)
        self.pump.add_done_callback(self._end)

    def _end(self, pump: "asyncio.Task[Ended | None]") -> None:
        self.opened.set()
        self._release_key()

    def _lose_key(self, error: ProtocolError) -> None:
        """Stops the job, since its key has ended."""
        self._key_error = error
        if not self.job.writer.body:  # else it has come to its end
            self.job.writer.fault = error
        self.job.stop("cancelled")

    def _refuse(self, error: ProtocolError) -> None:
        error = self._key_error or error  # it waited, and was cancelled since its key ended
        if self._stream is None or not self.opened.is_set():
            self.refusal = error
            return
        # It waited, and its client was told so: the status has been sent.
        send_error(self._stream, error)

    def _report_queue_position(self, group: BackendGroup, position: QueuePosition) -> None:
        assert self._stream is not None
        self._stream.report_queue_position(group, position)
        self.opened.set()

    def _note_turn_state(self, state: str) -> None:
        self._turn_state = state

    def headers(self) -> dict[str, str]:
        """Returns the answer's headers: where the task went, and what is left in its pools."""
        decision = self.job.decision
        if decision is None or decision.chosen is None:
            return {}
        route = decision.chosen.route
        headers = rate_limit_headers(decision.balances, route.groups, decision.mode) | {
            "x-lanewise-route": route,
            "x-lanewise-policy": _as_header(decision.policy_version),
        }
        if decision.accounts:
            headers |= budget_headers(decision.accounts)
        return headers if self._turn_state is None else headers | {TURN_STATE: self._turn_state}

    async def whole(self, receive: Receive) -> Ended:
        """Waits for the end; a client that leaves first takes its generation with it.

        Raises `ProtocolError` if it was refused, or its engine failed.
        """
        await attended(self.pump, receive)
        if self.refusal is not None:
            self._raise_refusal()
        ended = None if self.pump.cancelled() else self.pump.result()
        if ended is None:
            raise ProtocolError("server_error", _LEFT)
        fault = ended.ending.fault()
        if fault is not None:
            raise fault
        return ended

    async def until_open(self, receive: Receive) -> None:
        """Waits until it is known that there will be events.

        A client that leaves while the job waits for its turn ends it: nobody wants its place.

        Raises `ProtocolError` if it was refused, while the status can still say so.
        """

        ends: list[Callable[[], object]] = []  # of watching, if it has begun
        self.job.on_wait = lambda: ends.append(watched(receive, self.pump.cancel))
        try:
            await self.opened.wait()
        except asyncio.CancelledError:
            self.pump.cancel()
            raise
        finally:
            self.job.on_wait = None
            for end in ends:
                end()
        if self.refusal is not None:
            await self.pump
            self._raise_refusal()
        if self.pump.done() and self.pump.cancelled():
            raise ProtocolError("server_error", _LEFT)

    def _raise_refusal(self) -> None:
        """Raises the refusal, and forgets it: its traceback comes to hold this."""
        assert self.refusal is not None
        try:
            raise self.refusal
        finally:
            self.refusal = None


class EventStream(HttpAnswer):
    """Sends server-sent events from an outbox until the job behind it ends or its client leaves."""

    def __init__(
        self,
        gw: Gateway,
        outbox: Outbox,
        pump: "asyncio.Task[Ended | None]",
        headers: dict[str, str],
        *,
        on_leave: Callable[[], bool] | None = None,
        on_end: Callable[[], None] | None = None,
    ) -> None:
        """Takes as `pump` what fills the outbox; it is cancelled with the stream.

        Where the client leaves before the end, `on_leave` may let it go on, and then returns true.
        `on_end` hears that the client has the events or is gone.
        """
        unbuffered = {"cache-control": "no-cache", "x-accel-buffering": "no"}
        super().__init__(SSE, headers | unbuffered, is_final=False)
        self._gw = gw
        self._outbox = outbox
        self._pump = pump
        self._on_leave = on_leave
        self._on_end = on_end
        self._has_left = False
        self._sending: asyncio.Task[Any] | None = None  # while it sends
        self._is_stopped = False
        self._write_now: WriteNow | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the events; whatever interrupts that stops the generation."""
        self._write_now = scope.get("state", {}).get(WRITE_NOW)
        try:
            await self._start(send)
            await self._send_events(send, receive)
        finally:
            if self._on_end is not None:
                self._on_end()
            goes_on = self._has_left and self._on_leave is not None and self._on_leave()
            if not goes_on:
                self._pump.cancel()
                if not self._pump.done():
                    await asyncio.wait((self._pump,))
                was_broken = self._pump.cancelled() or self._pump.exception() is not None
                ended = None if was_broken else self._pump.result()
                self.is_final = ended is not None and ended.ending.is_final

    async def _send_events(self, send: Send, receive: Receive) -> None:
        """Writes what the outbox gets, while watching whether anyone is there."""

        async def write(events: list[bytes]) -> None:
            body = b"".join(events)
            if LINE_SEPARATORS in body or NEXT_LINE in body:
                body = unbroken(body)
            await send({"type": "http.response.body", "body": body, "more_body": True})

        def cut() -> None:  # a reader that stalls counts as gone
            self._gw.metrics.counts["lanewise_ws_send_stalls_total"][()].inc()
            self._stop()

        self._pump.add_done_callback(lambda _: self._outbox.close())
        sending = self._sending = asyncio.current_task()
        assert sending is not None
        end_watching = watched(receive, self._leave)
        self._gw.outboxes[self._outbox] = cut
        try:
            await self._outbox.run(write, self._write_now, cut)
        except asyncio.CancelledError:
            if not self._is_stopped:
                raise
            sending.uncancel()
        finally:
            self._sending = None
            del self._gw.outboxes[self._outbox]
            end_watching()
        if not self._is_stopped:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _leave(self) -> None:
        if self._sending is not None:
            self._has_left = True
            self._stop()

    def _stop(self) -> None:
        """Ends the sending, wherever it waits."""
        if self._sending is not None and not self._is_stopped:
            self._is_stopped = True
            self._sending.cancel()


@lru_cache(64)
def _as_header(policy_version: str) -> str:
    """Quotes the letters of a version that a header cannot have."""
    return quote(policy_version, safe=_HEADER_CHARS)


def send_error(stream: ResponseStream, error: ProtocolError) -> None:
    """Sends an error as an event of a stream whose status has been sent."""
    fields = {"code": error.code, "message": error.message, "param": error.param}
    stream.send_about("error", msgspec.json.encode(fields | error.body())[1:-1])


def sse_event(data: bytes) -> bytes:
    """Writes one server-sent event."""
    event_type = data[TYPE_AT : data.index(b'"', TYPE_AT)]
    return b"event: %b\ndata: %b\n\n" % (event_type, data)


class MakeWriter(Protocol):
    """Makes the writer of one answer: of a stream with both arguments, else with none."""

    def __call__(
        self,
        emit: Callable[[bytes], None] | None = None,
        on_dirty: Callable[[ResponseWriter], None] | None = None,
    ) -> ResponseWriter: ...


async def answer_written(
    gw: Gateway,
    tenant: Tenant,
    parsed: ParsedCreate,
    receive: Receive,
    make_writer: MakeWriter,
    *,
    streams: bool,
    headers_of: Callable[[Exchange], dict[str, str]] = Exchange.headers,
) -> HttpAnswer:
    """Answers whole or as events in the protocol of a writer.

    Raises `ProtocolError`: Before the first event; afterwards errors are events.
    """
    if streams:
        outbox = Outbox(gw.flush_timer, gw.max_unread_bytes)
        exchange = Exchange(gw, tenant, parsed, make_writer(outbox.send, outbox.mark))
        await exchange.until_open(receive)
        return EventStream(gw, outbox, exchange.pump, headers_of(exchange))
    writer = make_writer()
    exchange = Exchange(gw, tenant, parsed, writer)
    ended = await exchange.whole(receive)
    if writer.fault is not None:
        raise writer.fault
    is_final = ended.ending.is_final
    return HttpAnswer(JSON.encode(), headers_of(exchange), writer.body, is_final=is_final)


async def create_response(
    gw: Gateway,
    tenant: Tenant,
    parsed: ParsedCreate,
    receive: Receive,
    headers: Mapping[str, str],
    *,
    parent: Parent | None,
    keep: Keep | None,
) -> HttpAnswer:
    """Answers `POST /v1/responses` in the foreground; `receive` tells when the client leaves.

    `parent` is what it continues, if that is remembered here. `keep` may let the response go on
    whose client leaves amid its events. Raises `ProtocolError`: Before the first event; afterwards
    errors are events.
    """
    codex = is_codex(headers)
    if parsed.body.stream:
        outbox = Outbox(gw.flush_timer, gw.max_unread_bytes)
        put = outbox.emit
        stream = ResponseStream(
            parsed, lambda kind, *events: put(kind, *map(sse_event, events)), on_dirty=outbox.mark
        )
        exchange = Exchange(gw, tenant, parsed, stream, stream, is_codex=codex, parent=parent)
        await exchange.until_open(receive)
        on_leave = None if keep is None else partial(keep, exchange.job, stream, 0, exchange.pump)
        return EventStream(gw, outbox, exchange.pump, exchange.headers(), on_leave=on_leave)
    whole = unheard(parsed)
    exchange = Exchange(gw, tenant, parsed, whole, is_codex=codex, parent=parent)
    ended = await exchange.whole(receive)
    is_final = ended.ending.is_final
    return HttpAnswer(JSON.encode(), exchange.headers(), whole.body, is_final=is_final)


async def create_compaction(
    gw: Gateway, tenant: Tenant, body: CompactBody, receive: Receive
) -> ASGIResponse:
    """Answers `POST /v1/responses/compact`; `receive` tells when the client leaves.

    Raises `ProtocolError` if it is not valid or not admitted, or its engine failed.
    """
    body = msgspec.structs.replace(body, model=body.model or AUTO)
    parsed = await parse_request(
        body, generate=False, max_tokens=MAX_COUNTED_TOKENS, store=tenant.store
    )
    if not parsed.input.items and body.previous_response_id is None:
        raise missing_parameter("input", " Send what is to be compacted, or continue a response.")
    parsed = msgspec.structs.replace(parsed, generate=True, answers=False)
    exchange = Exchange(gw, tenant, parsed, unheard(parsed))
    ended = await exchange.whole(receive)
    found = compaction_object(parsed.id, ended.items, ended.ending.usage, gw.wall_s())
    return json_response(found, headers=exchange.headers())


async def request_context(gw: Gateway, tenant: Tenant, body: CreateBody) -> Task:
    """Makes the task that a request would be, for questions about its context.

    Raises `ProtocolError` if it is not valid, or continues what is not stored.
    """
    parsed = await parse_request(body, generate=False, max_tokens=MAX_COUNTED_TOKENS)
    # It is never run: what would refuse it is raised.
    job = Job(parsed, unheard(parsed), tenant, arrived_us=gw.clock_us(), refuse=lambda error: None)
    try:
        return await load_task(gw, job)
    finally:
        give_back_opened(gw, job)
