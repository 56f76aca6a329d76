"""Runs real Redis servers for tests: a single one, a Cluster, Sentinels; and a slow wire."""

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from pathlib import Path
from typing import Any, Protocol

from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from tests.e2e.gateway_process import redis_binary
from tests.ports import free_port

PATIENCE_S = 60.0  # bounds a hang; never decides whether something was fast enough
NEVER_MS = 120_000  # nobody whom a busy machine holds up is given up
SOON_MS = 400  # for who waits for a failover


class Server:
    """Is one server process on a loopback port."""

    def __init__(self, folder: Path, *settings: str) -> None:
        self.port = free_port()
        self.folder = folder / str(self.port)
        self.folder.mkdir(exist_ok=True)
        self._settings = settings
        self.start()

    def start(self) -> None:
        """Start it, or start it again: it knows nothing of before."""
        command = [redis_binary(), "--port", str(self.port), "--bind", "127.0.0.1"]
        command += ["--save", "", "--appendonly", "no", "--dir", str(self.folder)]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen([*command, *self._settings], stdout=log, stderr=log)

    def ask(self, *command: Any) -> Any:
        """Asks one command, once the server answers."""
        give_up_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                with Redis(
                    port=self.port, socket_timeout=5.0, decode_responses=True, protocol=2
                ) as client:
                    client.response_callbacks.clear()  # answers as they are
                    return client.execute_command(*command)  # type: ignore[no-untyped-call]
            except (RedisConnectionError, RedisTimeoutError, OSError):
                if time.monotonic() > give_up_s or self.process.poll() is not None:
                    raise
                time.sleep(0.01)

    def send(self, number: int) -> None:
        """Sends a signal: SIGSTOP, SIGCONT, SIGKILL."""
        os.kill(self.process.pid, number)
        if number == signal.SIGKILL:
            self.process.wait()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def running(*servers: Server) -> Iterator[None]:
    try:
        yield
    finally:
        for server in servers:
            server.stop()


def eventually(is_so: Any) -> None:
    """Returns once it is so."""
    give_up_s = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < give_up_s, "it never came to be so"
        time.sleep(0.02)


def has_heard(replica: Server, master: Server) -> None:
    """Returns once a replica has everything that its master has now."""

    def offset(server: Server, field: str) -> int:
        told = server.ask("INFO", "replication").split(f"{field}:")
        return int(told[1].split()[0]) if len(told) > 1 else -1

    wanted = offset(master, "master_repl_offset")
    eventually(lambda: offset(replica, "slave_repl_offset") >= wanted)


class Cluster:
    """Runs three masters, each with one replica."""

    SETTINGS = ("--cluster-enabled", "yes", "--cluster-node-timeout", str(SOON_MS))
    SLOTS = ((0, 5_460), (5_461, 10_922), (10_923, 16_383))

    def __init__(self, folder: Path) -> None:
        self.servers = [Server(folder, *self.SETTINGS) for _ in range(6)]

    @property
    def url(self) -> str:
        return f"redis+cluster://127.0.0.1:{self.servers[0].port},127.0.0.1:{self.servers[1].port}"

    def form(self) -> None:
        masters, replicas = self.servers[:3], self.servers[3:]
        for server, (first, last) in zip(masters, self.SLOTS, strict=True):
            server.ask("CLUSTER", "ADDSLOTS", *range(first, last + 1))
        for number, server in enumerate(self.servers):
            server.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for server in self.servers[1:]:
            self.servers[0].ask("CLUSTER", "MEET", "127.0.0.1", server.port)
        eventually(lambda: all(self._knows_all(server) for server in self.servers))
        for replica, master in zip(replicas, masters, strict=True):
            replica.ask("CLUSTER", "REPLICATE", master.ask("CLUSTER", "MYID"))
        eventually(lambda: all(self._is_well(server) for server in self.servers))
        self.give_up_after(NEVER_MS)  # sooner would have made the gossip slow
        for master in masters:
            if master.ask("ROLE")[0] != "master":  # a busy machine held it up
                master.ask("CLUSTER", "FAILOVER", "TAKEOVER")
        eventually(lambda: all(self._is_as_planned(server) for server in self.servers))

    def give_up_after(self, timeout_ms: int) -> None:
        """Sets how long a node may be silent before its replica takes over."""
        for server in self.servers:
            if server.process.poll() is None:
                server.ask("CONFIG", "SET", "cluster-node-timeout", timeout_ms)

    def _knows_all(self, server: Server) -> bool:
        return len(server.ask("CLUSTER", "NODES").splitlines()) == len(self.servers)

    def _is_well(self, server: Server) -> bool:
        slots = server.ask("CLUSTER", "SLOTS")  # first, last, master, replicas...
        is_whole = len(slots) == 3 and all(len(each) == 4 for each in slots)
        return is_whole and "cluster_state:ok" in server.ask("CLUSTER", "INFO")

    def replica_of(self, master: Server) -> Server:
        """Returns the other server that has its slots, by the plan of `form`."""
        return self.servers[self.servers.index(master) + len(self.SLOTS)]

    def _is_as_planned(self, server: Server) -> bool:
        told = {
            (first, last, master[1]) for first, last, master, *_ in server.ask("CLUSTER", "SLOTS")
        }
        plan = zip(self.SLOTS, self.servers, strict=False)
        return told == {(first, last, master.port) for (first, last), master in plan}

    def master_of(self, slot: int) -> Server:
        """Returns the server that has a slot by the plan of `form`."""
        for server, (first, last) in zip(self.servers, self.SLOTS, strict=False):
            if first <= slot <= last:
                return server
        raise AssertionError(slot)


