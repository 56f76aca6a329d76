"""Supports the scenarios: a Redis, an engine that is reached over the link, and gateways."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from router.pools.pools import BUDGET_US
from tests.e2e.gateway_process import GatewayProcess, Samples
from tests.integration.redis_fleet import Server, running

CANARY = "zk-canary-7f3a"  # stands in every prompt, and may stand in no log and no metric
STEADY_KEY, NOISY_KEY = "sk-of-a-steady-tenant", "sk-of-a-noisy-tenant"
ENGINE_KEY = "sk-engine-of-the-fleet"
KEY_ENV = "LANEWISE_CHAOS_UPSTREAM_KEY"
TENANTS = {"steady": STEADY_KEY, "noisy": NOISY_KEY}
AMPLE = "requests_per_min = 6000000, tokens_per_min = 900000000, max_concurrent = 512"
LEASE_KEY, POOL_KEYS = "lw1:{{{}}}:lease", ("lw1:{{{}}}:p:fast", "lw1:{{{}}}:p:deep")
UP_TIMEOUT_S = 60.0  # bounds a hang

_TENANT = """
[[tenants]]
id = "{id}"
keys = ["{key}"]
limits.fast = {{ {limits} }}
limits.deep = {{ {limits} }}
"""
_LINK = f"""
[[backends]]
kind = "link"
name = "far-wafer"
options = {{{{ url = "ws://127.0.0.1:{{port}}/v1/link", key = "{ENGINE_KEY}", \
model = "lanewise-fast" }}}}

[[backends]]
kind = "gpu"
"""


def configuration(
    engine_port: int, limits: dict[str, str] | None = None, top: str = "", more: str = ""
) -> str:
    """Returns two tenants and a linked engine; `limits` by tenant, `top` and `more` are TOML."""
    given = limits or {}
    tenants = (
        _TENANT.format(id=name, key=key, limits=given.get(name, AMPLE))
        for name, key in TENANTS.items()
    )
    return f"{top}\n[server]\ndrain_timeout_s = 20\n" + "".join(
        [*tenants, _LINK.format(port=engine_port), more]
    )


class Fleet:
    """Holds the processes, and knows how to start one of them again."""

    def __init__(
        self, folder: Path, redis_url: str, config: str, arguments: Sequence[str], num_up: int
    ) -> None:
        self.folder = folder
        self.gateways: list[GatewayProcess] = []
        self._config = folder / "fleet.toml"
        self._config.write_text(config)
        self._redis_url = redis_url
        self._arguments = arguments
        self._num_up = num_up
        self._environ = {
            "LANEWISE_REDIS_BUDGET_MS": str(BUDGET_US // 1_000),  # which other tests raise
            "LANEWISE_KEY_PEPPERS": "1:" + "ab" * 32,
            KEY_ENV: "sk-of-an-upstream",
        }

    async def add(self, port: int | None = None, redis_url: str = "") -> GatewayProcess:
        """Starts a gateway, and returns once its engines are up; the caller keeps its place."""
        arguments = ("--config", str(self._config), "--redis", redis_url or self._redis_url)
        gateway = GatewayProcess(
            self.folder, *arguments, *self._arguments, environ=self._environ, port=port
        )
        await asyncio.to_thread(gateway.wait_until_ready)
        await until(lambda: gateway.metrics().total("lanewise_backend_up") >= self._num_up)
        return gateway

    def kill(self, gateway: GatewayProcess) -> None:
        """Kills it as the kernel does when memory is short."""
        gateway.process.kill()
        gateway.process.wait()

    @property
    def urls(self) -> list[str]:
        return [gateway.socket_url for gateway in self.gateways]

    @property
    def logs(self) -> str:
        """Returns what all of them printed, those that ended included."""
        return "".join(path.read_text(errors="replace") for path in self.folder.glob("*.log"))


async def until(holds: Callable[[], object], timeout_s: float = UP_TIMEOUT_S) -> bool:
    """Returns once a callable says so; False, if it did not within the time."""
    loop = asyncio.get_running_loop()
    ends_s = loop.time() + timeout_s
    while loop.time() < ends_s:
        with contextlib.suppress(OSError):
            if await asyncio.to_thread(holds):
                return True
        await asyncio.sleep(0.05)
    return False


@contextlib.asynccontextmanager
async def fleet(
    folder: Path,
    redis_url: str,
    *,
    num_gateways: int = 1,
    arguments: Sequence[str] = (),
    limits: dict[str, str] | None = None,
    top: str = "",
    more: str = "",
    num_up: int = 2,
) -> AsyncIterator[Fleet]:
    """Gives an engine and gateways on a Redis; all are ended, however they are then."""
    engine = GatewayProcess(folder, "--key", ENGINE_KEY, engine="wafer")
    made: Fleet | None = None
    try:
        await asyncio.to_thread(engine.wait_until_ready)
        config = configuration(engine.port, limits, top, more)
        made = Fleet(folder, redis_url, config, arguments, num_up)
        made.gateways += await asyncio.gather(*(made.add() for _ in range(num_gateways)))
        yield made
    finally:
        for each in [*(made.gateways if made else ()), engine]:
            with contextlib.suppress(AssertionError):
                await asyncio.to_thread(each.stop)


@contextlib.asynccontextmanager
async def redis_and_fleet(
    folder: Path, num_gateways: int = 1, **options: Any
) -> AsyncIterator[tuple[Server, Fleet]]:
    """Gives the same with a Redis of its own on a loopback port."""
    server = Server(folder)
    with running(server):
        server.ask("PING")
        url = f"redis://127.0.0.1:{server.port}"
        async with fleet(folder, url, num_gateways=num_gateways, **options) as made:  # type: ignore[arg-type]
            yield server, made


def quantile_s(samples: Samples, name: str, share: float, bounds: Sequence[float]) -> float:
    """Returns the upper bound of the bucket in which a quantile lies; inf beyond the last."""
    wanted = share * samples.total(f"{name}_count")
    for bound in bounds:
        if samples.total(f"{name}_bucket", le=str(bound)) >= wanted:
            return bound
    return float("inf")
