"""`python -m gateway.process.worker FD` runs a process of the supervisor, which configures it.

A worker is a gateway without the embedded Redis and the simulated engines. It ends with its
supervisor. This is an edge.
"""

import asyncio
import faulthandler
import logging
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial

import msgspec
import uvloop

from gateway.admin.routes import health_of
from gateway.config.command_error import CommandError
from gateway.config.config import Config
from gateway.config.sections import ConfigError, LogsConfig
from gateway.core.backends import Backends
from gateway.fleet.channel import Answers, Channel, ChannelClosed, begun
from gateway.fleet.fleet import Fleet
from gateway.fleet.wire import Begin, Reload, Serving
from gateway.http.scrape import snapshot
from gateway.http.services import Services
from gateway.live.sources import worker_sample
from gateway.logs.set_up import set_up_logging
from gateway.logs.task_line import TaskLog
from gateway.process.addresses import addresses, listen
from gateway.process.app import services
from gateway.process.reload import apply
from gateway.process.server import (
    PING_INTERVAL_S,
    StoppedBySignals,
    connection_limits,
    serve_on,
    uvicorn_config,
)
from gateway.process.shared_engines import SharedEngines
from gateway.transport.keepalive import KeepAlive
from router.redis.cancelling import cancelled

logger = logging.getLogger("lanewise")

EXIT_CONFIG = 2  # a start that would fail again
ENGINES_WAIT_S = 10.0  # for the engines' process; then a worker serves what it can without
LOOK_AGAIN_S = 0.02


def main() -> int:
    """Runs until the supervisor stops it or is gone; returns the exit status."""
    faulthandler.enable()
    set_up_logging(LogsConfig())
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
        task_log = set_up_logging(config.logs)
        if begin.number == 0:
            return await _serve_engines(config, begin, channel, listening)
        return await _serve_gateway(config, begin, channel, listening, task_log)
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
    config: Config,
    begin: Begin,
    channel: Channel,
    listening: "asyncio.Task[None]",
    task_log: TaskLog | None,
) -> int:
    fleet = Fleet(channel, begin.engines, is_successor=begin.is_successor)
    async with services(config, fleet, task_log) as made:
        channel.answers = _answers(made)
        channel.reload = partial(_reload, made, fleet)
        await engines_answer(made)
        with _listeners(begin, config) as listeners:
            status = await serve_on(
                listeners, made, lambda _: channel.send(Serving()), stop_after=listening
            )
        await channel.leave(await snapshot(made))
        return status


async def engines_answer(made: Services) -> None:
    """Waits for the links to the engines, so that a worker's first tasks are not refused."""
    with suppress(TimeoutError):
        async with asyncio.timeout(ENGINES_WAIT_S):
            while made.own_engines.intersection(made.backends_down()):  # noqa: ASYNC110 - no event
                await asyncio.sleep(LOOK_AGAIN_S)


def _answers(made: Services) -> Answers:
    async def health() -> bytes:
        return msgspec.json.encode(health_of(made))

    async def decisions() -> bytes:
        recorder = made.gw.recorder
        return msgspec.json.encode(list(recorder.recent) if recorder else [])

    async def live() -> bytes:
        sample = worker_sample(made.gw, made.access.keys, made.policies)
        return msgspec.json.encode(sample)

    return {
        "metrics": partial(snapshot, made),
        "health": health,
        "decisions": decisions,
        "live": live,
    }


async def _reload(made: Services, fleet: Fleet, reload: Reload) -> bytes:
    """Takes a changed configuration, or counts a wrong one; returns what is wrong."""
    if not reload.config:
        made.gw.metrics.config_reload("invalid")
        return b""
    try:
        await apply(made, msgspec.json.decode(reload.config, type=Config))
        fleet.configure(reload.engines)
    except CommandError as error:
        return str(error).encode()
    return b""


async def _serve_engines(
    config: Config, begin: Begin, channel: Channel, listening: "asyncio.Task[None]"
) -> int:
    backends = Backends(config.backends)
    keep_alive = KeepAlive(PING_INTERVAL_S)
    host = SharedEngines(backends, config.backends, begin.key)
    server = StoppedBySignals(
        uvicorn_config(host, config, keep_alive),
        lambda _: channel.send(Serving()),
        config,
        connection_limits(config),
    )

    async def reload(reload: Reload) -> bytes:
        try:
            host.replace(msgspec.json.decode(reload.config, type=Config).backends)
        except ConfigError as error:
            return str(error).encode()
        return b""

    channel.reload = reload
    listening.add_done_callback(lambda _: server.stop())
    try:
        with _listeners(begin, config) as listeners:
            return await server.run_on(listeners, keep_alive)
    finally:
        await backends.close()


if __name__ == "__main__":
    sys.exit(main())
