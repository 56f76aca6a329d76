"""Lists the kinds of backends that a configuration may name, one line each.

A kind is a tagged Struct beside its backend, with its options and with `make`. This is an edge.
"""

from collections.abc import Iterable

from backends.link.backend import LinkBackendConfig
from backends.simulated.gpu import GpuBackendConfig
from backends.simulated.wafer import WaferBackendConfig
from backends.upstream.backend import UpstreamBackendConfig

SimulatedConfig = WaferBackendConfig | GpuBackendConfig  # these run inside a gateway
BackendConfig = SimulatedConfig | LinkBackendConfig | UpstreamBackendConfig

DEFAULT_BACKENDS: tuple[BackendConfig, ...] = (WaferBackendConfig(), GpuBackendConfig())


def link_names(backends: Iterable[BackendConfig]) -> frozenset[str]:
    """Returns the names of backends that are engines of their own, which other gateways share."""
    return frozenset(each.name for each in backends if isinstance(each, LinkBackendConfig))
