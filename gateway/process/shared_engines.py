"""The simulated engines of several workers, in one process that all of them reach by links.

An engine inside each worker would be as many engines as there are workers, each with a queue and a
KV cache of its own: not the machines that are simulated. The process listens on loopback, for who
knows the key that its supervisor made up.

An edge: it calls other edges.
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

PATH = "/v1/link/"  # and the backend's name
FAST_RETRY_S = 0.5  # between two attempts of a link at most: the engines are next door


def simulated(config: Config) -> tuple[SimulatedConfig, ...]:
    """The backends that would run inside a gateway."""
    return tuple(backend for backend in config.backends if isinstance(backend, SimulatedConfig))


def linked(config: Config, port: int, key: str) -> Config:
    """The same with links in their place."""
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
    """The ASGI application: a link to each backend, at its own path."""

    def __init__(self, backends: Mapping[str, Backend], key: str) -> None:
        self._backends = backends
        self._authorization = f"Bearer {key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one link; whoever is not one of our workers is turned away."""
        if scope["type"] != ScopeType.WEBSOCKET:
            return
        socket = AsgiSocket(scope, receive, send)
        given = dict(scope["headers"]).get(b"authorization", b"")
        backend = self._backends.get(scope["path"].removeprefix(PATH))
        if backend is None or not hmac.compare_digest(given, self._authorization):
            await socket.close()
            return
        await socket.accept()
        await LinkServer(backend, socket).serve()
