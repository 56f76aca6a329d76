"""Listens on the main and the admin address, and serves each path at its own.

This is an edge.
"""

import errno
import socket
from collections.abc import Awaitable, Callable, Sequence

import msgspec
from litestar.enums import ScopeType
from litestar.types import ASGIApp, Receive, Scope, Send
from litestar.utils.path import normalize_path

from gateway.config.config import Config
from gateway.config.sections import Address, ConfigError, admin_address
from gateway.console.routes import API_AT_ADMIN_ADDRESS, AT_ADMIN_ADDRESS
from gateway.http.streams import error_response
from gateway.transport.asgi_socket import AsgiSocket
from gateway.transport.ids import request_id_header
from gateway.wire.errors import ProtocolError

BACKLOG = 2048  # handshakes the kernel holds while the loop is busy

ADMIN_PATHS = frozenset({"metrics", "schema", "admin"})  # first segments
PUBLIC_PATHS = frozenset({"v1"})  # all else, such as health, is at both addresses

_EXPECTED = (
    "expected a name or an address of this machine, such as 127.0.0.1, 0.0.0.0 or ::, without "
    "brackets and port"
)
_ADVICE = {
    errno.EADDRINUSE: "stop what listens there, or take another port (0: any that is free)",
    errno.EACCES: "take a port from 1024 on, or give the process the right to lower ones",
    errno.EMFILE: "raise the limit of file descriptors (ulimit -n, LimitNOFILE)",
}

IsAdmin = Callable[[tuple[str, int]], bool]  # of the local address that a client connected to


def addresses(config: Config) -> list[tuple[Address, str]]:
    """Returns where to listen, the main address first, each with its settings for messages."""
    server = config.server
    found = [(Address(server.host, server.port), "server.host, server.port")]
    if (separate := admin_address(server)) is not None:
        found.append((separate, "server.admin_address"))
    return found


def with_ports(config: Config, ports: Sequence[int]) -> Config:
    """Returns the configuration with the ports that were taken, of each address."""
    server = msgspec.structs.replace(config.server, port=ports[0])
    separate = admin_address(config.server)
    if separate is not None:
        address = str(Address(separate.host, ports[1]))
        server = msgspec.structs.replace(server, admin_address=address)
    return msgspec.structs.replace(config, server=server)


def listen(address: Address, setting: str, *, is_shared: bool = False) -> socket.socket:
    """Opens a listening socket, before anything else is started since it fails most often.

    Args:
        address: Where.
        setting: Its name, for messages.
        is_shared: Other processes listen on the port as well; Linux spreads connections over them.

    Raises:
        ConfigError: The address cannot be used.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        return socket.create_server(address, family=family, backlog=BACKLOG, reuse_port=is_shared)
    except OSError as error:
        # Without what Python adds to it: the address once more, as our own object.
        why = (error.strerror or str(error)).partition(" (while attempting")[0]
        advice = _ADVICE.get(error.errno or 0, _EXPECTED)
        raise ConfigError(f"{setting}: cannot listen on {address}: {why}; {advice}") from error


def told_apart(public: socket.socket, admin: socket.socket) -> IsAdmin:
    """Returns a function that says whether a local address is the admin listener's."""
    host, port = admin.getsockname()[:2]
    if public.getsockname()[1] != port:
        return lambda server: server[1] == port
    return lambda server: server[0] == host  # two interfaces


class SplitAddresses:
    """Answers 404 for what is served at the other address (ASGI middleware)."""

    def __init__(self, app: ASGIApp, is_admin: IsAdmin) -> None:
        self._app = app
        self._is_admin = is_admin

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Passes a request on or refuses it; a coroutine's frame would live as long as a socket."""
        first = normalize_path(scope["path"]).split("/", 2)[1]
        server = scope["server"]
        is_admin = server is not None and self._is_admin((server[0], server[1] or 0))
        if first == "console":
            scope["state"][AT_ADMIN_ADDRESS] = is_admin
            if is_admin and scope["path"].startswith(f"{API_AT_ADMIN_ADDRESS}/"):
                scope["path"] = scope["path"].removeprefix("/console")
        elif first in (PUBLIC_PATHS if is_admin else ADMIN_PATHS):
            return _refuse(scope, receive, send, first, is_admin)
        return self._app(scope, receive, send)


async def _refuse(scope: Scope, receive: Receive, send: Send, first: str, is_admin: bool) -> None:
    where = "the main address" if is_admin else "the admin address"
    setting = "server.host, server.port" if is_admin else "server.admin_address"
    error = ProtocolError("not_found", f"/{first} is not served here, but on {where} ({setting}).")
    answer = error_response(error)
    headers = [*answer.encode_headers(), request_id_header()]
    if scope["type"] == ScopeType.WEBSOCKET:
        socket = AsgiSocket(scope, receive, send)
        await socket.deny(answer.status_code, headers, answer.body)
        return
    await send({"type": "http.response.start", "status": answer.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body, "more_body": False})
