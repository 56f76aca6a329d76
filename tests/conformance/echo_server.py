"""Echoes messages on the gateway's own socket stack, for `autobahn.py`.

The gateway answers a message that is not an event with an error, and binary ones with 1003, where
the conformance suite wants each back. So this application echoes; all below it is what the gateway
serves on: its HTTP and WebSocket protocol classes, its handshake, frames and direct writes.
"""

import argparse

import uvloop
from litestar.types import Receive, Scope, Send

from gateway.config.config import Config
from gateway.config.sections import ServerConfig
from gateway.logs.set_up import set_up_logging
from gateway.process.addresses import addresses
from gateway.process.server import (
    PING_INTERVAL_S,
    StoppedBySignals,
    listen,
    uvicorn_config,
)
from gateway.transport.asgi_socket import AsgiSocket
from gateway.transport.connection_limits import ConnectionLimits
from gateway.transport.keepalive import KeepAlive


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Sends every message back: text as the gateway takes it, directly where it can."""
    socket = AsgiSocket(scope, receive, send)
    await socket.accept()
    socket.take_by(lambda text: socket.write_now([text.encode()]))
    while (message := await socket.receive())["type"] == "websocket.receive":
        text = message.get("text")
        content = message["bytes"] if text is None else text.encode()
        try:
            await socket.write([content], binary=text is None)
        except ConnectionResetError:
            return  # it is closing, or its client is gone


async def _serve(port: int) -> int:
    """Serves on loopback until SIGTERM; returns the exit status."""
    config = Config(server=ServerConfig(port=port))
    set_up_logging(config.logs)
    keep_alive = KeepAlive(PING_INTERVAL_S)
    ((address, setting),) = addresses(config)
    with listen(address, setting) as listener:
        server = StoppedBySignals(
            uvicorn_config(echo, config, keep_alive),
            lambda port: print(f"echoes on {port}", flush=True),
            config,
            ConnectionLimits(config.connections, on_cut=lambda cut: None),
        )
        return await server.run_on([listener], keep_alive)


if __name__ == "__main__":
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--port", type=int, default=0)
    raise SystemExit(uvloop.run(_serve(asked.parse_args().port)))
