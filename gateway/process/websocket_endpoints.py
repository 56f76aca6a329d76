"""Authenticates and serves the two WebSocket endpoints.

They come by the thousand after a restart, so `WebSocketEndpoints` takes them directly from ASGI,
without the framework's cost; it refuses upgrades at other paths.
This is an edge.
"""

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Receive, Scope, Send
from litestar.utils.path import normalize_path

from gateway.access.subprotocols import NOTHING, Offer, read_offer
from gateway.http.fast_routes import headers_of
from gateway.http.manners import ANY_ORIGIN
from gateway.http.services import Services
from gateway.http.streams import error_response
from gateway.process.link_server import LinkServer
from gateway.session.connection import POLICY, Connection
from gateway.transport.asgi_socket import AsgiSocket
from gateway.transport.gc_freeze import note_opened
from gateway.transport.ids import request_id_header
from gateway.wire.agents import is_codex
from gateway.wire.errors import ProtocolError
from router.classify.task import Tenant


class Client(NamedTuple):
    """Says who opens a socket, and the subprotocol to answer with."""

    tenant: Tenant
    is_codex: bool
    subprotocol: str | None


async def serve_responses(services: Services, client: Client, socket: AsgiSocket) -> None:
    """Serves `/v1/responses`: the persistent connection."""
    await socket.accept([request_id_header()], client.subprotocol)
    gw, config, keys = services.gw, services.config.server, services.access.keys
    connection = Connection(
        *(gw, config, keys, client.tenant, socket),
        is_codex=client.is_codex,
        rejoins=services.rejoins,
    )
    gw.metrics.ws_opened()
    age = note_opened(gw.socket_ages)
    code = 1011
    try:
        code = await connection.serve()
    finally:
        gw.metrics.ws_closed(code)
        gw.socket_ages.closed(age)


async def serve_link(services: Services, client: Client, socket: AsgiSocket) -> None:
    """Serves `/v1/link`: the first backend, for other gateways.

    Raises `ProtocolError` if the configuration does not offer it, or the tenant may not use it;
    nothing was sent yet.
    """
    if not services.config.server.serves_link:
        raise ProtocolError("not_found", "This server does not offer its engine.")
    backend = next(iter(services.gw.backends.values()))
    if (group := backend.info.group) not in client.tenant.limits:
        message = f"This key may not use the {group} engines, of which the link's is one."
        raise ProtocolError("insufficient_permissions", message)
    await socket.accept()
    server = LinkServer(backend, socket)
    release = services.gw.key_sessions.add(client.tenant, server.lose_key)
    try:
        await server.serve()
    finally:
        release()
    if server.has_lost_key:
        with contextlib.suppress(OSError, RuntimeError):
            await socket.close(POLICY)


Serve = Callable[[Services, Client, AsgiSocket], Awaitable[None]]
_SOCKETS: dict[str, Serve] = {"/v1/responses": serve_responses, "/v1/link": serve_link}


class WebSocketEndpoints:
    """Serves the WebSockets, and passes all else on (ASGI middleware)."""

    def __init__(self, app: ASGIApp, services: Services) -> None:
        self._app = app
        self._services = services

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serves a request, or passes it on; a coroutine's frame would live as long as a socket."""
        if scope["type"] == ScopeType.WEBSOCKET:
            serve = _SOCKETS.get(normalize_path(scope["path"]))
            socket = AsgiSocket(scope, receive, send)
            if serve is None:
                return _refuse(socket, _nothing_at(scope["path"]))
            return self._serve(serve, scope, socket)
        return self._app(scope, receive, send)

    async def _serve(self, serve: Serve, scope: Scope, socket: AsgiSocket) -> None:
        try:
            # Before the upgrade, so that clients see an HTTP status.
            await serve(self._services, await self._let_in(scope), socket)
        except ProtocolError as error:
            await _refuse(socket, error)

    async def _let_in(self, scope: Scope) -> Client:
        """Authenticates the client of an upgrade.

        Raises `ProtocolError` if the key or the ticket is not valid, or the page's origin is not
        allowed.
        """
        headers = headers_of(scope)
        self._check_origin(headers)
        offered = headers.get("sec-websocket-protocol")
        offer = NOTHING if offered is None else read_offer(offered)
        tenant = await self._tenant(scope, headers, offer)
        return Client(tenant, is_codex(headers), offer.plain)

    def _check_origin(self, headers: Mapping[str, str]) -> None:
        """Refuses pages of others: a browser opens sockets to any server, and says whose page."""
        origin = headers.get("origin")
        allowed = self._services.config.server.allowed_origins
        if origin is None or origin in allowed or ANY_ORIGIN in allowed:
            return
        host = headers.get("host", "").lower()
        if origin.lower() not in (f"http://{host}", f"https://{host}"):
            message = f"Origin '{origin[:80]}' is not in server.allowed_origins."
            raise ProtocolError("insufficient_permissions", message)

    async def _tenant(self, scope: Scope, headers: Mapping[str, str], offer: Offer) -> Tenant:
        services = self._services
        if offer.ticket:
            holder = await services.socket_tickets.take(offer.ticket)
            keys, now_s = services.access.keys, services.gw.wall_s()
            tenant = keys.holder(holder.tenant_id, holder.key_id, now_s)
            services.count_connection(scope, tenant.key_id, tenant.id)
            return tenant
        if offer.key:
            of_page = {name: headers[name] for name in ("origin", "host") if name in headers}
            headers = {**of_page, "authorization": f"Bearer {offer.key}"}
        return services.caller(scope, headers)


def _nothing_at(path: str) -> ProtocolError:
    message = f"No WebSocket is served at {path[:80]}. Connect to /v1/responses."
    return ProtocolError("not_found", message)


async def _refuse(socket: AsgiSocket, error: ProtocolError) -> None:
    answer = error_response(error)
    headers = [*answer.encode_headers(), request_id_header()]
    await socket.deny(answer.status_code, headers, answer.body)
