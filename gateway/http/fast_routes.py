"""Takes the requests that come by the thousand past the web framework.

Litestar's routing, request, headers and response objects take a seventh of the CPU of a short task
that comes by HTTP, and give it nothing: one path, one header, a body of JSON. So `FastRoutes`
takes these from ASGI itself; all else, and what of them is out of the ordinary, goes to
Litestar, whose routes stand for the schema and call the same functions. A test holds both to the
same answers. This is an edge.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from litestar.enums import ScopeType
from litestar.response.base import ASGIResponse
from litestar.types import ASGIApp, HTTPScope, Receive, Scope, Send

from gateway.http.chat import answer_chat
from gateway.http.faults import fault_of, fault_response
from gateway.http.idempotency import answered_once
from gateway.http.messages import answer_messages
from gateway.http.rejoining import answer_lost, find_lost
from gateway.http.services import Headers, Post, Services
from gateway.http.streams import create_response
from gateway.rejoin.matching import asks_for_grace
from gateway.task.json_marks import MAX_MARKS
from gateway.task.own_input import check_values, parse_request
from gateway.transport.byte_budgets import ByteBudgets
from gateway.transport.response_cycle import watched
from gateway.transport.socket_protocol import VISIT, WATCH
from gateway.wire.agents import with_headers
from gateway.wire.errors import too_large, too_many_bytes
from gateway.wire.events import CreateBody, decode
from gateway.wire.requests import ParsedCreate
from router.classify.task import Tenant


async def answer_response(
    services: Services, tenant: Tenant, content: bytes, receive: Receive, headers: Headers
) -> ASGIResponse:
    """Answers `POST /v1/responses`: by JSON, by SSE, or in the background.

    Raises `ProtocolError`: Before anything is answered.
    """
    gw = services.gw
    started_us = gw.clock_us()
    body = decode(content, CreateBody)
    gw.metrics.stage("parse", gw.clock_us() - started_us)
    if body.background:
        return await services.background.create(tenant, body, len(content), receive)
    parsed = await parse_request(
        body, max_tokens=gw.max_context_tokens, store=tenant.store, num_bytes=len(content)
    )
    parsed, rejoins = _told_by_headers(parsed, headers), services.rejoins
    lost = None if rejoins.is_empty else await find_lost(rejoins, gw, tenant, parsed)
    if lost is not None:
        return await answer_lost(rejoins, gw, lost, parsed, receive)
    parent_id = body.previous_response_id
    parent = await rejoins.recalled(tenant, parent_id) if parent_id is not None else None
    keep = rejoins.keep if body.metadata and asks_for_grace(parsed) else None
    return await create_response(gw, tenant, parsed, receive, headers, parent=parent, keep=keep)


def _told_by_headers(parsed: ParsedCreate, headers: Mapping[str, str]) -> ParsedCreate:
    """Returns a request with what its own headers say of the agent that asks."""
    agent = with_headers(parsed.hints.agent, headers)
    if agent is parsed.hints.agent:
        return parsed
    hints = msgspec.structs.replace(parsed.hints, agent=agent)
    return msgspec.structs.replace(parsed, hints=hints)


class MeteredBody:
    """Wraps ASGI's `receive`, and counts a body for the tenant whose key the request showed."""

    def __init__(self, receive: Receive, scope: Scope, in_flight: ByteBudgets) -> None:
        self._receive = receive
        state = scope.get("state", {})
        self._visit, self._watch = state.get(VISIT), state.get(WATCH)
        self._in_flight = in_flight
        self._tenant_id = ""
        self._num_bytes = 0

    async def __call__(self) -> Any:
        """Returns the next message; raises `ProtocolError` if the tenant has too much in flight."""
        message = await self._receive()
        num_bytes = len(message.get("body", b""))  # type: ignore[arg-type]
        if num_bytes and self._visit is not None and self._visit.tenant_id:
            self._tenant_id = self._visit.tenant_id
            if not self._in_flight.take(self._tenant_id, num_bytes):
                raise too_many_bytes(self._in_flight.max_tenant_bytes)
            self._num_bytes += num_bytes
        return message

    def watch(self, on_left: Callable[[], object]) -> Callable[[], object]:
        """Has `on_left` called once the client leaves; returns what ends that."""
        if self._watch is None:
            return watched(self._receive, on_left)
        stop: Callable[[], object] = self._watch(on_left)
        return stop

    def give_back(self) -> None:
        """Counts it no more."""
        if self._num_bytes:
            self._in_flight.give(self._tenant_id, self._num_bytes)
            self._num_bytes = 0


_WITH_BODY = ("POST", "PUT", "PATCH", "DELETE")
_POSTS: dict[str, Post] = {
    "/v1/responses": answer_response,
    "/v1/chat/completions": answer_chat,
    "/v1/messages": answer_messages,
}


class FastRoutes:
    """Wraps an ASGI application; see the module."""

    def __init__(self, app: ASGIApp, services: Services) -> None:
        self._app = app
        self._services = services
        self._max_bytes = services.config.server.max_message_bytes

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serves what has a body, or passes it on."""
        if scope["type"] == ScopeType.HTTP and scope["method"] in _WITH_BODY:
            body = MeteredBody(receive, scope, self._services.gw.budgets.in_flight)
            return self._serve(scope, body, send)
        return self._app(scope, receive, send)

    async def _serve(self, scope: HTTPScope, receive: MeteredBody, send: Send) -> None:
        try:
            post = _POSTS.get(scope["path"]) if scope["method"] == "POST" else None
            headers = {} if post is None else headers_of(scope)
            # Litestar refuses what has no known length, is too long or has a "Content-Length" that
            # is none.
            length = headers.get("content-length", "")
            if post is None or not length.isdecimal() or int(length) > self._max_bytes:
                await self._app(scope, receive, send)
                return
            answer = await self._answered(post, scope, headers, receive)
            if answer is not None:
                await answer(scope, receive, send)
        finally:
            receive.give_back()

    async def _answered(
        self, post: Post, scope: Scope, headers: Mapping[str, str], receive: Receive
    ) -> ASGIResponse | None:
        """Returns the answer; None if the client left before it had asked."""
        services = self._services
        try:
            tenant = services.caller(scope, headers)
            content = await read_body(receive, self._max_bytes)
            if content is None:
                return None
            if len(content) > MAX_MARKS:
                await check_values(content)
            path = scope["path"]
            return await answered_once(post, path, services, tenant, content, receive, headers)
        except Exception as error:
            # No name for the fault: its traceback holds this frame, which is a cycle.
            return fault_response(
                fault_of("POST", scope["path"], error),
                scope["path"],
                headers,
                services.gw.wall_s(),
            )


def headers_of(scope: Scope) -> dict[str, str]:
    """Reads a request's headers, names in lower case; of two of a name the first counts.

    All are decoded at once, since no header has a line break.
    """
    if not scope["headers"]:
        return {}
    names, values = zip(*reversed([*scope["headers"]]), strict=True)
    keys = b"\n".join(names).decode("latin-1").lower().split("\n")
    return dict(zip(keys, b"\n".join(values).decode("latin-1").split("\n"), strict=True))


async def read_body(receive: Receive, max_bytes: int) -> bytes | None:
    """Reads a whole body; None if the client left during it.

    Raises `ProtocolError` if it is too large.
    """
    chunks: list[bytes] = []
    num_bytes = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        assert message["type"] == "http.request"
        chunks.append(message["body"])
        num_bytes += len(message["body"])
        if num_bytes > max_bytes:
            raise too_large(max_bytes, num_bytes)
        if not message["more_body"]:
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)
