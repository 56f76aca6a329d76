"""Supports the scripts: gateways with engines and upstreams that fail as told, under real alerts.

A Redis, three gateways (over two upstreams, over a linked engine, with engines of its own),
Prometheus with our rules every 5 s, Alertmanager with deploy/alertmanager.yml, and its webhook.
"""

import asyncio
import contextlib
import json
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tests.accept.flaky_upstream import FlakyUpstream
from tests.e2e.gateway_process import GatewayProcess
from tests.e2e.monitoring import Webhook, alertmanager, alertmanager_binary, prometheus, tool
from tests.integration.redis_fleet import Server, running
from tests.ports import free_port

INTERVAL = "5s"  # as deploy/prometheus.yml has it
LINK_KEY = "sk-link-of-the-test"
KEY, NARROW_KEY = "sk-of-the-test", "sk-of-a-narrow-tenant"
ADMIN_KEY = "sk-admin-of-the-alerts-test"
PAUSE_S = 0.5  # between two tasks of a client

TENANTS = f"""
[[tenants]]
id = "dev"
keys = ["{KEY}"]
limits.fast = {{ requests_per_min = 60000, tokens_per_min = 200000000, max_concurrent = 256 }}
limits.deep = {{ requests_per_min = 60000, tokens_per_min = 200000000, max_concurrent = 256 }}

[[tenants]]
id = "narrow"
keys = ["{NARROW_KEY}"]
limits.fast = {{ requests_per_min = 60000, tokens_per_min = 200000000, max_concurrent = 1 }}
"""
UPSTREAM = """
[[backends]]
kind = "upstream"
name = "{name}"

[backends.options]
group = "{group}"
model = "lanewise-{group}"
upstream_model = "any"
base_url = "http://127.0.0.1:{port}/v1"
protocol = "chat"
eject_after = 1000
"""
LINK = """
[[backends]]
kind = "link"
name = "far-wafer"

[backends.options]
url = "ws://127.0.0.1:{port}/v1/link"
key = "{key}"
group = "fast"
model = "lanewise-fast"

[[backends]]
kind = "gpu"
name = "gpu"
"""


def missing() -> str:
    """Names what the scripts cannot do without, and this machine has not; empty: nothing."""
    found = {"prometheus": tool("prometheus"), "alertmanager": alertmanager_binary()}
    return ", ".join(name for name, path in found.items() if path is None)


@dataclass
class Watched:
    """Holds the processes, and what the webhook was told."""

    folder: Path
    redis: Server
    steady: FlakyUpstream  # of the first gateway's fast group
    flaky: FlakyUpstream  # of its deep group
    webhook: Webhook
    gateways: dict[str, GatewayProcess] = field(default_factory=dict)
    engine: GatewayProcess | None = None
    engine_port: int = 0
    url: str = ""  # Prometheus's

    def start(self, name: str, port: int | None = None) -> None:
        """Starts a gateway, or starts it again on its port."""
        config = self.folder / f"{name}.toml"
        text = TENANTS
        if name == "upstreams":
            for group, upstream in (("fast", self.steady), ("deep", self.flaky)):
                text += UPSTREAM.format(name=group, group=group, port=upstream.port)
        elif name == "linked":
            text += LINK.format(port=self.engine_port, key=LINK_KEY)
        config.write_text(text)
        redis = f"redis://127.0.0.1:{self.redis.port}"
        arguments = ("--config", str(config), "--redis", redis)
        environ = {"LANEWISE_ADMIN_KEY": ADMIN_KEY}
        gateway = GatewayProcess(self.folder, *arguments, port=port, environ=environ)
        gateway.wait_until_ready()
        self.gateways[name] = gateway

    def start_engine(self) -> None:
        """Starts the linked engine, or starts it again on its port."""
        self.engine_port = self.engine_port or free_port()
        self.engine = GatewayProcess(
            self.folder, "--key", LINK_KEY, engine="wafer", port=self.engine_port
        )

    def stop(self) -> None:
        """Stops all gateways and the engine."""
        for process in (*self.gateways.values(), self.engine):
            if process is not None and process.process.poll() is None:
                process.process.send_signal(signal.SIGTERM)
                process.process.wait(60.0)


@contextlib.asynccontextmanager
async def watched(seed: int) -> AsyncIterator[Watched]:
    """Starts everything; ends it in reverse order."""
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lw-alerts-")))
        redis = Server(folder)
        stack.enter_context(running(redis))
        redis.ask("PING")
        steady = await stack.enter_async_context(FlakyUpstream.running(seed))
        flaky = await stack.enter_async_context(FlakyUpstream.running(seed + 1))
        webhook = stack.enter_context(Webhook().serving())
        here = Watched(folder, redis, steady, flaky, webhook)
        stack.callback(here.stop)
        here.start_engine()
        for name in ("upstreams", "linked", "own"):
            await asyncio.to_thread(here.start, name)
        told = stack.enter_context(alertmanager(folder, webhook))
        targets = [f"127.0.0.1:{gateway.port}" for gateway in here.gateways.values()]
        here.url = stack.enter_context(
            prometheus(folder, targets, interval=INTERVAL, alertmanager=told)
        )
        yield here


async def ask_for_ever(
    base_url: Callable[[], str],
    model: str,
    key: str = KEY,
    pause_s: float = PAUSE_S,
    words: int = 20,
) -> None:
    """Sends one small task after the other until cancelled, whatever becomes of them."""
    headers = {"authorization": f"Bearer {key}"}
    number = 0
    async with httpx.AsyncClient(timeout=30.0) as client:
        while True:
            number += 1
            # Each a conversation of its own: a canary takes a share of those.
            words_of_it = f"Count to {number} for {id(client)}."
            body = {"model": model, "input": words_of_it, "max_output_tokens": words}
            with contextlib.suppress(httpx.HTTPError):
                await client.post(f"{base_url()}/responses", json=body, headers=headers)
            await asyncio.sleep(pause_s)


async def put_in_force(gateway: GatewayProcess, document: str) -> None:
    """Stores a policy and puts it in force on all gateways."""
    url = f"{gateway.url}/admin/policies"
    headers = {"authorization": f"Bearer {ADMIN_KEY}"}
    async with httpx.AsyncClient(headers=headers, timeout=30.0) as client:
        stored = await client.post(url, json={"document": document, "comment": "a test"})
        version = json.loads(stored.raise_for_status().content)["version"]
        put = await client.post(f"{url}/{version}/activate", json={"expected": None})
        put.raise_for_status()


async def until_told(
    webhook: Webhook, name: str, *, firing: bool, since_s: float, limit_s: float
) -> float | None:
    """Returns how long after a moment the webhook heard so of the alert; None: too long."""
    while (at_s := webhook.when(name, firing=firing, since_s=since_s)) is None:
        if time.monotonic() - since_s > limit_s:
            return None
        await asyncio.sleep(0.1)
    return at_s - since_s