class _Sentinel(Server):
    def start(self) -> None:
        path = self.folder / "sentinel.conf"  # it writes what it learns into it
        path.write_text(f"port {self.port}\nbind 127.0.0.1\ndir {self.folder}\n")
        with (self.folder / "log").open("ab") as log:
            command = [redis_binary(), str(path), "--sentinel"]
            self.process = subprocess.Popen(command, stdout=log, stderr=log)


class Sentinels:
    """Runs a master, a replica, and three Sentinels that watch them."""

    NAME = "main"

    def __init__(self, folder: Path) -> None:
        self.master = Server(folder)
        self.replica = Server(folder, "--replicaof", "127.0.0.1", str(self.master.port))
        self.sentinels = [_Sentinel(folder) for _ in range(3)]
        for sentinel in self.sentinels:
            sentinel.ask("SENTINEL", "MONITOR", self.NAME, "127.0.0.1", self.master.port, 2)
            sentinel.ask("SENTINEL", "SET", self.NAME, "failover-timeout", 3_000)
        self.give_up_after(NEVER_MS)

    def give_up_after(self, timeout_ms: int) -> None:
        """Sets how long the master may be silent before the replica takes over."""
        for sentinel in self.sentinels:
            sentinel.ask("SENTINEL", "SET", self.NAME, "down-after-milliseconds", timeout_ms)

    @property
    def servers(self) -> list[Server]:
        return [self.master, self.replica, *self.sentinels]

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/{self.NAME}"

    def form(self) -> None:
        """Returns once all know of each other, and the replica has everything."""
        eventually(lambda: all(self._is_well(sentinel) for sentinel in self.sentinels))
        eventually(lambda: "master_link_status:up" in self.replica.ask("INFO", "replication"))

    def _is_well(self, sentinel: Server) -> bool:
        told = sentinel.ask("SENTINEL", "MASTER", self.NAME)
        state = dict(zip(told[::2], told[1::2], strict=True))
        return int(state["num-slaves"]) == 1 and int(state["num-other-sentinels"]) == 2


class Listening(Protocol):
    """Is a process with a loopback port."""

    port: int


class Wire:
    """Is a TCP proxy before a server: late by `delay_s` both ways together, cut, or silent."""

    def __init__(self, target: Listening, seed: int = 0) -> None:
        self._target = target
        self.delay_s = 0.0
        self.is_silent = False  # takes everything and passes on nothing
        self.is_deaf = False  # passes on what is asked, and no answer
        self.late_share = 0.0  # of the pieces that pass, that are `late_s` late, and what follows
        self.late_s = 0.0
        self.num_late = 0
        self._chance = random.Random(seed)
        self.num_connections = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._work: set[asyncio.Task[None]] = set()  # connections being made, and pumps
        self.port = 0

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator["Wire"]:
        listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = listener.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            listener.close()
            for task in list(self._work):
                task.cancel()
            await asyncio.gather(*self._work, return_exceptions=True)
            self.cut()

    def cut(self) -> None:
        """Break every connection."""
        for writer in list(self._writers):
            writer.transport.abort()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_connections += 1
        self._writers.add(writer)
        self._begin(self._take(reader, writer))

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target = "127.0.0.1", self._target.port
        try:
            there_reader, there_writer = await asyncio.open_connection(*target)
        except OSError:
            writer.transport.abort()
            return
        self._writers.add(there_writer)
        self._begin(self._pump(reader, there_writer, answers=False))
        self._begin(self._pump(there_reader, writer, answers=True))

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, answers: bool
    ) -> None:
        loop = asyncio.get_running_loop()
        try:
            while data := await source.read(1 << 16):
                if self.is_silent or (self.is_deaf and answers):
                    continue
                if self.late_share and self._chance.random() < self.late_share:
                    self.num_late += 1
                    await asyncio.sleep(self.late_s)
                if self.delay_s:  # what follows is late, too, but not later
                    loop.call_later(self.delay_s / 2, _write, sink, data)
                else:
                    sink.write(data)
        except OSError:
            pass
        finally:
            sink.transport.abort()
            self._writers.discard(sink)


def _write(sink: asyncio.StreamWriter, data: bytes) -> None:
    if not sink.transport.is_closing():
        sink.write(data)
