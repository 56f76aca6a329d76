"""Runs the server process: uvicorn with our socket protocol, headers and shutdown.

This is an edge.
"""

import asyncio
import faulthandler
import gc
import logging
import os
import signal
import socket
import ssl
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any, Literal, cast

import msgspec
import uvicorn
import uvloop
from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from backends.drive.beats import pause_s
from gateway.config.backend_kinds import link_names
from gateway.config.certificate import expires_s, tls_context
from gateway.config.command_error import CommandError
from gateway.config.config import Config
from gateway.config.development import DEVELOPMENT_KEY
from gateway.config.sections import (
    DEVELOPMENT_TENANT,
    Address,
    admin_address,
    networks,
)
from gateway.http.fast_routes import FastRoutes, headers_of
from gateway.http.faults import fault_of, fault_response
from gateway.http.manners import HttpManners
from gateway.http.routes import methods_at
from gateway.http.services import Services
from gateway.logs.set_up import set_up_logging
from gateway.logs.task_line import TaskLog
from gateway.process.addresses import SplitAddresses, addresses, listen, told_apart, with_ports
from gateway.process.app import make_app, services
from gateway.process.reload import Hangups, Load, apply, changed
from gateway.process.service_manager import READY, STOPPING, notify
from gateway.process.starting import check_descriptors, stoppable
from gateway.process.websocket_endpoints import WebSocketEndpoints
from gateway.transport.byte_budgets import ByteBudgets
from gateway.transport.connection_limits import ConnectionBounds, ConnectionLimits, Cut, Visit
from gateway.transport.http_protocol import HttpProtocol
from gateway.transport.ids import REQUEST_ID, request_id_header
from gateway.transport.keepalive import AcceptQueue, KeepAlive
from gateway.transport.listener import LimitedListener, pass_time
from gateway.transport.socket_protocol import SocketProtocol
from router.redis.cancelling import cancelled

logger = logging.getLogger("lanewise")

# A message just over the limit is read, so that the error can name its size; a larger one is
# refused by its frame's length.
MESSAGE_SLACK_BYTES = 1 << 20
PING_INTERVAL_S = 20.0
DATE_INTERVAL_S = 1.0
TERMINAL_TIMEOUT_S = 1.0  # for stopped responses to send their terminal event
CLOSE_TIMEOUT_S = 3  # for connections to close after the drain
# New objects until Python collects the youngest, 700 by default. Running tasks hold more, and would
# be scanned many times. Collecting this many takes about a millisecond.
GC_YOUNG_OBJECTS = 10_000
# A thread that computes gives the interpreter back after so long (5 ms by default), and the loop
# asks for it several times a turn.
SWITCH_INTERVAL_S = 0.0005


def _routed(made: Services) -> ASGIApp:
    """Returns the application, from the outermost layer to the routes."""
    app = make_app(made)
    mannered = HttpManners(FastRoutes(app, made), made, partial(methods_at, app.state.served))
    return WebSocketEndpoints(StandardHeaders(mannered), made)


