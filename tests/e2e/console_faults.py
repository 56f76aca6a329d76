"""Breaks, by kill -9, what may break under a gateway that somebody watches, and mends it."""

import contextlib
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.e2e.gateway_process import (
    CONFIG,
    DEVELOPMENT_KEY,
    GatewayProcess,
    free_port,
    redis_binary,
    redis_server,
    served,
)

LINKED = f"""
[[backends]]
kind = "link"
name = "far"
options = {{{{ url = "ws://127.0.0.1:{{port}}/v1/link", key = "{DEVELOPMENT_KEY}" }}}}

[[backends]]
kind = "gpu"
"""


class Fault(NamedTuple):
    """Holds a gateway that is watched, and what breaks under it."""

    gateway: GatewayProcess
    words: str  # that the page says of it
    strike: Callable[[], None]
    mend: Callable[[], None]
    wait_until_back: Callable[[], object]  # until what was mended serves


@contextlib.contextmanager
def killed_redis() -> Iterator[Fault]:
    """Kills Redis, which comes back empty."""
    with tempfile.TemporaryDirectory(prefix="lw-fault-") as name:
        port = free_port()
        command = [redis_binary(), "--port", str(port), "--save", "", "--dir", name]
        running: list[subprocess.Popen[bytes]] = []

        def start() -> None:
            running.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))

        start()
        try:
            with served(Path(name), "--redis", f"redis://127.0.0.1:{port}") as gateway:
                yield Fault(
                    gateway,
                    "Redis does not answer",
                    lambda: _kill(running[-1]),
                    start,
                    lambda: _answers(port),
                )
        finally:
            _kill(running[-1])


@contextlib.contextmanager
def killed_engine() -> Iterator[Fault]:
    """Kills an engine in a process of its own; another takes its port."""
    with _redis() as (folder, url), contextlib.ExitStack() as stack:
        running: list[GatewayProcess] = []
        port = free_port()

        def start() -> None:
            running.append(GatewayProcess(folder, "--redis", url, engine="wafer", port=port))

        start()
        stack.callback(lambda: _kill(running[-1].process))
        running[-1].wait_until_ready()
        (folder / "linked.toml").write_text(CONFIG + LINKED.format(port=port))
        gateway = stack.enter_context(served(folder, "--config", "linked.toml", "--redis", url))

        def back() -> None:
            running[-1].wait_until_ready()

        words = "The backend far does not answer"
        yield Fault(gateway, words, lambda: _kill(running[-1].process), start, back)


@contextlib.contextmanager
def killed_gateway() -> Iterator[Fault]:
    """Kills another gateway on the same Redis; a new one takes its place."""
    with _redis() as (folder, url), contextlib.ExitStack() as stack:
        running: list[GatewayProcess] = []

        def start() -> None:
            running.append(GatewayProcess(folder, "--redis", url))

        start()
        stack.callback(lambda: _kill(running[-1].process))
        running[-1].wait_until_ready()
        gateway = stack.enter_context(served(folder, "--redis", url))

        def back() -> None:
            running[-1].wait_until_ready()

        words = "1 of 2 gateways on this Redis are alive"
        yield Fault(gateway, words, lambda: _kill(running[-1].process), start, back)


FAULTS = {"redis": killed_redis, "engine": killed_engine, "another gateway": killed_gateway}


@contextlib.contextmanager
def _redis() -> Iterator[tuple[Path, str]]:
    with tempfile.TemporaryDirectory(prefix="lw-fault-") as name, redis_server(Path(name)) as url:
        yield Path(name), url


def _answers(port: int) -> None:
    """Returns once somebody listens there."""
    for _ in range(600):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise AssertionError(f"nobody listens on {port}")


def _kill(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()
