"""Four gateways at five times a tenant's limits for a minute, one round to Redis in twenty late.

Requests, tokens and tasks at once stay within the limits and the bound that docs/pools.md states,
and 2 s after the last task no place is taken.
"""

import asyncio
import tempfile
import time
from pathlib import Path

from tests.integration.late_gateways import overload
from tests.integration.redis_fleet import Server, running

LIMIT_S = 180
SECONDS = 60.0


def main() -> bool:
    """Prints the figures and the seed; returns whether all held."""
    seed = time.time_ns() % 2**32
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder))
        with running(server):
            server.ask("PING")
            figures = asyncio.run(overload(server, SECONDS, seed))
    print(f"seed {seed}: {figures}")
    return figures.held
