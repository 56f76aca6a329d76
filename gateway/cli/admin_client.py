"""Calls the admin API from the command line: one HTTP request per call. This is an edge."""

import argparse
import http.client
import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from gateway.cli.command import argument
from gateway.config.command_error import CommandError
from gateway.config.development import DEVELOPMENT_ADMIN_KEY
from gateway.config.first_key import ADMIN_KEY_VARIABLE, secret_of
from gateway.config.http_address import DEFAULT_URL, http_url, opener_for
from gateway.config.version import VERSION

TIMEOUT_S = 30.0
EVENTS_TIMEOUT_S = 5.0  # without an event; one comes each second at least
# What key a refused request had, by whether --admin-key was given, and whether any was.
_SENT = {
    (True, True): "This is what --admin-key gave.",
    (False, True): f"${ADMIN_KEY_VARIABLE} or its file gave it; --admin-key gives another.",
    (False, False): "None was given, so the development one was sent; --admin-key gives another.",
}
_FAULTS = (OSError, ValueError, http.client.HTTPException)


class AdminError(CommandError):
    """The gateway refused a request, or none answers."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status  # HTTP's; None: no response


class _Answer(dict[str, Any]):
    """Is an object of an answer; during an upgrade the gateway may be older than who asks it."""

    def __missing__(self, name: str) -> Any:
        raise AdminError(
            f"the gateway's answer has no {name!r}, so it is of another release than this command "
            f"({VERSION}): use the command that came with the gateway"
        )


ADMIN_ARGUMENTS = (  # the same for every command that administers
    argument(
        "--url",
        help=f"the gateway's admin address (default: $LANEWISE_ADMIN_URL, else $LANEWISE_URL, else "
        f"{DEFAULT_URL}; a public gateway's is http://127.0.0.1:8081 by default)",
    ),
    argument(
        "--admin-key",
        metavar="KEY",
        help="(default: $LANEWISE_ADMIN_KEY or its file's, else the development admin key)",
    ),
    argument("--json", action="store_true", help="print the answer as JSON"),
)


def ask_admin(
    arguments: argparse.Namespace,
    method: str,
    *path: str,
    body: dict[str, Any] | None = None,
    query: Mapping[str, str | Sequence[str]] | None = None,
) -> Any:
    """Requests `/admin/<path>`, quoting the path's parts, and returns the decoded response.

    Raises `AdminError` if the gateway refused, or none answers.
    """
    content = None if method in ("GET", "DELETE") else msgspec.json.encode(body or {})
    with _sent(arguments, method, path, TIMEOUT_S, content, query) as answer:
        return json.loads(answer.read(), object_hook=_Answer)


@contextmanager
def admin_events(arguments: argparse.Namespace) -> Iterator[Iterator[bytes]]:
    """Opens `/admin/events` and yields its lines.

    Raises `AdminError` as `ask_admin` does, and after `EVENTS_TIMEOUT_S` without a line.
    """
    with _sent(arguments, "GET", ("events",), EVENTS_TIMEOUT_S) as answer:
        yield iter(answer)


@contextmanager
def _sent(
    arguments: argparse.Namespace,
    method: str,
    path: tuple[str, ...],
    timeout_s: float,
    content: bytes | None = None,
    query: Mapping[str, str | Sequence[str]] | None = None,
) -> Iterator[Any]:
    """Sends a request, and yields its answer, which may break off while it is read."""
    environ = os.environ
    base = arguments.url or environ.get("LANEWISE_ADMIN_URL") or environ.get("LANEWISE_URL")
    base = http_url(base or DEFAULT_URL, "--url")
    own_key = arguments.admin_key or secret_of(environ, ADMIN_KEY_VARIABLE)
    admin_key = own_key or DEVELOPMENT_ADMIN_KEY
    if not (admin_key.isascii() and admin_key.isprintable()):
        raise AdminError("the admin key has characters that no key has: give it without line ends")
    url = "/".join([base, "admin", *(quote(part, safe="") for part in path)])
    if query:
        url += f"?{urlencode(query, doseq=True)}"
    headers = {"authorization": f"Bearer {admin_key}", "content-type": "application/json"}
    try:
        request = urllib.request.Request(url, content, headers, method=method)
        answer = opener_for(base).open(request, timeout=timeout_s)
    except urllib.error.HTTPError as error:
        message = _refusal(error, base)
        if error.code == 401:
            message += f" {_SENT[bool(arguments.admin_key), bool(own_key)]}"
        raise AdminError(message, error.code) from None
    except _FAULTS as error:  # a bad URL, no listener, or no gateway
        reason = getattr(error, "reason", error)
        raise AdminError(
            f"no gateway answers at {base}: {reason}. `lanewise serve` starts one; --url or "
            "$LANEWISE_ADMIN_URL names another"
        ) from None
    with answer:
        try:
            yield answer
        except _FAULTS as error:
            raise AdminError(f"the answer of {base} broke off: {error}") from None


def _refusal(error: urllib.error.HTTPError, base: str) -> str:
    with error:
        content = error.read()
    try:
        message: str = msgspec.json.decode(content)["error"]["message"]
    except (msgspec.DecodeError, KeyError, TypeError):
        return f"{base} answers as no gateway does: {error.code} {error.reason}"
    return message
