"""Answers that are given before any route is asked: bytes, and an ASGI application.

This is an edge.
"""

from http import HTTPStatus

import msgspec
from litestar.types import Receive, Scope, Send

from gateway.wire.errors import ProtocolError


class HttpRefusal:
    """Sends an error as an HTTP response that ends the connection."""

    def __init__(self, error: ProtocolError, status: HTTPStatus) -> None:
        self._status = status
        self._body = msgspec.json.encode(error.body())
        self._headers = [
            *((name.encode(), value.encode()) for name, value in error.headers.items()),
            (b"content-type", b"application/json"),
            (b"content-length", str(len(self._body)).encode()),
            (b"connection", b"close"),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers whatever was asked."""
        await send(
            {"type": "http.response.start", "status": self._status, "headers": self._headers}
        )
        await send({"type": "http.response.body", "body": self._body, "more_body": False})

    def written(self) -> bytes:
        """Returns the whole response."""
        head = f"HTTP/1.1 {self._status.value} {self._status.phrase}\r\n".encode()
        lines = (name + b": " + value + b"\r\n" for name, value in self._headers)
        return head + b"".join(lines) + b"\r\n" + self._body


def not_http(message: str) -> HttpRefusal:
    """Makes the answer to bytes that are no request of HTTP, or no handshake of a WebSocket."""
    return HttpRefusal(ProtocolError("invalid_value", message), HTTPStatus.BAD_REQUEST)


HEAD_TOO_LARGE = HttpRefusal(
    ProtocolError(
        "invalid_value",
        "The request's line and headers may hold 64 KiB together, and be 256. Send fewer.",
    ),
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
)
SAID_TWICE = HttpRefusal(
    ProtocolError(
        "invalid_value",
        "A request has one Host and at most one Authorization header, so that a proxy and this "
        "gateway read the same. Send each once.",
    ),
    HTTPStatus.BAD_REQUEST,
)
NO_HOST = HttpRefusal(
    ProtocolError(
        "missing_required_parameter",
        "A request in HTTP/1.1 has a Host header (RFC 9112 3.2). Send one, or speak HTTP/1.0.",
        param="Host",
    ),
    HTTPStatus.BAD_REQUEST,
)
TWO_IDEMPOTENCY_KEYS = HttpRefusal(
    ProtocolError(
        "invalid_value",
        "A request has at most one Idempotency-Key header: it is answered once under that key. "
        "Send one of them.",
        param="Idempotency-Key",
    ),
    HTTPStatus.BAD_REQUEST,
)
TOO_MANY_CONNECTIONS = HttpRefusal(
    ProtocolError(
        "rate_limit_exceeded",
        "Too many connections without a key come from this address. Close some, or send a key.",
        retry_after_us=1_000_000,
    ),
    HTTPStatus.TOO_MANY_REQUESTS,
)
BUSY = HttpRefusal(
    ProtocolError(
        "server_is_overloaded",
        "The gateway has no file descriptors left for more connections. Try again in 1s.",
        retry_after_us=1_000_000,
    ),
    HTTPStatus.SERVICE_UNAVAILABLE,
)
