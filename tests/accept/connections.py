"""Holds what the scripts about hostile clients share: a gateway, its memory, raw connections."""

import contextlib
import resource
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.e2e.gateway_process import GatewayProcess

KEY = "sk-lanewise-dev"
MIB = 1 << 20


@contextlib.contextmanager
def gateway(*arguments: str, max_descriptors: int | None = None) -> Iterator[GatewayProcess]:
    """Runs `lanewise serve` with an embedded Redis, and no more descriptors than that."""
    with tempfile.TemporaryDirectory(prefix="lw-accept-") as folder:
        process = GatewayProcess(Path(folder), *arguments)
        try:
            if max_descriptors is not None:
                limit = (max_descriptors, max_descriptors)
                resource.prlimit(process.process.pid, resource.RLIMIT_NOFILE, limit)
            process.wait_until_ready()
            yield process
        finally:
            process.stop()


def connected(process: GatewayProcess, sent: bytes = b"") -> socket.socket:
    """Returns a connection on which this was sent, as far as the other side took it."""
    made = socket.create_connection(("127.0.0.1", process.port), 60)
    with contextlib.suppress(ConnectionError):
        made.sendall(sent)
    return made


def num_open(connections: list[socket.socket]) -> int:
    """Returns how many the other side has not closed; what it sent is read and dropped."""
    found = 0
    for each in connections:
        each.setblocking(False)
        try:
            while each.recv(65_536):
                pass
        except BlockingIOError:
            found += 1
        except OSError:
            pass
    return found


def rss_bytes(process: GatewayProcess, field: str = "VmRSS") -> int:
    """Returns what the gateway has in memory; `VmHWM`: the most it ever had."""
    status = Path(f"/proc/{process.process.pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024
