"""`lanewise serve --workers N` runs N gateways on one port, as one.

The supervisor serves no requests. It starts the embedded Redis if none is configured, one process
for the simulated engines, and the workers; it replaces what crashed or does not answer, forwards
signals, and sums the workers' metrics. SIGTERM and SIGINT drain all workers and stop; upon SIGHUP
it reads the configuration again, which each process takes over while it serves. This is an edge.
"""

import asyncio
import logging
import secrets
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, closing
from functools import partial
from itertools import chain

import msgspec
import uvloop

from gateway.config.backend_kinds import link_names
from gateway.config.command_error import CommandError
from gateway.config.config import Config, is_public
from gateway.config.keys import DEVELOPMENT_PEPPERS
from gateway.config.sections import ConfigError
from gateway.fleet.channel import Answers
from gateway.fleet.fleet import METRICS, OF_ALL
from gateway.fleet.wire import Begin
from gateway.logs.set_up import set_up_logging
from gateway.metrics.metric_sums import (
    Snapshot,
    ended,
    lasting,
    merged,
    rendered,
    still_shown,
    supervised,
)
from gateway.metrics.reports import WorkersReport
from gateway.process.addresses import addresses, with_ports
from gateway.process.embedded_redis import redis_at
from gateway.process.fleet_member import Member, SharedPort
from gateway.process.reload import Hangups, Load, changed
from gateway.process.server import check, greet
from gateway.process.service_manager import STOPPING, notify
from gateway.process.shared_engines import linked, simulated
from gateway.process.starting import check_descriptors, stoppable
from gateway.process.worker import EXIT_CONFIG
from router.redis.cancelling import cancelled

logger = logging.getLogger("lanewise")

GATHER_TIMEOUT_S = 2.0  # then a worker's last metrics are used
GATHER_INTERVAL_S = 10.0  # of a killed worker's counts, at most this much is lost
STOP_MARGIN_S = 10.0  # beyond the drain, to close; then a worker is killed
ENGINES_STOP_S = 5.0
EVENT_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def supervise(config: Config, load: Load) -> int:
    """Runs all processes until stopped; returns the exit status.

    Upon SIGHUP the configuration is read again with `load`. Raises a `CommandError` if it cannot
    start; the message says why.
    """
    check_descriptors()
    set_up_logging(config.logs)
    return uvloop.run(stoppable(_supervise(config, load)))


async def _supervise(config: Config, load: Load) -> int:
    check(config, "machine")
    async with AsyncExitStack() as stack:
        ports = [
            stack.enter_context(closing(SharedPort(address, setting)))
            for address, setting in addresses(config)
        ]
        redis_url, num_redis_restarts = await redis_at(stack, config.redis.url)
        supervisor = Supervisor(config, load, ports, redis_url, num_redis_restarts)
        try:
            return await supervisor.run()
        finally:
            await supervisor.stop()


def with_redis(config: Config, url: str) -> Config:
    """Returns the configuration for workers that share an embedded Redis, if it is one."""
    if config.redis.url is not None:
        return config
    auth = config.auth
    if auth.peppers is None and auth.peppers_path is None and not is_public(config):
        auth = msgspec.structs.replace(auth, peppers=DEVELOPMENT_PEPPERS)
    redis = msgspec.structs.replace(config.redis, url=url)
    return msgspec.structs.replace(config, redis=redis, auth=auth)


def worker_config(config: Config, number: int) -> Config:
    """Returns a worker's configuration, with a decision log of its own."""
    recording = config.recording
    if recording.path is None:
        return config
    recording = msgspec.structs.replace(recording, path=f"{recording.path}.worker-{number}")
    return msgspec.structs.replace(config, recording=recording)


def _linked_names(config: Config) -> frozenset[str]:
    """Returns the names of backends that all workers reach over a link."""
    return link_names(config.backends) | {backend.name for backend in simulated(config)}


