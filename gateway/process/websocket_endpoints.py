"""Authenticates and serves the two WebSocket endpoints.

They come by the thousand after a restart, so `WebSocketEndpoints` takes them directly from ASGI,
without the framework's cost; it passes on upgrades at other paths, which are refused.
This is an edge.
"""

from collections.abc import Awaitable, Callable

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Receive, Scope, Send
from litestar.utils.path import normalize_path

from gateway.http.fast_routes import headers_of
from gateway.http.manners import ANY_ORIGIN
from gateway.http.services import Services
from gateway.http.streams import error_response
from gateway.process.link_server import LinkServer
from gateway.session.connection import Connection
from gateway.transport.asgi_socket import AsgiSocket
from gateway.transport.gc_freeze import note_opened
from gateway.transport.ids import request_id_header
from gateway.wire.agents import is_codex
from gateway.wire.errors import ProtocolError
from router.classify.task import Tenant


async def serve_responses(
    services: Services, tenant: Tenant, socket: AsgiSocket, *, is_codex: bool
) -> None:
    """Serves `/v1/responses`: the persistent connection."""
    await socket.accept([request_id_header()])
    gw = services.gw
    keys = services.access.keys
    connection = Connection(gw, services.config.server, keys, tenant, socket, is_codex=is_codex)
    gw.metrics.ws_opened()
    age = note_opened(gw.socket_ages)
    code = 1011
    try:
        code = await connection.serve()
    finally:
        gw.metrics.ws_closed(code)
        gw.socket_ages.closed(age)


async def serve_link(
    services: Services, _tenant: Tenant, socket: AsgiSocket, **_client: bool
) -> None:
    """Serves `/v1/link`: the first backend, for other gateways.

    Raises `ProtocolError` if the configuration does not offer it; nothing was sent yet.
    """
    if not services.config.server.serves_link:
        raise ProtocolError("not_found", "This server does not offer its engine.")
    await socket.accept()
    await LinkServer(next(iter(services.gw.backends.values())), socket).serve()


Serve = Callable[..., Awaitable[None]]  # of services, tenant, socket, and what the client is
_SOCKETS: dict[str, Serve] = {"/v1/responses": serve_responses, "/v1/link": serve_link}


class WebSocketEndpoints:
    """Serves the WebSockets, and passes all else on (ASGI middleware)."""

    def __init__(self, app: ASGIApp, services: Services) -> None:
        self._app = app
        self._services = services

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Is no coroutine, since its frame would live as long as the socket."""
        if scope["type"] == ScopeType.WEBSOCKET:
            serve = _SOCKETS.get(normalize_path(scope["path"]))
            if serve is not None:
                return self._serve(serve, scope, AsgiSocket(scope, receive, send))
        return self._app(scope, receive, send)

    async def _serve(self, serve: Serve, scope: Scope, socket: AsgiSocket) -> None:
        try:
            # Before the upgrade, so that clients see an HTTP status.
            tenant, codex = self._let_in(scope)
            await serve(self._services, tenant, socket, is_codex=codex)
        except ProtocolError as error:
            answer = error_response(error)
            headers = [*answer.encode_headers(), request_id_header()]
            await socket.deny(answer.status_code, headers, answer.body)

    def _let_in(self, scope: Scope) -> tuple[Tenant, bool]:
        """Authenticates the client of an upgrade, and says whether it is Codex.

        Raises `ProtocolError` if the key is not valid, or the page's origin is not allowed.
        """
        services = self._services
        headers = headers_of(scope)
        origin = headers.get("origin")
        allowed = services.config.server.allowed_origins
        if origin is not None and origin not in allowed and ANY_ORIGIN not in allowed:
            message = f"Origin '{origin[:80]}' is not in server.allowed_origins."
            raise ProtocolError("insufficient_permissions", message)
        return services.caller(scope, headers), is_codex(headers)