class StandardHeaders:
    """Adds the standard headers to every HTTP response, and answers what failed unawares (ASGI)."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return
        started_s = time.perf_counter()
        request_id = request_id_header()
        scope.setdefault("state", {})[REQUEST_ID] = request_id[1].decode()
        has_begun = False

        def send_with_headers(message: Message) -> Awaitable[None]:
            nonlocal has_begun
            if not has_begun and message["type"] == "http.response.start":
                has_begun = True
                taken_ms = int((time.perf_counter() - started_s) * 1e3)
                message["headers"] = [
                    *message.get("headers", ()),
                    request_id,
                    (b"openai-version", b"2020-10-01"),
                    (b"openai-processing-ms", str(taken_ms).encode()),
                ]
            return send(message)

        try:
            await self._app(scope, receive, send_with_headers)
        except Exception as error:
            if has_begun:  # the answer has begun: uvicorn logs it, and closes
                raise
            asked = f"{scope['path']} ({request_id[1].decode()})"
            fault = fault_of(scope["method"], asked, error)
            answer = fault_response(fault, scope["path"], headers_of(scope), time.time())
            await answer(scope, receive, send_with_headers)


# The supervisor sends it: all workers stop, so that no other takes this one's connections.
STOP_OF_ALL = signal.SIGUSR2
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, STOP_OF_ALL)


class StoppedBySignals(uvicorn.Server):
    """Is a uvicorn server that calls `on_signal` when it is to stop, and then exits with 0."""

    def __init__(
        self,
        config: uvicorn.Config,
        on_serving: Callable[[int], None],
        configured: Config,
        limits: ConnectionLimits,
    ) -> None:
        """Calls `on_serving` with the port, once it listens there."""
        super().__init__(config)
        self._on_serving = on_serving
        self._configured = configured
        self._limits = limits
        self._is_over = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts to accept, and reports the port, also if 0 was configured."""
        assert sockets is not None
        await self.lifespan.startup()

        def make(visit: Visit) -> asyncio.Protocol:
            return self.config.http_protocol_class(  # type: ignore[call-arg]
                config=self.config,
                server_state=self.server_state,
                app_state=self.lifespan.state,
                visit=visit,
            )

        self.servers: list[Any] = [  # in place of asyncio's
            LimitedListener(
                each,
                make,
                self._limits,
                tls=self.config.ssl,
                handshake_s=self._configured.connections.handshake_s,
                trusted=networks(self._configured.server.trusted_proxies),
            )
            for each in sockets
        ]
        self.started = True
        self._on_serving(sockets[0].getsockname()[1])

    async def run_on(self, listeners: Sequence[socket.socket], keep_alive: KeepAlive) -> int:
        """Serves until stopped; returns the exit status."""
        running = [
            asyncio.create_task(keep_alive.run()),
            asyncio.create_task(pass_time(self._limits)),
        ]
        try:
            await self.serve([*listeners])
        finally:
            await cancelled(*running)
            await self._end_requests()
        return 0 if self.started else 1

    async def main_loop(self) -> None:
        """Waits for the end; uvicorn's looks ten times a second whether it has come.

        Each second its tick renews the date that answers bear.
        """
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s(DATE_INTERVAL_S)):
                    await self._is_over.wait()

    def over(self) -> None:
        """Ends the main loop."""
        self.should_exit = True
        self._is_over.set()

    async def _end_requests(self) -> None:
        """Ends what runs still, after a second signal: it settles while Redis can be told."""
        left = list(self.server_state.tasks)
        for each in left:
            each.cancel()
        if left:
            await asyncio.wait(left, timeout=TERMINAL_TIMEOUT_S)

    def on_signal(self, number: int) -> None:
        """Takes a signal to stop."""
        self.stop()

    def stop(self) -> None:
        """Stops the server."""
        self.over()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Replaces uvicorn's, which raises the signal again at the end."""
        loop = asyncio.get_running_loop()
        for number in _STOP_SIGNALS:
            loop.add_signal_handler(number, self.on_signal, number)
        try:
            yield
        finally:
            for number in _STOP_SIGNALS:
                loop.remove_signal_handler(number)
            # Settling what ran takes a bounded time, and must not be interrupted.
            for number in (signal.SIGTERM, STOP_OF_ALL):
                signal.signal(number, signal.SIG_IGN)