class Supervisor:
    """Runs all processes of one gateway; call `run` once, then `stop`."""

    def __init__(
        self,
        config: Config,
        load: Load,
        ports: Sequence[SharedPort],
        redis_url: str,
        num_redis_restarts: Callable[[], int],
    ) -> None:
        self._config = config  # as it was read
        self._load = load
        self._ports = [port.number for port in ports]
        self._redis_url = redis_url
        self._num_redis_restarts = num_redis_restarts
        self._engines_port = 0
        self._engines_key = secrets.token_urlsafe(32)
        self._listeners = tuple(chain(*(port.to_hand_on for port in ports)))
        self._engines: Member | None = None
        self._workers: list[Member] = []
        self._keepers: list[asyncio.Task[None]] = []
        self._snapshots: dict[int, Snapshot] = {}  # worker -> its metrics, as last sent
        self._past: Snapshot = []  # counts of workers that ended
        self._gathering: asyncio.Task[None] | None = None
        self._linked = _linked_names(config)
        self._stopping = asyncio.Event()
        self._hangups = Hangups(self._reload)
        self._failure: int | None = None

    async def run(self) -> int:
        """Runs all processes until a signal or a failure.

        Raises `ConfigError` if the engines cannot be started.
        """
        loop = asyncio.get_running_loop()
        for event in EVENT_SIGNALS:
            loop.add_signal_handler(event, self._on_signal, event)
        self._start_engines(self._config)
        config = self._config_of_workers(self._config)
        of_all = {word: partial(self._of_all, what) for what, word in OF_ALL.items()}
        answers: Answers = {METRICS: self._metrics, **of_all}
        engines = msgspec.json.encode(simulated(self._config))
        for number in range(1, config.server.workers + 1):
            own_config = msgspec.json.encode(worker_config(config, number))
            begin = Begin(own_config, number, self._listeners, "", engines)
            worker = Member(f"worker {number}", begin, answers, partial(self._bury, number))
            self._workers.append(worker)
            self._keep(worker)
        stopping = asyncio.create_task(self._stopping.wait())
        serving = asyncio.create_task(self._all_serve())
        try:
            await asyncio.wait((stopping, serving), return_when=asyncio.FIRST_COMPLETED)
            if not self._stopping.is_set():
                greet(config)
            await self._gather_until(stopping)
        finally:
            await cancelled(stopping, serving)
        return self._failure or 0

    async def _all_serve(self) -> None:
        for worker in self._workers:
            await worker.has_served.wait()

    async def stop(self) -> None:
        """Stops all processes: the workers drain, then the engines stop."""
        self._stopping.set()
        await self._hangups.stop()
        drain_s = self._config.server.drain_timeout_s + STOP_MARGIN_S
        await asyncio.gather(*(worker.stop(drain_s) for worker in self._workers))
        if self._engines is not None:
            await self._engines.stop(ENGINES_STOP_S)
        await cancelled(*self._keepers)
        for number in EVENT_SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(number)

    def _on_signal(self, number: signal.Signals) -> None:
        if number != signal.SIGHUP:
            if self._stopping.is_set():  # the second signal stops at once
                for worker in self._workers:
                    worker.signal(signal.SIGTERM)
            notify(STOPPING)
            self._stopping.set()
        else:
            self._hangups.notice()

    async def _reload(self) -> None:
        """Reads the configuration again and gives it to every process."""
        try:
            config = await asyncio.to_thread(changed, self._config, self._load)
            await self._reload_engines(config)
        except CommandError:
            for worker in self._workers:
                await worker.count_wrong_configuration(GATHER_TIMEOUT_S)
            raise
        of_workers = self._config_of_workers(config)
        self._config, self._linked = config, self._linked | _linked_names(config)
        drain_s = config.server.drain_timeout_s + STOP_MARGIN_S
        engines = msgspec.json.encode(simulated(config))

        async def one(number: int, worker: Member) -> None:
            content = msgspec.json.encode(worker_config(of_workers, number))
            complaint = await worker.reload(content, engines)
            if complaint is None:  # it is stuck, or does not come up
                complaint = await worker.replace(content, drain_s, engines)
            worker.is_behind = complaint != ""
            if complaint:
                logger.error("%s goes on with the configuration it has: %s", worker.name, complaint)

        await asyncio.gather(*(one(*each) for each in enumerate(self._workers, start=1)))
        behind = [worker.name for worker in self._workers if worker.is_behind]
        if behind:
            logger.error(
                "the configuration was read again, but not by %s: mend what the lines above say, "
                "and send SIGHUP again",
                ", ".join(behind),
            )
        else:
            logger.info("the configuration was read again by all workers")

    async def _reload_engines(self, config: Config) -> None:
        """Raises `ConfigError` if the engines' process cannot take it."""
        if self._engines is None:
            self._start_engines(config)
            return
        complaint = await self._engines.reload(self._config_of_engines(config))
        if complaint is None:
            complaint = "the engines' process does not answer; send SIGHUP again once it does"
        if complaint:
            raise ConfigError(complaint)

    def _config_of_workers(self, config: Config) -> Config:
        """Returns what workers are given: the real ports, one Redis, and links to the engines."""
        config = with_redis(with_ports(config, self._ports), self._redis_url)
        return linked(config, self._engines_port, self._engines_key)

    def _config_of_engines(self, config: Config) -> bytes:
        return msgspec.json.encode(msgspec.structs.replace(config, backends=simulated(config)))

    def _start_engines(self, config: Config) -> None:
        """Starts the simulated engines' process, if there are any."""
        if not simulated(config):
            return
        listener = socket.create_server(("127.0.0.1", 0))  # kept open for restarts
        self._engines_port = listener.getsockname()[1]
        begin = Begin(self._config_of_engines(config), 0, (listener.fileno(),), self._engines_key)
        self._engines = Member("the engines' process", begin, {}, lambda _: None, keeps=listener)
        self._keep(self._engines)

    def _keep(self, member: Member) -> None:
        keeper = asyncio.create_task(member.keep_running())
        keeper.add_done_callback(partial(self._ended, member))
        self._keepers.append(keeper)

    def _ended(self, member: Member, keeper: "asyncio.Task[None]") -> None:
        """Stops everything if a process will not be restarted."""
        if keeper.cancelled() or self._stopping.is_set():
            return
        if (fault := keeper.exception()) is not None:
            logger.error("%s cannot be kept running", member.name, exc_info=fault)
        self._failure = EXIT_CONFIG if member.exit_status == EXIT_CONFIG else 1
        self._stopping.set()

    async def _of_all(self, what: str) -> bytes:
        answers = await asyncio.gather(
            *(worker.ask(what, GATHER_TIMEOUT_S) for worker in self._workers)
        )
        return msgspec.msgpack.encode([answer for answer in answers if answer is not None])

    async def _metrics(self) -> bytes:
        """Returns all workers' metrics together, as text."""
        await self._gather()
        serving = sum(worker.is_serving for worker in self._workers)
        engines = [] if self._engines is None else [self._engines]
        restarts = sum(member.num_restarts for member in (*self._workers, *engines))
        behind = sum(worker.is_behind for worker in self._workers)
        workers = WorkersReport(serving, len(self._workers), restarts, behind)
        links = link_names(self._config.backends)
        own = supervised(workers, self._num_redis_restarts(), links)
        everything = merged([self._past, *self._snapshots.values(), own], self._linked)
        return await asyncio.to_thread(rendered, everything)

    async def _gather(self) -> None:
        """Collects every worker's metrics; concurrent calls share one collection."""
        if self._gathering is None or self._gathering.done():
            self._gathering = asyncio.create_task(self._gather_now())
        await asyncio.shield(self._gathering)

    async def _gather_now(self) -> None:
        async def one(number: int, worker: Member) -> None:
            life = worker.num_starts
            answer = await worker.ask("metrics", GATHER_TIMEOUT_S)
            if answer is not None and worker.num_starts == life:
                self._take(number, msgspec.msgpack.decode(answer, type=Snapshot))

        await asyncio.gather(*(one(*each) for each in enumerate(self._workers, start=1)))
        self._past = still_shown(self._past, self._snapshots.values())

    def _take(self, number: int, latest: Snapshot) -> None:
        """Replaces a worker's snapshot, and keeps the counts of series that it has ended."""
        gone = ended(self._snapshots.get(number, []), latest)
        self._past = merged([self._past, gone], self._linked)
        self._snapshots[number] = latest

    async def _gather_until(self, stopping: "asyncio.Task[bool]") -> None:
        while not stopping.done():
            await self._gather()
            await asyncio.wait((stopping,), timeout=GATHER_INTERVAL_S)

    def _bury(self, number: int, farewell: bytes | None) -> None:
        """Keeps the counters of a worker that ended, and drops its gauges."""
        if farewell is not None:
            self._take(number, msgspec.msgpack.decode(farewell, type=Snapshot))
        last = self._snapshots.pop(number, None)
        if last is not None:
            self._past = merged([self._past, lasting(last, self._linked)], self._linked)
