"""Tells clients what went wrong, in the form of their protocol. This is an edge."""

import logging
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from litestar.response.base import ASGIResponse

from gateway.http.streams import challenge, json_response
from gateway.messages.errors import error_body, error_headers, status_of
from gateway.messages.ratelimit import anthropic_limits
from gateway.transport.ids import new_id
from gateway.wire.errors import OR_CONTINUE, ProtocolError, from_validation

logger = logging.getLogger("lanewise")

# How the framework says that a request lacks a parameter of its query, which it names nowhere else.
_LACKS = re.compile(r"Missing required query parameter '(\w+)' for path ")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?")
_VERSION = "anthropic-version"  # a header that all clients of that API send, and no others


def speaks_messages(path: str, headers: Mapping[str, str]) -> bool:
    """Says whether a request expects answers in Anthropic's form."""
    return path.startswith(("/v1/messages", "/v1/v1/messages")) or _VERSION in headers


def fault_of(method: str, path: str, error: Exception) -> ProtocolError:
    """Turns any exception into an error for the client; a fault of ours is logged."""
    if isinstance(error, ProtocolError):
        return error
    if isinstance(error, RecursionError):  # deeper than any of our documents is
        message = f"{method} {path}: the JSON is nested too deeply."
        return ProtocolError("invalid_json", message)
    logger.error("%s %s failed", method, path, exc_info=error)
    return ProtocolError("server_error", "The gateway failed. Send the request again.")


def field_faults(
    wrong: Iterable[Mapping[str, str]],
    types: Mapping[str, Any],
    sent: Mapping[str, Any],
    body: bytes = b"",
) -> list[ProtocolError]:
    """Makes the errors for what the framework found wrong with the arguments of a route.

    It names the path of a body's field, "data" for the body itself, or a parameter of the query.

    Args:
        wrong: What is wrong, and with which of them.
        types: Of the route's arguments.
        sent: What stood in the path and the query.
        body: As it came.
    """
    faults = []
    for each in wrong:
        text, key = each.get("message", ""), each.get("key", "")
        if text == "'data'":  # as the framework says that there is no body
            faults.append(_no_body(types["data"]))
        elif key in types and key != "data":
            fault = msgspec.ValidationError(text)
            faults.append(from_validation(fault, types[key], key, _as_json(sent.get(key))))
        else:
            at = f" - at `$.{key}`" if key not in ("", "data") else ""
            error = msgspec.ValidationError(text + at)
            faults.append(from_validation(error, types.get("data", Any), text=body))
    return faults


def _as_json(value: Any) -> bytes:
    """Returns what a parameter says as JSON: a number as one, though it came as text."""
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return value.encode()
    return msgspec.json.encode(value)


def missing_query_name(detail: str) -> str | None:
    """Returns the parameter of the query that a request lacks, by the framework's words for it."""
    found = _LACKS.match(detail)
    return None if found is None else found[1]


def _no_body(kind: Any) -> ProtocolError:
    """Makes the error for a request without a body, which names what that has to have."""
    needed = [f"'{field.encode_name}'" for field in msgspec.structs.fields(kind) if field.required]
    hint = f" with {', '.join(needed)}" if needed else ""
    return ProtocolError("invalid_json", f"Expected a JSON object{hint}: nothing was sent.")


def told(
    error: ProtocolError, path: str, headers: Mapping[str, str], unix_s: float
) -> tuple[dict[str, Any], int, dict[str, str]]:
    """Makes the body, status and headers of an error for the client of a request."""
    if OR_CONTINUE in error.message and not path.startswith("/v1/responses"):
        # Other APIs have no response to go on from.
        error = ProtocolError(error.code, error.message.replace(OR_CONTINUE, ""))
    if not speaks_messages(path, headers):
        return error.body(), error.kind.status, error.headers | challenge(error)
    request_id = f"req_{new_id()}"
    more = error_headers(error, request_id) | anthropic_limits(error.headers, unix_s)
    return error_body(error, request_id), status_of(error), more | challenge(error)


def fault_response(
    error: ProtocolError, path: str, headers: Mapping[str, str], unix_s: float
) -> ASGIResponse:
    """Makes the answer that tells the client of a request about an error."""
    return json_response(*told(error, path, headers, unix_s))