class Server(StoppedBySignals):
    """Drains before it stops."""

    def __init__(
        self,
        config: uvicorn.Config,
        made: Services,
        on_serving: Callable[[int], None],
        limits: ConnectionLimits,
        *,
        is_one_of_many: bool = False,
    ) -> None:
        """Closes its listeners first if it is one of many that go on: they take connections."""
        super().__init__(config, on_serving, made.config, limits)
        self._services = made
        self._is_one_of_many = is_one_of_many
        self._others_go_on = is_one_of_many
        self._stopping: asyncio.Task[None] | None = None

    def on_signal(self, number: int) -> None:
        """Drains and stops; the second signal stops at once."""
        if number == STOP_OF_ALL:
            self._others_go_on = False
        self.stop()

    def stop(self) -> None:
        """Drains and stops; the second call stops at once."""
        if self._stopping is None:
            self._stopping = asyncio.ensure_future(self._drain())
        else:
            self.force_exit = True

    async def _drain(self) -> None:
        """Refuses new tasks, lets running ones end within the timeout, then closes."""
        gw = self._services.gw
        gw.state.draining = True
        if not self._is_one_of_many:  # else its supervisor says so
            notify(STOPPING)
        for server in self.servers if self._others_go_on else ():
            server.close()  # to new connections only
        gw.waiting.refuse_all()
        deadline_s = time.monotonic() + self._services.config.server.drain_timeout_s
        while gw.state.num_tasks and time.monotonic() < deadline_s and not self.force_exit:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        deadline_s = time.monotonic() + TERMINAL_TIMEOUT_S
        while gw.state.num_tasks and time.monotonic() < deadline_s and not self.force_exit:
            for in_use in list(gw.in_use.values()):  # again: a part may just have been reserved
                in_use.job.stop("draining")  # sends its terminal event, and settles
            await asyncio.sleep(0.01)
        self.over()


def _tune_interpreter() -> None:
    """Excludes what was made before serving from collections; gives the loop way before threads."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_YOUNG_OBJECTS, *gc.get_threshold()[1:])


def greeting(config: Config) -> str:
    """Returns the text printed once it serves: the address, and examples."""
    server = config.server
    host = "127.0.0.1" if server.host == "localhost" else server.host
    public = Address(host, server.port)
    scheme = "http" if server.tls_cert_path is None else "https"
    url, admin_url = (f"{scheme}://{each}" for each in (public, admin_address(server) or public))
    keys = [key for tenant in config.tenants for key in tenant.keys]
    key = DEVELOPMENT_KEY if DEVELOPMENT_KEY in keys else "<your key>"
    return f"""\
Lanewise listens on {url}   (key: {key})

  # OpenAI SDK (pip install "openai[realtime]")
  from openai import OpenAI
  client = OpenAI(base_url="{url}/v1", api_key="{key}")
  print(client.responses.create(model="auto", input="Reverse a string in Python.").output_text)

  # Codex CLI
  LANEWISE_API_KEY={key} codex exec --skip-git-repo-check -m auto -c model_provider=lanewise \\
    -c 'model_providers.lanewise={{name="Lanewise", base_url="{url}/v1", env_key="LANEWISE_API_KEY",
      model_catalog_url="{url}/v1/models", wire_api="responses", supports_websockets=true}}' \\
    "say hi"

  # in this terminal
  {sys.argv[0]} chat --url {url}

