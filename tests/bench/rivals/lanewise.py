"""Runs Lanewise itself, as it ships: pools in Redis, classification, routing, metrics.

The upstream stands behind both routes, once as a fast and once as a deep server, so that `auto`
has something to decide. A gateway for each protocol that the upstream is asked over.
"""

import sys
from pathlib import Path

from gateway.config.version import VERSION
from tests.bench.rivals.rival import Rival, Started, Upstream, same
from tests.e2e.gateway_process import DEVELOPMENT_KEY

REDIS_URL = "redis-url"  # a file in the scratch folder; the comparison's Redis
LIMITS = "requests_per_min = 100000000, tokens_per_min = 1000000000000, max_concurrent = 100000"
TENANT = f"""
[[tenants]]
id = "dev"
keys = ["{DEVELOPMENT_KEY}"]
tier = "development"
limits.fast = {{ {LIMITS} }}
limits.deep = {{ {LIMITS} }}
"""
BACKEND = """
[[backends]]
kind = "upstream"
name = "{group}-upstream"

[backends.options]
group = "{group}"
model = "{group}-model"
upstream_model = "fake"
base_url = "{url}/v1"
protocol = "{protocol}"
window_tokens = 131072
max_output_tokens = 65536
max_num_seqs = 256
probe_interval_s = 2
"""


def install(folder: Path) -> str:
    """Does nothing: it is the checkout that this script is in."""
    return VERSION


def over(protocol: str) -> Rival:
    """Returns the gateway whose upstream speaks that protocol (`protocol` of its options)."""

    def start(folder: Path, scratch: Path, port: int, upstream: Upstream) -> Started:
        config = scratch / f"lanewise-{protocol}.toml"
        backends = (
            BACKEND.format(group=group, url=upstream.url, protocol=protocol)
            for group in ("fast", "deep")
        )
        config.write_text(TENANT + "".join(backends))
        command = [str(Path(sys.executable).parent / "lanewise"), "serve", "--port", str(port)]
        redis_url = (scratch / REDIS_URL).read_text()
        return Started(
            [*command, "--config", str(config), "--redis", redis_url],
            {},
            base_path="/v1",
            ready_path="/metrics",
        )

    modes = {
        "responses-ws": same("auto", "responses-ws"),
        "responses": same("auto", "responses-sse"),
        "chat": same("auto", "chat-sse", "chat-json"),
    }
    return Rival("Lanewise", True, modes[protocol], install, start, key=DEVELOPMENT_KEY)


PROTOCOLS = ("responses-ws", "responses", "chat")
