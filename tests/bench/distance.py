"""Puts distance on one machine: whoever connects to FAR reaches NEAR after a delay.

A network device of its own (TUN, Linux) whose other end is this process. What is sent to FAR comes
here as whole IP packets; each is held for the delay and put back with its two addresses swapped, so
that it arrives at NEAR from FAR, and answers go back the same way. So both ends are the kernel's
own TCP: handshakes, slow start and acknowledgements take as many round trips as they do. Nothing is
lost, nothing comes out of order, and the link is as wide as the machine is fast.

    python tests/bench/distance.py --one-way-ms 10       # as root, or with CAP_NET_ADMIN

It goes with the process; `away` below runs it and waits until it stands.
"""

import argparse
import contextlib
import fcntl
import os
import select
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

NEAR, FAR, MASK = "198.18.0.1", "198.18.0.2", "255.255.255.252"  # RFC 2544: for benchmarks
DEVICE = "/dev/net/tun"
START_TIMEOUT_S = 20.0  # bounds a hang
MAX_HELD = 10_000  # packets; more are dropped, as a full queue on the way would
PACKET_BYTES = 1 << 16

# linux/if_tun.h, linux/sockios.h, linux/if.h
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_SIOCSIFADDR, _SIOCSIFNETMASK, _SIOCSIFFLAGS = 0x8916, 0x891C, 0x8914
_IFF_UP, _IFF_RUNNING = 0x1, 0x40


def open_device() -> int:
    """Opens a device that carries NEAR's packets to FAR; gives its other end."""
    file = os.open(DEVICE, os.O_RDWR | os.O_NONBLOCK)
    granted = fcntl.ioctl(file, _TUNSETIFF, struct.pack("16sH22x", b"", _IFF_TUN | _IFF_NO_PI))
    name = granted[:16]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for request, address in ((_SIOCSIFADDR, NEAR), (_SIOCSIFNETMASK, MASK)):
            record = struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(address))
            fcntl.ioctl(control, request, struct.pack("16s16s8x", name, record))
        flags = struct.pack("16sH22x", name, _IFF_UP | _IFF_RUNNING)
        fcntl.ioctl(control, _SIOCSIFFLAGS, flags)
    return file


def swapped(packet: bytes) -> bytes:
    """Turns an IPv4 packet back to its sender; its checksums are sums, and still hold."""
    return packet[:12] + packet[16:20] + packet[12:16] + packet[20:]


def relay(file: int, delay_s: float) -> None:
    """Hold each packet for so long, for ever."""
    held: deque[tuple[float, bytes]] = deque()  # when it is due, and it
    while True:
        wait_s = max(0.0, held[0][0] - time.monotonic()) if held else None
        if select.select([file], [], [], wait_s)[0]:
            with contextlib.suppress(BlockingIOError):
                while True:
                    packet = os.read(file, PACKET_BYTES)
                    is_ipv4 = packet[0] >> 4 == 4
                    if is_ipv4 and len(held) < MAX_HELD:
                        held.append((time.monotonic() + delay_s, swapped(packet)))
        while held and held[0][0] <= time.monotonic():
            os.write(file, held.popleft()[1])


@contextlib.contextmanager
def away(one_way_s: float) -> Iterator[int]:
    """Run the relay in a process of its own while this is entered; gives its id.

    Raises:
        RuntimeError: The device cannot be made; its words say why, and what to do.
    """
    command = [sys.executable, str(Path(__file__)), "--one-way-ms", str(one_way_s * 1e3)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        said = process.stdout.readline().strip()
        if said != "up":
            raise RuntimeError(said or "the relay ended")
        yield process.pid
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def round_trip_s(port: int, times: int = 9) -> float:
    """Returns how long a TCP connection to FAR takes to open: one round trip."""
    took = []
    for _ in range(times):
        started_s = time.perf_counter()
        with socket.create_connection((FAR, port), START_TIMEOUT_S):
            took.append(time.perf_counter() - started_s)
    return statistics.median(took)


def main() -> int:
    """Make the device, say "up", relay."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--one-way-ms", type=float, required=True)
    asked = parser.parse_args()
    try:
        file = open_device()
    except OSError as error:
        print(f"no network device ({error}): run as root, where {DEVICE} is", flush=True)
        return 1
    print("up", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        relay(file, asked.one_way_ms / 1e3)
    return 0


if __name__ == "__main__":
    sys.exit(main())
