"""Classifies an upstream's failures for the client, for retries, and for the upstream's health."""

import re
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Literal

import msgspec

from backends.contract import BackendError
from backends.upstream.answer.lenient import fitted

MAX_MESSAGE_CHARS = 500  # of an upstream's own words

# Codes of OpenAI's that tell a client what to change; others become `invalid_prompt`, since the
# SDK's list has it for "the request cannot be served as it is".
CLIENT_CODES = frozenset(
    {
        *("context_length_exceeded", "invalid_prompt", "invalid_value", "invalid_type"),
        *("missing_required_parameter", "unsupported_parameter", "unsupported_value"),
        *("content_filter", "invalid_image", "invalid_image_url", "image_too_large"),
    }
)
# More of what a `response.failed` of OpenAI's finds wrong with a request, by our code for it.
_OF_REQUEST = {
    "invalid_image_format": "invalid_image",
    "invalid_base64_image": "invalid_image",
    "image_too_small": "invalid_image",
    "image_parse_error": "invalid_image",
    "invalid_image_mode": "invalid_image",
    "image_file_too_large": "image_too_large",
    "unsupported_image_media_type": "invalid_image",
    "empty_image_file": "invalid_image",
    "failed_to_download_image": "invalid_image_url",
    "image_file_not_found": "invalid_image",
    "image_content_policy_violation": "invalid_prompt",
    "bio_policy": "invalid_prompt",
    "misalignment_policy_violation": "invalid_prompt",
    "previous_response_not_found": "invalid_prompt",
}
SOCKET_AGED = "websocket_connection_limit_reached"  # another socket will work
# 407 comes from a proxy; 412 is Fireworks' for a suspended account; 421: the name is another
# server's; 451: it does not serve this place.
_REFUSED_STATUS = (401, 402, 403, 404, 405, 407, 412, 421, 426, 451)
_QUOTING_STATUS = (401, 403)  # their messages may quote a key, which no log may have
_LIMIT_STATUS = (408, 409, 425, 429)
_OVERLOADED_STATUS = (498, 503, 529)  # 498: Groq's flex tier without capacity
_OWN_STATUS = (424, *_OVERLOADED_STATUS)  # the server's own faults; 424: TGI's of a generation
# "try again in 7m12.5s" (OpenAI, Groq), "retry after 6 seconds" (Azure), "retry in 37.1s" (Gemini).
_WAIT_IN_WORDS = re.compile(
    r"(?:try again|retry)\s+(?:in|after)\s+(?=\d)"
    r"(?:(\d+)h)?(?:(\d+)m(?!s|il))?(?:(\d+(?:\.\d+)?)\s*(ms|milli|s))?",
    re.IGNORECASE,
)
_MAX_PARAM_CHARS = 200

# vLLM and SGLang, Anthropic, and TGI say it so, in lower case.
_TOO_LONG = ("context length", "prompt is too long", "`inputs` tokens + `max_new_tokens`")
_OF_ACCOUNT = ("api key not valid", "credit balance is too low")  # Gemini, Anthropic

Blame = Literal["upstream", "limit", "request", "nobody"]

# Fields of chat completions by the names that they have in Responses.
_CHAT_PARAMS = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "reasoning_effort": "reasoning.effort",
    "response_format": "text.format",
}


class Failure(Exception):  # noqa: N818 -- an outcome that travels as an exception
    """Says why an upstream did not serve a request.

    `blame` names who is at fault: "upstream" counts against its health, a "limit" pauses its use,
    "request" is the client's fault, and "nobody" means a stale socket.
    """

    def __init__(
        self,
        error: BackendError,
        *,
        blame: Blame = "upstream",
        unused: bool = False,
        overrun: bool = False,
        refused: bool = False,
        code: str | None = None,
        told: str = "",
    ) -> None:
        super().__init__(str(error))
        self.error = error
        self.blame = blame
        self.unused = unused  # it certainly generated and charged nothing
        self.overrun = overrun  # more came than the request allows; what came before is the answer
        self.refused = refused  # this server will answer the same again; another one may not
        self.code = code  # the server's own, if the request is invalid
        self.told = told or error.message  # what the operator may read, and no client

    def hiding(self, hidden: Callable[[str], str]) -> "Failure":
        """Takes what is `hidden` out of the server's words in it, and returns it."""
        error = self.error
        self.error = BackendError(
            error.backend,
            error.code,
            hidden(error.message),
            retryable=error.retryable,
            param=None if error.param is None else hidden(error.param),
            retry_after_us=error.retry_after_us,
        )
        self.args, self.told = (str(self.error),), hidden(self.told)
        return self


