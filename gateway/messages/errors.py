"""Writes errors as Anthropic does: its statuses and types, and words that its clients act on.

Claude Code compacts a conversation when it reads "prompt is too long: N tokens > M maximum", and
repeats a request after a 401 unless a header says that it should not.
"""

import re
from collections.abc import Sequence
from typing import Any

from gateway.wire.errors import ProtocolError

# The SDK's tool runner asks for a conversation that is kept, and goes on without upon this code.
NO_THREADS = "thread_unsupported_request"

REQUEST_ID = "request-id"  # the header that the SDKs read

# Anthropic's documentation, "Errors", 2026-10.
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_OVERLOADED = 529
_RETRIED = (408, 409, 429)  # besides what is 500 or more, by all SDKs

_STEP = re.compile(r"\[(\d+)\]")
_TOKENS = re.compile(r"\b\d{2,}\b")
# Fields that have another name in the Responses request that is made of this one.
_NAMES = (
    (re.compile(r"^(tools\.\d+)\.parameters"), r"\1.input_schema"),
    (re.compile(r"^text\.format"), "output_config.format"),
    (re.compile(r"^max_output_tokens"), "max_tokens"),
    (re.compile(r"^instructions"), "system"),
    (re.compile(r"^input$"), "messages"),
    (re.compile(r"^reasoning\.effort"), "output_config.effort"),
)


def in_messages_terms(error: ProtocolError, json_paths: Sequence[str]) -> ProtocolError:
    """Rewrites an error about a Responses request for the Messages request that it was made of.

    `json_paths` are those of the messages that its items came from.
    """
    if error.code == "context_length_exceeded" or error.param is None:
        return error
    param = _STEP.sub(r".\1", error.param)
    parts = param.split(".")
    if parts[0] == "input" and len(parts) > 1 and int(parts[1]) < len(json_paths):
        param = ".".join([json_paths[int(parts[1])], *parts[2:]])
    for pattern, name in _NAMES:
        param = pattern.sub(name, param)
    words = error.message.removeprefix(f"Invalid '{error.param}': ")
    words = words.replace(f"'{error.param}'", f"'{param}'")  # as it is called amid a sentence
    words = words[:1].upper() + words[1:]
    if error.code == "missing_required_parameter":
        words = "Field required"
    return ProtocolError(error.code, f"{param}: {words}", headers=error.headers)


def status_of(error: ProtocolError) -> int:
    """Returns the HTTP status; 529 says that all is full, which the SDKs know as such."""
    return _OVERLOADED if error.code == "server_is_overloaded" else error.kind.status


def error_body(error: ProtocolError, request_id: str | None = None) -> dict[str, Any]:
    """Makes the body of an error, which is also the data of an `error` event."""
    status = status_of(error)
    kind = _TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
    told: dict[str, Any] = {"type": kind, "message": _words(error)}
    if error.code == NO_THREADS:
        told["details"] = {"error_code": error.code, "unsupported": ["thread"]}
    body = {"type": "error", "error": told}
    return body if request_id is None else body | {"request_id": request_id}


def error_headers(error: ProtocolError, request_id: str) -> dict[str, str]:
    """Makes the headers of an error."""
    headers = error.headers | {REQUEST_ID: request_id}
    status = status_of(error)
    if status < 500 and status not in _RETRIED:
        headers["x-should-retry"] = "false"
    return headers


def _words(error: ProtocolError) -> str:
    if error.code != "context_length_exceeded":
        return error.message
    # The prompt's tokens and the window's, which is the smaller, come first in every such message.
    tokens = [int(number) for number in _TOKENS.findall(error.message)[:2]]
    if len(tokens) < 2:
        return f"prompt is too long: {error.message}"
    return f"prompt is too long: {max(tokens)} tokens > {min(tokens)} maximum"
