"""Runs a gateway for hostile clients: no limit refuses them, and one tenant is not hostile."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.e2e.admin_api import ADMIN_KEY
from tests.e2e.gateway_process import DEVELOPMENT_KEY, GatewayProcess, redis_server, served
from tests.hostile.client import Target

OTHER_KEY = "sk-a-tenant-who-means-well"
_TENANT = """
[[tenants]]
id = "{id}"
keys = ["{key}"]
limits.fast = {{ requests_per_min = 6000000, tokens_per_min = 900000000, max_concurrent = 512 }}
limits.deep = {{ requests_per_min = 6000000, tokens_per_min = 900000000, max_concurrent = 512 }}
"""


@contextlib.contextmanager
def serving(folder: Path, **more: Any) -> Iterator[tuple[GatewayProcess, Target]]:
    """Serves with a Redis of its own in `folder`, and stops; what it takes is that of `served`."""
    config = folder / "hostile.toml"
    tenants = {"dev": DEVELOPMENT_KEY, "other": OTHER_KEY}
    config.write_text("".join(_TENANT.format(id=id, key=key) for id, key in tenants.items()))
    environ = {"LANEWISE_KEY_PEPPERS": "1:" + "ab" * 32}
    with (
        redis_server(folder) as url,
        served(folder, "--config", str(config), "--redis", url, environ=environ, **more) as gateway,
    ):
        yield gateway, Target(gateway.port, DEVELOPMENT_KEY, OTHER_KEY, ADMIN_KEY)