class WireError(msgspec.Struct, frozen=True, gc=False):
    """Is an error as servers write it; all fields are optional, as servers differ."""

    message: str | None = None
    code: str | int | None = None
    type: str | None = None
    headers: dict[str, Any] | None = None
    param: str | None = None


class _Body(msgspec.Struct, frozen=True, gc=False):
    error: WireError | str | None = None
    message: Any = None  # a text but for Mistral's, which may be an object
    detail: Any = None  # FastAPI's: a text, or what is wrong of each field
    # Of an error that is not nested: Cerebras', Mistral's, older vLLM's.
    code: str | int | None = None
    type: str | None = None
    param: str | None = None


def broken(backend: str, message: str, *, unused: bool = False, stale: bool = False) -> Failure:
    """Makes the failure of a broken connection or an invalid response."""
    error = BackendError(backend, "server_error", message, retryable=True)
    return Failure(error, blame="nobody" if stale else "upstream", unused=unused)


def too_much(backend: str, message: str) -> Failure:
    """Makes the failure of an answer that is larger than its request allows."""
    error = BackendError(backend, "server_error", message, retryable=False)
    return Failure(error, blame="nobody", overrun=True)


def refused_size(backend: str, num_bytes: int) -> Failure:
    """Makes the failure of a request that the server takes for too large."""
    message = f"the upstream takes no request of {num_bytes:,} bytes"
    error = BackendError(backend, "invalid_prompt", message, retryable=False)
    return Failure(error, blame="request", unused=True)


def overloaded(backend: str, message: str) -> Failure:
    """Makes the failure of a backend without room; nobody is at fault."""
    error = BackendError(backend, "server_is_overloaded", message, retryable=True)
    return Failure(error, blame="nobody", unused=True)


def http_failure(backend: str, status: int, body: bytes, headers: Mapping[str, str]) -> Failure:
    """Classifies a response other than 200; `headers` must be in lower case."""
    return _failure(backend, status, error_in(body), headers)


def event_failure(
    backend: str,
    error: WireError,
    *,
    status: int | None = None,
    headers: dict[str, Any] | None = None,
) -> Failure:
    """Classifies an `error` event, a `response.failed`, or an error chunk."""
    known = {name.lower(): str(value) for name, value in (error.headers or headers or {}).items()}
    return _failure(backend, status or _status_of(error), error, known, in_band=True)


def _failure(
    backend: str,
    status: int,
    wire: WireError,
    headers: Mapping[str, str],
    *,
    in_band: bool = False,
) -> Failure:
    message = told = f"the upstream {'failed' if in_band else f'answered {status}'}"
    if wire.message:
        message += f": {wire.message[:MAX_MESSAGE_CHARS]}"
    code = wire.code if isinstance(wire.code, str) else None
    if code == "insufficient_quota" or (status == 400 and _is_of_account(wire)):
        status = 402
    ours, retry_after_us, param = "server_error", None, None
    blame: Blame = "upstream"
    retryable = unused = True
    redirects = 300 <= status < 400
    refused = code != SOCKET_AGED and (redirects or status in _REFUSED_STATUS)
    if code == SOCKET_AGED:
        blame = "nobody"
    elif refused:
        # The fault is our key's, our bill's or our configuration's: the client cannot fix it and
        # must not see it. These messages quote keys, too.
        message = told = f"the upstream refuses this gateway ({status})"
        if redirects:
            message = told = f"the upstream answered {status}, a redirect, and none is followed"
        elif wire.message and status not in _QUOTING_STATUS:
            told += f": {wire.message[:MAX_MESSAGE_CHARS]}"
    elif status in _LIMIT_STATUS:
        ours, blame = "rate_limit_exceeded", "limit"
        retry_after_us = _retry_after_us(headers)
        if retry_after_us is None:
            retry_after_us = _wait_in_words_us(wire.message or "")
    elif 400 <= status < 500 and status not in _OWN_STATUS:
        ours = code if code in CLIENT_CODES else _OF_REQUEST.get(code or "", "invalid_prompt")
        if _is_too_long(wire):
            ours = "context_length_exceeded"
        blame, retryable, param = "request", False, _param_of(wire.param)
    else:
        if status in _OVERLOADED_STATUS or code in ("server_is_overloaded", "slow_down"):
            ours = "server_is_overloaded"
        retry_after_us, unused = _retry_after_us(headers), not in_band
    error = BackendError(
        backend, ours, message, retryable=retryable, param=param, retry_after_us=retry_after_us
    )
    kept = code if refused or not retryable else None
    told = told if refused else message
    return Failure(error, blame=blame, unused=unused, refused=refused, code=kept, told=told)