Console: {admin_url}/console/   Metrics: {admin_url}/metrics   Stop: Ctrl-C"""


def greet(config: Config) -> None:
    """Says that it serves: to whoever started it, and to systemd."""
    try:
        print(greeting(config), flush=True)
    except OSError as error:  # a full disk, or a reader that has left: it serves all the same
        logger.warning("the greeting cannot be written to standard output: %s", error)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())  # what was not written is tried again at the end
        os.close(nowhere)
    notify(READY)


def serve(config: Config, load: Load) -> int:
    """Runs the gateway until stopped; returns the exit status.

    Upon SIGHUP the configuration is read again with `load`. Raises a `CommandError` if it cannot
    start; the message says why.
    """
    check_descriptors()
    faulthandler.enable()
    task_log = set_up_logging(config.logs)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until it can be handled
    return uvloop.run(stoppable(_serve(config, load, task_log)))


async def _serve(config: Config, load: Load, task_log: TaskLog | None) -> int:
    check(config, "process")
    loop = asyncio.get_running_loop()
    with ExitStack() as stack:
        listeners = [
            stack.enter_context(listen(address, setting)) for address, setting in addresses(config)
        ]
        ports = [listener.getsockname()[1] for listener in listeners]
        async with services(with_ports(config, ports), task_log=task_log) as made:
            reports = made.gw.metrics.reports
            reports.links = link_names(config.backends)

            async def reload() -> None:
                nonlocal config
                try:
                    wanted = await asyncio.to_thread(changed, config, load)
                except CommandError:
                    made.gw.metrics.config_reload("invalid")
                    raise
                await apply(made, with_ports(wanted, ports))
                config = wanted
                reports.links = link_names(config.backends)

            hangups = Hangups(reload)
            loop.add_signal_handler(signal.SIGHUP, hangups.notice)
            try:
                return await serve_on(listeners, made, lambda _: greet(made.config))
            finally:
                await hangups.stop()


async def serve_on(
    listeners: Sequence[socket.socket],
    made: Services,
    on_serving: Callable[[int], None],
    *,
    stop_after: "asyncio.Task[None] | None" = None,
) -> int:
    """Serves until stopped or `stop_after` ends; that is given if others share the ports.

    The first listener is the main one; a second one is for admins.
    """

    def serving(port: int) -> None:
        _tune_interpreter()
        on_serving(port)

    keep_alive = KeepAlive(PING_INTERVAL_S)
    app: ASGIApp = _routed(made)
    if len(listeners) > 1:
        app = SplitAddresses(app, told_apart(*listeners))
    counts = made.gw.metrics.counts
    limits = connection_limits(
        made.config,
        lambda why: counts["lanewise_connections_cut_total"][(why,)].inc(),
        lambda key, number: counts["lanewise_connections"][(key,)].set(number),
        made.gw.budgets.in_flight,
    )
    made.gw.metrics.reports.certificate_expires_s = expires_s(made.config.server)
    config = uvicorn_config(app, made.config, keep_alive, made.tls)
    server = Server(config, made, serving, limits, is_one_of_many=stop_after is not None)
    if stop_after is not None:
        stop_after.add_done_callback(lambda _: server.stop())
    return await server.run_on(listeners, keep_alive)


def limits_end_with_process(config: Config) -> bool:
    """Says whether configured limits are kept in an embedded Redis, and end with it.

    An engine served alone has no limits to lose: its gateways hold them.
    """
    alone = config.server.serves_link and len(config.tenants) == 1
    return config.redis.url is None and config.tenants != (DEVELOPMENT_TENANT,) and not alone


def check(config: Config, extent: Literal["process", "machine"]) -> None:
    """Checks the certificate and its key; warns if limits hold only for this `extent`.

    Raises `ConfigError` if the certificate or its key cannot be used.
    """
    tls_context(config.server)
    if limits_end_with_process(config):
        logger.warning(
            "tenants are configured, but Redis is embedded: limits hold for this %s alone and "
            "end with it; name a server with --redis or LANEWISE_REDIS_URL",
            extent,
        )


def connection_limits(
    config: Config,
    on_cut: Callable[[Cut], None] = lambda why: None,
    on_count: Callable[[str, int], None] = lambda key, number: None,
    in_flight: ByteBudgets | None = None,
) -> ConnectionLimits:
    """Makes the bounds of a process's connections; the callables count."""
    bounds = msgspec.structs.asdict(config.connections)
    return ConnectionLimits(msgspec.convert(bounds, ConnectionBounds), on_cut, on_count, in_flight)


def uvicorn_config(
    app: Any, config: Config, keep_alive: KeepAlive, tls: ssl.SSLContext | None = None
) -> uvicorn.Config:
    """Makes uvicorn's configuration for an ASGI application."""
    line, server = AcceptQueue(), config.server
    return uvicorn.Config(
        app,
        http=cast(
            "type[asyncio.Protocol]",
            partial(HttpProtocol, line, server.max_message_bytes, networks(server.trusted_proxies)),
        ),
        ws=cast(
            "type[asyncio.Protocol]",
            partial(SocketProtocol, keep_alive, line, server.max_message_bytes),
        ),
        ws_max_size=server.max_message_bytes + MESSAGE_SLACK_BYTES,
        ws_per_message_deflate=False,
        interface="asgi3",  # not guessed: our app is no coroutine function
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # our protocol reads them, of trusted proxies alone
        timeout_graceful_shutdown=CLOSE_TIMEOUT_S,
        timeout_keep_alive=config.connections.idle_s,  # type: ignore[arg-type]  # a float will do
        ssl_context_factory=None if tls is None else lambda *_: tls,
    )
