"""Serves the simulated engines of several workers from one process, over links.

An engine inside each worker would simulate more machines than configured, each with a queue and a
KV cache of its own. The process listens on loopback, and takes only its supervisor's random key.
This is an edge.
"""

import hmac
from collections.abc import Mapping

import msgspec
from litestar.enums import ScopeType
from litestar.types import Receive, Scope, Send

from backends.contract import Backend
from backends.link.backend import LinkBackendConfig, LinkOptions
from gateway.config.backend_kinds import BackendConfig, SimulatedConfig
from gateway.config.config import Config
from gateway.process.link_server import LinkServer
from gateway.transport.asgi_socket import AsgiSocket
from gateway.transport.socket_protocol import VISIT

PATH = "/v1/link/"  # plus the backend's name
FAST_RETRY_S = 0.5  # between two attempts to connect, at most


def simulated(config: Config) -> tuple[SimulatedConfig, ...]:
    """Returns the simulated backends, which would run inside a gateway."""
    return tuple(backend for backend in config.backends if isinstance(backend, SimulatedConfig))


def linked(config: Config, port: int, key: str) -> Config:
    """Returns the configuration with links in place of simulated backends."""
    backends: list[BackendConfig] = []
    for backend in config.backends:
        if not isinstance(backend, SimulatedConfig):
            backends.append(backend)
            continue
        options = LinkOptions(
            url=f"ws://127.0.0.1:{port}{PATH}{backend.name}",
            key=key,
            group=backend.group,
            model=backend.options.model,
            window_tokens=backend.options.window_tokens,
            max_output_tokens=backend.options.max_output_tokens,
            retry_max_s=FAST_RETRY_S,
        )
        backends.append(LinkBackendConfig(backend.name, options))
    return msgspec.structs.replace(config, backends=tuple(backends))


class SharedEngines:
    """The ASGI application, with a link to each backend at its own path."""

    def __init__(self, backends: Mapping[str, Backend], key: str) -> None:
        self._backends = backends
        self._authorization = f"Bearer {key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one link; refuses clients without the key."""
        if scope["type"] != ScopeType.WEBSOCKET:
            return
        socket = AsgiSocket(scope, receive, send)
        given = dict(scope["headers"]).get(b"authorization", b"")
        backend = self._backends.get(scope["path"].removeprefix(PATH))
        if backend is None or not hmac.compare_digest(given, self._authorization):
            await socket.close()
            return
        scope["state"][VISIT].shows("supervisor")
        await socket.accept()
        await LinkServer(backend, socket).serve()
