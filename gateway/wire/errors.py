"""Holds the protocol's errors: one table of codes, one exception, and how both look on the wire."""

import math
from typing import Any, NamedTuple

import msgspec

from backends.decoding_faults import Json, fuller


class ErrorKind(NamedTuple):
    """Says how a code is reported: HTTP status, status of a socket's error event, its type."""

    status: int
    socket_status: int
    type: str


_INVALID = "invalid_request_error"

_BAD_REQUESTS = (
    # The client can fix it, so nothing retries it.
    *("invalid_json", "invalid_type", "invalid_value", "missing_required_parameter"),
    *("unsupported_parameter", "unknown_event_type", "context_length_exceeded"),
    *("previous_response_not_found", "item_not_found", "invalid_stream_id"),
    *("response_not_cancellable", "response_cancelled", "thread_unsupported_request"),
    *("websocket_stream_limit_reached", "websocket_connection_limit_reached"),
    # What an upstream found wrong with a request: a retry would find the same.
    *("invalid_prompt", "unsupported_value", "content_filter"),
    *("invalid_image", "invalid_image_url", "image_too_large"),
)

ERRORS: dict[str, ErrorKind] = {
    **dict.fromkeys(_BAD_REQUESTS, ErrorKind(400, 400, _INVALID)),
    "message_too_large": ErrorKind(413, 413, _INVALID),
    "invalid_api_key": ErrorKind(401, 401, "authentication_error"),
    "insufficient_permissions": ErrorKind(403, 403, "permission_error"),
    # Codex retries a 404 on the socket, so there an unknown model is a plain 400.
    "model_not_found": ErrorKind(404, 400, _INVALID),
    "response_not_found": ErrorKind(404, 400, _INVALID),
    "not_found": ErrorKind(404, 404, _INVALID),
    "method_not_allowed": ErrorKind(405, 405, _INVALID),
    "conflict": ErrorKind(409, 409, _INVALID),
    "idempotency_key_in_use": ErrorKind(409, 409, _INVALID),
    "idempotency_key_reused": ErrorKind(422, 422, _INVALID),
    "unsupported_encoding": ErrorKind(415, 415, _INVALID),
    "upgrade_required": ErrorKind(426, 426, _INVALID),
    # Pools: always with retry-after, since clients give up at once without it.
    "rate_limit_exceeded": ErrorKind(429, 429, "rate_limit_error"),
    "budget_exceeded": ErrorKind(429, 429, "insufficient_quota"),
    # The fault is ours or an engine's.
    "server_error": ErrorKind(500, 500, "server_error"),
    "server_is_overloaded": ErrorKind(503, 503, "server_error"),
    "server_draining": ErrorKind(503, 503, "server_error"),
}

MAX_SAID_CHARS = 64  # of a number, in an error about it

# What else the client of a large message can do, in the Responses API alone.
OR_CONTINUE = ", or continue with 'previous_response_id'"


class ProtocolError(Exception):
    """Tells a client what was expected, what came, and what to do."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        param: str | None = None,
        retry_after_us: int | None = None,
        headers: dict[str, str] | None = None,
        violated: tuple[str, ...] = (),
    ) -> None:
        """Takes as `violated` the policies of the `ratelimit-policy` header that refused it."""
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.param = param
        self.retry_after_us = retry_after_us
        self.violated = violated
        self.headers = dict(headers or {})
        if retry_after_us is not None:
            # Whole seconds, rounded up: a client that waits that long gets in.
            self.headers["retry-after"] = str(max(1, math.ceil(retry_after_us / 1e6)))
            self.headers["retry-after-ms"] = str(max(1, math.ceil(retry_after_us / 1e3)))

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"

    @property
    def kind(self) -> ErrorKind:
        """Returns the code's statuses and type; an unknown code is a server error."""
        return ERRORS.get(self.code, ERRORS["server_error"])

    def body(self) -> dict[str, Any]:
        """Makes the HTTP error body."""
        error: dict[str, Any] = {"message": self.message, "type": self.kind.type}
        error |= {"param": self.param, "code": self.code}
        if self.violated:
            error["violated-policies"] = self.violated  # the IETF draft's problem types name it so
        return {"error": error}

    def event(self, stream_id: str | None) -> bytes:
        """Makes the socket's `error` event; Codex ignores one without `status`."""
        event: dict[str, Any] = {"type": "error", "status": self.kind.socket_status, **self.body()}
        if self.headers:
            event["error"]["headers"] = self.headers
        if stream_id is not None:
            event["stream_id"] = stream_id
        return msgspec.json.encode(event)


def draining() -> ProtocolError:
    """Makes the error for tasks that reach a gateway which is stopping."""
    message = "The server is restarting. Connect again and resend. Try again in 1s."
    return ProtocolError("server_draining", message, retry_after_us=1_000_000)


def cancelled_in_queue() -> ProtocolError:
    """Makes the error for a task that is cancelled before its turn."""
    message = "The response was cancelled while it waited for its turn."
    return ProtocolError("response_cancelled", message)


def too_large(max_bytes: int, num_bytes: int) -> ProtocolError:
    """Makes the error for a message beyond the limit."""
    message = f"A message may hold {max_bytes} bytes, got {num_bytes}. Send less{OR_CONTINUE}."
    return ProtocolError("message_too_large", message)


def too_many_bytes(max_bytes: int) -> ProtocolError:
    """Makes the error for a tenant whose unfinished requests hold too much."""
    return ProtocolError(
        "rate_limit_exceeded",
        f"Your requests that are being read, wait or run hold {max_bytes >> 20} MiB here, as much "
        "as they may together. Wait for some to end, then send it again.",
        retry_after_us=1_000_000,
    )


def missing_parameter(param: str, hint: str = "") -> ProtocolError:
    """Makes the error for a missing field."""
    message = f"Missing required parameter: '{param}'.{hint}"
    return ProtocolError("missing_required_parameter", message, param=param)


def invalid_parameter(param: str, why: str, code: str = "invalid_value") -> ProtocolError:
    """Makes the error for a field with a wrong value; `why` says what was expected, and came."""
    return ProtocolError(code, f"Invalid '{param}': {why}.", param=param)


def check_limit(limit: int, most: int) -> None:
    """Raises `ProtocolError` if a page of a list cannot have as many entries."""
    if not 1 <= limit <= most:
        got = str(limit)[:MAX_SAID_CHARS]
        raise invalid_parameter("limit", f"expected 1 to {most}, got {got}")


def from_validation(
    error: msgspec.ValidationError, kind: Any, prefix: str = "", text: Json = b""
) -> ProtocolError:
    """Turns a decoder's error for a `kind` that sat at `prefix` into a protocol error.

    msgspec says what it expected, what it got and the path: "Expected `str`, got `int` - at `$.a`".
    What it does not say of the `text`, `fuller` does.
    """
    said, _, path = str(error).replace(" - at `key` in", " in a key - at").partition(" - at `")
    path = path.rstrip("`").removeprefix("$")
    path, said = fuller(kind, text, path, said)
    param = (prefix + path).lstrip(".")
    if said.startswith(("Object missing required field `", "Object contains unknown field `")):
        field = said.split("`")[1]
        param = f"{param}.{field}" if param else field
        if said.startswith("Object contains"):
            return ProtocolError("invalid_value", f"Unknown parameter: '{param}'.", param=param)
        return missing_parameter(param)
    code = "invalid_type" if ", got `" in said else "invalid_value"
    where = f"'{param}'" if param else "request body"
    return ProtocolError(code, f"Invalid {where}: {said}.", param=param or None)
