"""Gives ports to servers that tests start: none that the kernel gives to outgoing connections.

A port that was free a moment ago is given to somebody else's connection in between, or one that is
tried again and again is connected to itself: both happen with ports of the ephemeral range, and
only there. So these are below it, and each worker of a test run has a block of its own.
"""

import contextlib
import itertools
import os
import random
import socket

FIRST_PORT = 11_000
BLOCK_PORTS = 1_000
NUM_BLOCKS = 8
BUS_OFFSET = 10_000  # a Cluster node's second port is so much higher; ephemeral ones begin at 32768

_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % NUM_BLOCKS
_start = random.SystemRandom().randrange(BLOCK_PORTS)  # runs side by side begin apart
_tried = itertools.count(_start)


def free_port() -> int:
    """Returns a loopback port that nobody has, nor the one `BUS_OFFSET` above; each only once."""
    for number in itertools.islice(_tried, BLOCK_PORTS):
        port = FIRST_PORT + _worker * BLOCK_PORTS + number % BLOCK_PORTS
        with contextlib.suppress(OSError), socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", port))
            other.bind(("127.0.0.1", port + BUS_OFFSET))
            return port
    raise AssertionError(f"no port of {BLOCK_PORTS} is free")
