"""Every hostile kind, and a minute of seeded mutations, beside a tenant who means well.

None may end in a 5xx, a traceback, silence, or words of the gateway's insides; the gateway's memory
stays bounded; and the other tenant's p99 at most doubles.
"""

import asyncio
import itertools
import os
import random
import re
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from tests.e2e.gateway_process import GatewayProcess, wait_until_at_rest
from tests.e2e.socket_client import SocketClient
from tests.hostile.gateway import OTHER_KEY, serving
from tests.hostile.kinds import Target, faults_of, kinds
from tests.hostile.mutations import mutations

LIMIT_S = 900
MUTATIONS_S = 60.0
QUIET_S = 15.0  # of the other tenant alone, before
AT_ONCE = 4
PAUSE_S = 0.02  # between the other tenant's tasks
MAX_GROWTH_BYTES = 256 << 20


def rss_bytes(pid: int) -> int:
    """Resident memory of a process; proc(5)."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) << 10


class OtherTenant:
    """Short tasks on one socket, one after the other, and how long each took."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self._gateway = gateway
        self.taken_s: list[float] = []

    async def run(self) -> None:
        """Works until cancelled."""
        async with SocketClient.open(self._gateway, OTHER_KEY) as client:
            client.checks = False
            while True:
                client.received.clear()
                began_s = time.perf_counter()
                await client.create("Say hi.", max_output_tokens=16, store=False)
                await client.terminal()
                self.taken_s.append(time.perf_counter() - began_s)
                await asyncio.sleep(PAUSE_S)

    def p99_ms(self) -> float:
        """Of what was done since this was asked last."""
        taken_s, self.taken_s = self.taken_s, []
        return statistics.quantiles(taken_s, n=100)[-1] * 1e3


async def attack(target: Target, seed: int) -> AsyncIterator[str]:
    """Sends all kinds, then mutations for a minute; yields the faults."""
    known = list(kinds())
    async for kind, fault in faults_of(target, known, AT_ONCE):
        yield f"{kind.name}: {fault}"
    until_s = time.monotonic() + MUTATIONS_S
    made = itertools.takewhile(lambda _: time.monotonic() < until_s, mutations(seed))
    async for kind, fault in faults_of(target, made, AT_ONCE):
        yield f"{kind.name}: {fault}"
    print(f"{len(known)} kinds, and a minute of mutations of seed {seed}")


async def held(gateway: GatewayProcess, target: Target, seed: int) -> bool:
    """Measures the other tenant alone, then beside the attack."""
    other = OtherTenant(gateway)
    working = asyncio.create_task(other.run())
    try:
        await asyncio.sleep(QUIET_S)
        quiet_ms, before_bytes = other.p99_ms(), rss_bytes(gateway.process.pid)
        faults = [fault async for fault in attack(target, seed)]
        beside_ms = other.p99_ms()
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
    grown_bytes = rss_bytes(gateway.process.pid) - before_bytes
    wait_until_at_rest(gateway)
    num_tracebacks = gateway.log.count("Traceback")
    print(*faults, sep="\n")
    print(
        f"{len(faults)} faults, {num_tracebacks} tracebacks; memory grew by "
        f"{grown_bytes >> 20} MiB; the other tenant's p99 was {quiet_ms:.0f} ms alone and "
        f"{beside_ms:.0f} ms beside the attack"
    )
    is_small = grown_bytes <= MAX_GROWTH_BYTES
    return not faults and not num_tracebacks and is_small and beside_ms <= 2 * quiet_ms


def main() -> bool:
    """Serves, attacks, and says whether all held."""
    seed = int(os.environ.get("SEED", random.SystemRandom().randrange(1 << 32)))
    with tempfile.TemporaryDirectory(prefix="lw-h-") as name, serving(Path(name)) as both:
        return asyncio.run(held(*both, seed))