def _param_of(param: str | None) -> str | None:
    """Translates the name of the invalid field to Responses.

    Items and messages are not numbered alike, so of chat's `messages[3]` only the field is left.
    """
    if not param:
        return None
    ours = _CHAT_PARAMS.get(re.split(r"[.\[]", param, maxsplit=1)[0])
    return ours or param[:_MAX_PARAM_CHARS]


def _is_too_long(wire: WireError) -> bool:
    """Returns whether the prompt is too long; llama.cpp has a type for it, others text."""
    words = (wire.message or "").lower()
    return wire.type == "exceed_context_size_error" or any(said in words for said in _TOO_LONG)


def _is_of_account(wire: WireError) -> bool:
    """Returns whether a 400 is about our key or our bill, as Gemini's and Anthropic's may be."""
    words = (wire.message or "").lower()
    return any(said in words for said in _OF_ACCOUNT)


def _status_of(wire: WireError) -> int:
    code = wire.code
    if isinstance(code, str) and code.isdecimal() and len(code) == len("429"):
        code = int(code)  # Azure
    if isinstance(code, int) and 300 <= code < 600:
        return code  # llama.cpp, vLLM
    if code == "rate_limit_exceeded" or wire.type == "rate_limit_error":
        return 429
    if code == "invalid_api_key":  # its type is that of invalid requests
        return 401
    if wire.type == "overloaded_error":  # Anthropic
        return 529
    if (
        wire.code in CLIENT_CODES
        or wire.code in _OF_REQUEST
        or wire.type == "invalid_request_error"
    ):
        return 400
    return 500


def error_in(body: bytes) -> WireError:
    """Reads an error's body in any shape; not all servers write JSON."""
    try:
        found = _body(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return WireError(body.decode("utf-8", "replace").strip() or None)
    if isinstance(found.error, WireError):
        return found.error
    words = found.error or _words(found.message) or _words(found.detail)
    return WireError(words, found.code, found.type, param=found.param)


def _words(said: Any) -> str | None:
    if isinstance(said, str | None):
        return said
    return msgspec.json.encode(said).decode()


def _body(body: bytes) -> _Body:
    try:
        return msgspec.json.decode(body, type=_Body)
    except msgspec.ValidationError:
        found = msgspec.json.decode(body)
        if isinstance(found, list) and len(found) == 1:  # Gemini's
            (found,) = found
        return fitted(found, _Body, ("error", "message"))


def _wait_in_words_us(message: str) -> int | None:
    """Reads the wait from a message's text, as OpenAI's state it where headers cannot go."""
    found = _WAIT_IN_WORDS.search(message)
    if found is None or not any(found.groups()):
        return None
    hours, minutes, number, unit = found.groups()
    value_us = float(number or 0) * (1e6 if (unit or "s").lower() == "s" else 1e3)
    # Not as integers: those of so many digits are an error, and too large is only no wait.
    value_us += (float(hours or 0) * 60 + float(minutes or 0)) * 60e6
    return int(value_us) if value_us < 1e12 else None


def _retry_after_us(headers: Mapping[str, str]) -> int | None:
    """Reads `retry-after-ms`, else `retry-after`: seconds, or a time by the server's own clock."""
    for name, unit_us in (("retry-after-ms", 1e3), ("retry-after", 1e6)):
        try:
            value = float(headers.get(name, ""))
        except ValueError:
            continue
        if 0 <= value < 1e6:
            return int(value * unit_us)
    try:
        until = parsedate_to_datetime(headers.get("retry-after", ""))
        wait_s = (until - parsedate_to_datetime(headers.get("date", ""))).total_seconds()
    except (ValueError, TypeError, OverflowError):  # no date, or one with a zone and one without
        return None
    return int(max(0.0, wait_s) * 1e6) if wait_s < 1e6 else None
