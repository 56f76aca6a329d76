"""`lanewise serve` runs the gateway, in one process or several.

It imports by name, so that help needs no configuration, and a wrong configuration is told before
the server is imported, which takes seconds. This is an edge.
"""

import argparse
import contextlib
import gc
import os
import signal
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from typing import Any

from gateway.cli.command import Command, argument


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Makes no collections: what is imported stays, and scanning it is a sixth of the start."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _end(*_: Any) -> None:
    """Ends the process, whatever it imports: an exception can be lost in what imports call."""
    os._exit(0)


def _take_signals() -> None:
    """Ends a start upon a signal to stop, until the server takes it; nothing is to be taken back.

    The first process of a container would not end: the kernel gives it no default action.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until it can be handled
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)


def _load(arguments: argparse.Namespace) -> Any:
    config = import_module("gateway.config.config")
    return config.load_config(
        config.read_config(arguments.config),
        os.environ,
        name=arguments.config or "configuration",
        host=arguments.host,
        port=arguments.port,
        admin=arguments.admin_address,
        redis_url=arguments.redis,
        workers=arguments.workers,
        makes_key=True,
    )


def _serve(arguments: argparse.Namespace) -> int:
    _take_signals()
    load = partial(_load, arguments)
    with _uncollected():
        config = load()
        is_one = config.server.workers <= 1
        module = import_module(f"gateway.process.{'server' if is_one else 'supervisor'}")
    status: int = (module.serve if is_one else module.supervise)(config, load)
    return status


COMMAND = Command(
    "lanewise serve --config lanewise.toml --port 9000",
    (
        argument("--config", metavar="FILE", help="TOML; without it, development defaults"),
        argument("--host", help="address to listen on (default 127.0.0.1)"),
        argument("--port", type=int, help="port to listen on (default 8080; 0: any)"),
        argument(
            "--admin-address",
            metavar="HOST:PORT",
            help="of metrics, schema and admin (default: the same port; beside a public --host, "
            "127.0.0.1 and the next port)",
        ),
        argument(
            "--redis",
            metavar="URL",
            help="redis://, rediss:// or unix:// (default: an embedded Redis)",
        ),
        argument(
            "--workers",
            type=int,
            metavar="N",
            help="processes that share the port (default 1)",
        ),
    ),
    run=_serve,
)
