"""Does what HTTP asks of a server on any route: browsers' questions, HEAD, and packed bodies.

A request that has none of these passes at the price of one look at its headers. This is an edge.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from gateway.core.budget_answers import BUDGET_HEADER
from gateway.core.ratelimit import MODE_HEADER, OPENAI_LIMITS
from gateway.http.encodings import unpacked
from gateway.http.fast_routes import MeteredBody, headers_of, read_body
from gateway.http.faults import fault_of, fault_response
from gateway.http.services import Services
from gateway.messages.errors import REQUEST_ID
from gateway.messages.ratelimit import ANTHROPIC_LIMITS
from gateway.wire.agents import TURN_STATE
from gateway.wire.errors import ProtocolError

ANY_ORIGIN = "*"
EXPOSED_HEADERS = (
    *("x-request-id", REQUEST_ID, "retry-after", "retry-after-ms", "x-should-retry", "allow"),
    *("x-lanewise-route", "x-lanewise-policy", MODE_HEADER, BUDGET_HEADER, TURN_STATE),
    *("ratelimit", "ratelimit-policy", *OPENAI_LIMITS, *ANTHROPIC_LIMITS),
    *("openai-processing-ms", "openai-version", "idempotent-replayed"),
)
_EXPOSED = ", ".join(EXPOSED_HEADERS).encode()
_MAX_AGE_S = 7_200  # Chromium's most, read 2026-11


class HttpManners:
    """Wraps an ASGI application; see the module."""

    def __init__(
        self, app: ASGIApp, services: Services, methods_at: Callable[[str], set[str]]
    ) -> None:
        """Takes a function that returns the methods served at a path."""
        self._app = app
        self._services = services
        self._methods_at = methods_at

    def __call__(self, scope: Any, receive: Receive, send: Send) -> Awaitable[None]:
        """Serves what asks for manners, or passes it on, without a frame of its own meanwhile."""
        if scope["type"] != ScopeType.HTTP:
            return self._app(scope, receive, send)
        told = dict(scope["headers"])
        origin, coding = told.get(b"origin", b""), told.get(b"content-encoding", b"")
        method, path = scope["method"], scope["path"]
        # No other origin's page is an admin's, and some of its answers have no end.
        asks_ours = method in ("OPTIONS", "HEAD") and not path.lstrip("/").startswith("admin")
        served = self._methods_at(path) if asks_ours else set[str]()
        if origin:
            send = self._sharing(origin.decode("latin-1"), send)
        if coding:
            return self._unpack(scope, receive, send, coding.decode("latin-1"))
        if method == "OPTIONS" and served:
            return _tell_methods(scope, send, ", ".join(sorted({*served, "OPTIONS"})))
        if method == "HEAD" and "GET" in served:
            # uvicorn, whose scope is still a HEAD's, sends no body.
            scope = {**scope, "method": "GET"}
        return self._app(scope, receive, send)

    def _sharing(self, origin: str, send: Send) -> Send:
        """Returns a `send` that lets pages of an allowed origin read the answer."""
        allowed = self._services.config.server.allowed_origins
        is_allowed = origin in allowed or ANY_ORIGIN in allowed

        async def send_shared(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", ()), (b"vary", b"Origin")]
                if is_allowed:
                    headers += [
                        (b"access-control-allow-origin", origin.encode("latin-1")),
                        (b"access-control-expose-headers", _EXPOSED),
                    ]
                message["headers"] = headers
            await send(message)

        return send_shared

    async def _unpack(self, scope: Any, receive: Receive, send: Send, coding: str) -> None:
        """Goes on with the body that a packed one holds, once its key is known."""
        max_bytes = self._services.config.server.max_message_bytes
        body = MeteredBody(receive, scope, self._services.gw.budgets.in_flight)
        told = headers_of(scope)
        try:
            if not scope["path"].startswith("/v1/"):
                raise ProtocolError("unsupported_encoding", "A body is not unpacked here.")
            self._services.caller(scope, told)
            packed = await read_body(body, max_bytes)
            if packed is None:
                raise ProtocolError("invalid_value", "The body was not sent whole.")
            # The libraries let go of the interpreter's lock: 16 MiB take 50 ms.
            content = await asyncio.to_thread(unpacked, packed, coding, max_bytes)
        except Exception as error:
            fault = fault_of(scope["method"], scope["path"], error)
            answer = fault_response(fault, scope["path"], told, self._services.gw.wall_s())
            await answer(scope, receive, send)
            return
        finally:
            body.give_back()
        pending = [content]

        async def receive_content() -> Any:
            if not pending:
                return await receive()
            return {"type": "http.request", "body": pending.pop(), "more_body": False}

        dropped = (b"content-encoding", b"content-length", b"transfer-encoding")
        headers = [pair for pair in scope["headers"] if pair[0] not in dropped]
        headers.append((b"content-length", str(len(content)).encode()))
        plain: Any = {**scope, "headers": headers}
        await self._app(plain, receive_content, send)


async def _tell_methods(scope: Scope, send: Send, methods: str) -> None:
    """Answers OPTIONS, and a browser that asks whether its page may send what it wants to."""
    headers = [(b"allow", methods.encode()), (b"content-length", b"0")]
    asked = dict(scope["headers"])
    if b"access-control-request-method" in asked:
        wanted = asked.get(b"access-control-request-headers", b"authorization, content-type")
        headers += [
            (b"access-control-allow-methods", methods.encode()),
            (b"access-control-allow-headers", wanted[:4_096]),
            (b"access-control-max-age", str(_MAX_AGE_S).encode()),
        ]
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b"", "more_body": False})
