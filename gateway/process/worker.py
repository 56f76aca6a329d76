"""`python -m gateway.process.worker FD`: a process of the supervisor, which configures it.

A worker is a gateway without the embedded Redis and the simulated engines. It ends with its
supervisor. This is an edge.
"""

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import msgspec
import uvloop

from gateway.admin.routes import health_of
from gateway.config.config import Config
from gateway.config.sections import ConfigError
from gateway.fleet.channel import Answers, Channel, ChannelClosed, begun
from gateway.fleet.fleet import Fleet
from gateway.fleet.wire import Begin, Serving
from gateway.http.services import Services
from gateway.process.addresses import addresses, listen
from gateway.process.app import make_backends, services
from gateway.process.server import (
    PING_INTERVAL_S,
    StoppedBySignals,
    connection_limits,
    serve_on,
    set_up_logging,
    uvicorn_config,
)
from gateway.process.shared_engines import SharedEngines
from gateway.transport.keepalive import KeepAlive
from router.redis.cancelling import cancelled

logger = logging.getLogger("lanewise")

EXIT_CONFIG = 2  # a start that would fail again


def main() -> int:
    """Runs until the supervisor stops it or is gone; returns the exit status."""
    set_up_logging()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the supervisor handles it
    try:
        return uvloop.run(_run(socket.socket(fileno=int(sys.argv[1]))))
    except ConfigError as error:
        print(f"lanewise: {error}", file=sys.stderr)
        return EXIT_CONFIG
    except ChannelClosed:
        return 1


async def _run(end: socket.socket) -> int:
    begin, channel = await begun(end)
    listening = asyncio.create_task(channel.run())
    try:
        config = msgspec.json.decode(begin.config, type=Config)
        if begin.number == 0:
            return await _serve_engines(config, begin, channel, listening)
        return await _serve_gateway(config, begin, channel, listening)
    finally:
        await cancelled(listening)


@contextmanager
def _listeners(begin: Begin, config: Config) -> Iterator[list[socket.socket]]:
    """Opens the supervisor's listeners, or new ones on the shared ports."""
    with ExitStack() as stack:
        if begin.listeners:
            opened = (socket.socket(fileno=number) for number in begin.listeners)
        else:
            opened = (listen(*each, is_shared=True) for each in addresses(config))
        yield [stack.enter_context(listener) for listener in opened]


async def _serve_gateway(
    config: Config, begin: Begin, channel: Channel, listening: "asyncio.Task[None]"
) -> int:
    async with services(config, Fleet(channel, begin.number, begin.engines)) as made:
        channel.answers = _answers(made)
        with _listeners(begin, config) as listeners:
            status = await serve_on(
                listeners, made, lambda _: channel.send(Serving()), stop_after=listening
            )
        await channel.leave(await made.gw.metrics.snapshot())
        return status


def _answers(made: Services) -> Answers:
    async def health() -> bytes:
        return msgspec.json.encode(health_of(made))

    async def decisions() -> bytes:
        recorder = made.gw.recorder
        return msgspec.json.encode(list(recorder.recent) if recorder else [])

    return {"metrics": made.gw.metrics.snapshot, "health": health, "decisions": decisions}


async def _serve_engines(
    config: Config, begin: Begin, channel: Channel, listening: "asyncio.Task[None]"
) -> int:
    backends = make_backends(config.backends)
    keep_alive = KeepAlive(PING_INTERVAL_S)
    host = SharedEngines(backends, begin.key)
    server = StoppedBySignals(
        uvicorn_config(host, config, keep_alive),
        lambda _: channel.send(Serving()),
        config,
        connection_limits(config),
    )
    listening.add_done_callback(lambda _: server.stop())
    try:
        with _listeners(begin, config) as listeners:
            return await server.run_on(listeners, keep_alive)
    finally:
        for backend in backends.values():
            await backend.close()


if __name__ == "__main__":
    sys.exit(main())
