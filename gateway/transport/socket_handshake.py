"""Handles the WebSocket handshake that nearly all clients make, without a second parser.

uvicorn serializes the parsed head of an upgrade for `websockets`, which parses it again: a fifth of
the cost of accepting a socket. Most upgrades use no options: `plain_key` recognizes them by their
headers (RFC 6455 4.2.1), and `answer` makes the whole response (4.2.2). All others, and errors, go
through `websockets`, the plain twin; `tests/unit/gateway/transport/test_socket_protocol.py`
compares the two.
"""

import base64
import hashlib
import re
from collections.abc import Iterable

Headers = Iterable[tuple[bytes, bytes]]

# The limits of `websockets` (its `http11`).
_MAX_HEADERS = 128
_MAX_HEAD_BYTES = 8_192  # there it is for one line

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_is_key = re.compile(rb"[A-Za-z0-9+/]{22}==").fullmatch  # 16 bytes in base64
_TOKENS = frozenset({b"upgrade", b"keep-alive"})  # of a plain "Connection"
_DECIDING = frozenset(
    {
        *(b"connection", b"upgrade", b"sec-websocket-key", b"sec-websocket-version"),
        *(b"sec-websocket-protocol", b"origin", b"content-length", b"transfer-encoding"),
    }
)


def plain_key(method: bytes, url: bytes, headers: Headers) -> bytes | None:
    """Returns the key of a plain upgrade, or None; the headers' names are in lower case."""
    found: dict[bytes, bytes] = {}
    num_headers = num_bytes = 0
    for name, value in headers:
        num_headers += 1
        num_bytes += len(name) + len(value)
        if name in _DECIDING:
            if name in found:
                return None
            found[name] = value
    if method != b"GET" or not url.isascii() or num_headers > _MAX_HEADERS:
        return None
    if num_bytes + len(url) > _MAX_HEAD_BYTES - 256:
        return None
    key = found.pop(b"sec-websocket-key", b"")
    tokens = {token.strip().lower() for token in found.pop(b"connection", b"").split(b",")}
    if b"upgrade" not in tokens or not tokens <= _TOKENS:
        return None
    is_13 = found.pop(b"sec-websocket-version", b"") == b"13"
    if not is_13 or found.pop(b"upgrade", b"").lower() != b"websocket" or not _is_key(key):
        return None
    found.pop(b"origin", None)  # it may come once
    return None if found else key


def can_be_parsed(headers: Headers) -> bool:
    """Says whether `websockets` reads the headers of its own: it fails at letters beyond ASCII."""
    return all(
        value.isascii()
        for name, value in headers
        if name.startswith(b"sec-websocket-") or name in (b"connection", b"upgrade")
    )


def answer(key: bytes, headers: Headers) -> bytes:
    """Returns the response that opens the socket, with further headers of ours."""
    accept = base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest())
    ours = b"".join(b"%b: %b\r\n" % header for header in headers)
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: %b\r\n%b\r\n" % (accept, ours)
    )
