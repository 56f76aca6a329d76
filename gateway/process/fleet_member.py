"""Starts, watches, restarts, queries and stops one process of the supervisor. This is an edge."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from gateway.config.sections import Address
from gateway.fleet.channel import ALIVE, Answers, Channel, ChannelClosed, opened
from gateway.fleet.patience import BEAT_INTERVAL_S, BEAT_TIMEOUT_S, Patience
from gateway.fleet.wire import Begin, Reload
from gateway.process.addresses import listen
from gateway.process.server import STOP_OF_ALL
from router.redis.cancelling import cancelled

logger = logging.getLogger("lanewise")

FIRST_PAUSE_S = 0.1  # before a crashed process is restarted; doubles each time
LAST_PAUSE_S = 10.0
STEADY_S = 60.0  # of running, after which the pause is reset
LAST_WORDS_S = 1.0  # to read the last frames of a process that has ended
RELOAD_TIMEOUT_S = 10.0  # for a process to take a changed configuration; then it is replaced
MAX_FALSE_STARTS = 3  # of a process that has never served; then it is given up
START_LIMIT_S = 60.0  # for a successor to serve; then the one before it goes on
LOOK_AGAIN_S = 0.05


class SharedPort:
    """Holds a port that all workers listen on, until the last one ends.

    On Linux each worker has its own listening socket, and the kernel spreads connections over them.
    Elsewhere all workers share one.
    """

    def __init__(self, address: Address, setting: str) -> None:
        """Raises `ConfigError` if the address is taken, also by another `lanewise`."""
        # It is not shared, so that it fails beside another gateway's workers.
        with listen(address, setting) as alone:
            self.number: int = alone.getsockname()[1]
            family, bound_to = alone.family, alone.getsockname()
        self.to_hand_on: tuple[int, ...] = ()
        if sys.platform == "linux":
            # Bound but not listening: it holds the port and gets no connections.
            self._socket = socket.socket(family, socket.SOCK_STREAM)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            try:
                self._socket.bind(bound_to)
            except OSError:
                # Connections of a process that listened alone are still ending. Otherwise the
                # option is left out: with it, another gateway could come before workers listen.
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                self._socket.bind(bound_to)
        else:
            self._socket = listen(Address(address.host, self.number), setting)
            self.to_hand_on = (self._socket.fileno(),)

    def close(self) -> None:
        """Releases the port."""
        self._socket.close()


@dataclass(eq=False)
class ProcessLife:
    """Is one run of a process, from its start to its end."""

    process: asyncio.subprocess.Process
    channel: Channel
    reading: asyncio.Task[None]

    @property
    def is_serving(self) -> bool:
        return self.channel.serving.is_set()

    @property
    def is_over(self) -> bool:
        return self.process.returncode is not None

    async def end(self) -> bytes | None:
        """Kills it where it still runs; returns its last metrics. Cancelling leaves it killed."""
        if not self.is_over:
            self.process.kill()
        try:
            await self.process.wait()
            await asyncio.wait((self.reading,), timeout=LAST_WORDS_S)
        finally:
            await cancelled(self.reading)
        return self.channel.farewell


@dataclass(eq=False)
class Member:
    """Is one process; `keep_running` runs it, the other methods may be called meanwhile."""

    name: str  # for the log
    begin: Begin
    answers: Answers  # to its queries
    on_end: Callable[[bytes | None], None]  # called after each end, with its last metrics
    keeps: socket.socket | None = None  # its listening socket, kept open for restarts
    has_served: asyncio.Event = field(default_factory=asyncio.Event)
    num_starts: int = 0
    num_restarts: int = 0  # after a crash
    is_behind: bool = False  # it goes on with a configuration that has been changed since
    exit_status: int | None = None
    _life: ProcessLife | None = None
    _successor: ProcessLife | None = None  # it serves, and the one before it is to end
    _is_stopping: bool = False

    @property
    def is_serving(self) -> bool:
        """Says whether the process runs and serves."""
        return self._life is not None and self._life.is_serving

    async def keep_running(self) -> None:
        """Runs the process, and again after a crash, until it is stopped or cannot start."""
        loop = asyncio.get_running_loop()
        pause_s = FIRST_PAUSE_S
        num_false_starts = 0
        while not self._is_stopping:
            began_s = loop.time()
            try:
                await self._run_once()
            except OSError as error:  # no descriptors, no memory: for a while
                logger.error("%s cannot be started: %s", self.name, error)
            if self._is_stopping:
                return
            if self._successor is not None:
                continue
            num_false_starts += not self.has_served.is_set()
            if num_false_starts >= MAX_FALSE_STARTS:
                return
            if loop.time() - began_s >= STEADY_S:
                pause_s = FIRST_PAUSE_S
            logger.error(
                "%s ended with status %s; it is started again in %.1f s",
                *(self.name, self.exit_status, pause_s),
            )
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LAST_PAUSE_S)
            self.num_restarts += 1

    async def _run_once(self) -> None:
        """Runs the process once, or goes on with its successor. Cancelling kills it."""
        life, self._successor = self._successor, None
        self._life = life = life or await self._started(self.begin)
        self.num_starts += 1
        watching = asyncio.create_task(self._watch(life))
        try:
            self.exit_status = await life.process.wait()
        finally:
            await cancelled(watching)
            farewell = await life.end()
            self._life = None
            self.on_end(farewell)

    async def _started(self, begin: Begin) -> ProcessLife:
        """Starts a process, or raises `OSError`."""
        ours, theirs = socket.socketpair()
        with contextlib.ExitStack() as stack, theirs:
            stack.callback(ours.close)
            process = await asyncio.create_subprocess_exec(
                # -P: a folder "gateway" in the working directory must not be imported.
                *(sys.executable, "-P", "-m", "gateway.process.worker", str(theirs.fileno())),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=[theirs.fileno(), *begin.listeners],
                start_new_session=True,  # Ctrl-C goes to the supervisor, which forwards it
            )
            stack.pop_all()
        channel = await opened(ours, self.answers)
        channel.send(begin)
        return ProcessLife(process, channel, asyncio.create_task(channel.run()))

    async def _watch(self, life: ProcessLife) -> None:
        """Notes that the process serves, and kills it once it does not answer any more."""
        process, channel = life.process, life.channel
        await channel.serving.wait()
        self.has_served.set()
        clock_s = asyncio.get_running_loop().time
        patience = Patience(clock_s(), _cpu_s(process.pid))
        while True:
            await asyncio.sleep(BEAT_INTERVAL_S)
            try:
                await channel.ask(ALIVE, BEAT_TIMEOUT_S)
            except ChannelClosed:
                if life.is_over:
                    return
                why = patience.missed(clock_s(), _cpu_s(process.pid))
                if why is not None:
                    logger.error("%s is killed: %s", self.name, why)
                    self.signal(signal.SIGKILL)
                    return
            else:
                patience.answered(clock_s(), _cpu_s(process.pid))

    async def ask(self, word: str, timeout_s: float) -> bytes | None:
        """Sends a query; returns None if the process does not answer in time."""
        if self._life is not None and self._life.is_serving:
            with contextlib.suppress(ChannelClosed):
                return await self._life.channel.ask(word, timeout_s)
        return None

    async def reload(self, config: bytes, engines: bytes = b"[]") -> str | None:
        """Gives the process a configuration, now and whenever it is started again.

        Returns what is wrong with it, empty if nothing is, or None if the process does not answer.
        Unless nothing is wrong, it goes on with the one before, also when it is started again.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RELOAD_TIMEOUT_S):
                while not self.is_serving:  # noqa: ASYNC110 - it may be of another life
                    await asyncio.sleep(LOOK_AGAIN_S)
        complaint = await self._reload(Reload(0, config, engines), RELOAD_TIMEOUT_S)
        if complaint == "":
            self.begin = msgspec.structs.replace(self.begin, config=config, engines=engines)
        return complaint

    async def count_wrong_configuration(self, timeout_s: float) -> None:
        """Lets the process count that a changed configuration was wrong."""
        await self._reload(Reload(0, b""), timeout_s)

    async def _reload(self, reload: Reload, timeout_s: float) -> str | None:
        if self._life is not None and self._life.is_serving:
            with contextlib.suppress(ChannelClosed):
                return (await self._life.channel.ask("reload", timeout_s, reload)).decode()
        return None

    def signal(self, number: int) -> None:
        """Sends the process a signal, if it runs."""
        if self._life is not None and not self._life.is_over:
            self._life.process.send_signal(number)

    async def replace(self, config: bytes, timeout_s: float, engines: bytes = b"[]") -> str:
        """Starts another process with a configuration, and once that serves, ends the one before.

        Returns why it does not serve, or nothing; where it does not, the one before goes on as it
        was, also when it is started again. Cancelling ends one of them.
        """
        begin = msgspec.structs.replace(self.begin, config=config, engines=engines)
        try:
            successor = await self._started(msgspec.structs.replace(begin, is_successor=True))
        except OSError as error:
            return f"no process can be started to follow it: {error}"
        try:
            async with asyncio.timeout(START_LIMIT_S):
                while not (successor.is_serving or successor.is_over):  # noqa: ASYNC110
                    await asyncio.sleep(LOOK_AGAIN_S)
            if successor.is_over:
                status = successor.process.returncode
                return f"the process that was to follow it ended with status {status}"
            self.begin, self._successor = begin, successor
            await self._end(timeout_s, signal.SIGTERM)
            while self._successor is successor:  # noqa: ASYNC110 - until it is kept running
                await asyncio.sleep(LOOK_AGAIN_S)
            return ""
        except TimeoutError:
            return f"the process that was to follow it did not serve within {START_LIMIT_S:g} s"
        finally:
            if self._life is not successor:
                self._successor = None
                await successor.end()

    async def stop(self, timeout_s: float) -> None:
        """Stops the process as all others are, and with SIGKILL after the timeout."""
        self._is_stopping = True
        await self._end(timeout_s, STOP_OF_ALL)
        if self.keeps is not None:
            self.keeps.close()

    async def _end(self, timeout_s: float, by: int) -> None:
        life = self._life
        if life is None or life.is_over:
            return
        life.process.send_signal(by)
        try:
            await asyncio.wait_for(life.process.wait(), timeout_s)
        except TimeoutError:
            logger.error("%s did not end within %g s and is killed", self.name, timeout_s)
            life.process.kill()
            await life.process.wait()


def _cpu_s(pid: int) -> float:
    """Returns the CPU time that a process has used; 0 where the system does not say (/proc)."""
    try:
        # The name, which may hold anything, ends with the last parenthesis.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
