"""Serves the simulated engines of several workers from one process, over links.

An engine inside each worker would simulate more machines than configured, each with a queue and a
KV cache of its own. The process listens on loopback, and takes only its supervisor's random key.
This is an edge.
"""

import hashlib
import hmac
from collections import Counter
from collections.abc import Iterable

import msgspec
from litestar.enums import ScopeType
from litestar.types import Receive, Scope, Send

from backends.contract import Backend
from backends.link.backend import LinkBackendConfig, LinkOptions
from gateway.config.backend_kinds import BackendConfig, SimulatedConfig
from gateway.config.config import Config
from gateway.core.backends import Backends
from gateway.process.link_server import LinkServer
from gateway.transport.asgi_socket import AsgiSocket
from gateway.transport.socket_protocol import VISIT

PATH = "/v1/link/"  # plus the backend's name and a digest of its configuration
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
            url=f"ws://127.0.0.1:{port}{_path(backend)}",
            key=key,
            group=backend.group,
            model=backend.options.model,
            window_tokens=backend.options.window_tokens,
            max_output_tokens=backend.options.max_output_tokens,
            retry_max_s=FAST_RETRY_S,
        )
        backends.append(LinkBackendConfig(backend.name, options))
    return msgspec.structs.replace(config, backends=tuple(backends))


def _path(config: BackendConfig) -> str:
    """Returns a backend's path; one that is configured otherwise is another, with another link."""
    digest = hashlib.sha256(msgspec.json.encode(config)).hexdigest()[:16]
    return f"{PATH}{config.name}/{digest}"


class SharedEngines:
    """Is the ASGI application, with a link to each backend at its own path."""

    def __init__(self, backends: Backends, configs: Iterable[BackendConfig], key: str) -> None:
        self._backends = backends
        self._by_path = {_path(config): backends[config.name] for config in configs}
        self._num_links: Counter[Backend] = Counter()
        self._authorization = f"Bearer {key}".encode()

    def replace(self, configs: tuple[BackendConfig, ...]) -> None:
        """Goes on with these engines; a removed one is closed when its last link is.

        Raises `ConfigError` if one cannot be made; then nothing has changed.
        """
        self._backends.replace(
            self._backends.prepared(configs), lambda backend: not self._num_links[backend]
        )
        self._by_path = {_path(config): self._backends[config.name] for config in configs}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one link; refuses clients without the key."""
        if scope["type"] != ScopeType.WEBSOCKET:
            return
        socket = AsgiSocket(scope, receive, send)
        given = dict(scope["headers"]).get(b"authorization", b"")
        backend = self._by_path.get(scope["path"])
        if backend is None or not hmac.compare_digest(given, self._authorization):
            await socket.close()
            return
        scope["state"][VISIT].shows("supervisor")
        await socket.accept()
        self._num_links[backend] += 1
        try:
            await LinkServer(backend, socket).serve()
        finally:
            self._num_links[backend] -= 1
