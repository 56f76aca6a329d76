"""`lanewise serve`.

An edge: it uses the operating system.
"""

import argparse
import os

from gateway.cli.parser import Commands, add_command
from gateway.config.config import load_config
from gateway.config.config_file import read_config
from gateway.process.server import serve
from gateway.process.supervisor import supervise


def add(commands: Commands) -> None:
    """Add `serve`."""
    parser = add_command(
        commands,
        "serve",
        "Start the gateway.",
        "lanewise serve --config lanewise.toml --port 9000",
    )
    parser.add_argument("--config", metavar="FILE", help="TOML; without it, development defaults")
    parser.add_argument("--host", help="address to listen on (default 127.0.0.1)")
    parser.add_argument("--port", type=int, help="port to listen on (default 8080; 0: any)")
    parser.add_argument(
        "--redis", metavar="URL", help="redis://, rediss:// or unix:// (default: an embedded Redis)"
    )
    parser.add_argument(
        "--workers", type=int, metavar="N", help="processes that share the port (default 1)"
    )
    parser.set_defaults(run=_serve)


def _serve(arguments: argparse.Namespace) -> int:
    config = load_config(
        read_config(arguments.config),
        os.environ,
        host=arguments.host,
        port=arguments.port,
        redis_url=arguments.redis,
        workers=arguments.workers,
    )
    return supervise(config) if config.server.workers > 1 else serve(config)
