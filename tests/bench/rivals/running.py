"""Starts, watches and ends rivals as processes."""

import contextlib
import os
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.bench.clocks import cpu_us
from tests.bench.ending import end
from tests.bench.rivals.rival import Rival, Upstream
from tests.e2e.gateway_process import free_port

START_LIMIT_S = 120.0
END_LIMIT_S = 10.0


class CannotStartError(Exception):
    """It was installed but does not serve; the message is the reason, for the report."""


class Running(NamedTuple):
    """Is a rival that serves."""

    rival: Rival
    pid: int
    url: str  # up to and with what stands before /responses
    headers: tuple[str, ...]

    def cpu_us(self) -> float:
        """Returns the time of its whole process tree so far."""
        return sum(map(cpu_us, tree(self.pid)))


def tree(pid: int) -> list[int]:
    """Returns a process and its living descendants."""
    found, left = [], [pid]
    while left:
        pid = left.pop()
        with contextlib.suppress(OSError):  # it may end meanwhile
            threads = list(Path(f"/proc/{pid}/task").iterdir())
            found.append(pid)
            for thread in threads:
                with contextlib.suppress(OSError):
                    left += map(int, (thread / "children").read_text().split())
    return found


@contextlib.contextmanager
def running(rival: Rival, folder: Path, scratch: Path, upstream: Upstream) -> Iterator[Running]:
    """Gives the rival, once it answers.

    Raises:
        CannotStartError: It ended, or did not answer in time.
    """
    port = free_port()
    how = rival.start(folder, scratch, port, upstream)
    slug = re.sub(r"\W+", "-", rival.name.lower())
    log_path = scratch / f"{slug}-{port}.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            how.command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=scratch,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **how.environ},
            start_new_session=True,
        )
    try:
        deadline_s = time.monotonic() + START_LIMIT_S
        while True:
            if how.port_in_log:
                found = re.search(re.escape(how.port_in_log) + r"(\d+)", log_path.read_text())
                port = int(found[1]) if found else 0
            if port and answers(f"http://127.0.0.1:{port}{how.ready_path}"):
                break
            if process.poll() is not None or time.monotonic() > deadline_s:
                ended = "did not answer in time" if process.poll() is None else "ended"
                raise CannotStartError(f"it {ended}: {log_path.read_text(errors='replace')[-400:]}")
            time.sleep(0.2)
        headers = tuple(header.format(upstream=upstream.url) for header in rival.headers)
        url = f"http://127.0.0.1:{port}{how.base_path}"
        yield Running(rival, process.pid, url, headers)
    finally:
        end(process, signal.SIGTERM, END_LIMIT_S)


def answers(url: str) -> bool:
    """Says whether a server there answers, and with no error of its own."""
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except urllib.error.HTTPError as error:
        return error.code < 500
    except OSError:
        return False
