"""Every hostile kind, and a minute of seeded mutations, beside a tenant who means well.

None may end in a 5xx, a traceback, silence, or words of the gateway's insides; the gateway's memory
stays bounded; and the other tenant's p99 at most doubles.

The attacker uses the gateway's machine, as other programs may. What that does to a tenant is no
harm of the gateway's, so it is measured: a second gateway, which nobody attacks, serves the same
tenant at the same time, and the p99 there counts where it is above that before the attack.
"""

import asyncio
import contextlib
import itertools
import os
import random
import re
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from tests.e2e.gateway_process import GatewayProcess, wait_until_at_rest
from tests.hostile.client import Target
from tests.hostile.gateway import serving
from tests.hostile.kinds import faults_of, kinds
from tests.hostile.mutations import mutations

ROOT = Path(__file__).parents[2]
LIMIT_S = 900
MUTATIONS_S = 60.0
QUIET_S = 15.0  # of the other tenant alone, before
AT_ONCE = 1  # a client by itself; four at once fill the core, and all who share it wait for it
WARM_S = 2.0  # for it to begin
NICE = 10  # of the attacker, who has a machine of its own elsewhere
MAX_GROWTH_BYTES = 256 << 20


def rss_bytes(pid: int) -> int:
    """Returns a process's resident memory; proc(5)."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) << 10


class OtherTenant:
    """Runs `tests.hostile.other_tenant` in a process, and keeps how long each of its tasks took."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._taken_s: list[float] = []
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, port: int) -> "OtherTenant":
        """Lets it work."""
        command = (sys.executable, "-m", "tests.hostile.other_tenant", str(port))
        pipe = asyncio.subprocess.PIPE
        return cls(await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=pipe))

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self._taken_s.append(float(line))

    async def warm(self) -> None:
        """Returns once it is at work, and forgets what that took."""
        while not self._taken_s and self._process.returncode is None:  # noqa: ASYNC110 - a pipe's
            await asyncio.sleep(0.1)
        await asyncio.sleep(WARM_S)
        self._taken_s = []

    def p99_ms(self) -> float:
        """Returns it of what was done since this was asked last."""
        taken_s, self._taken_s = self._taken_s, []
        return statistics.quantiles(taken_s, n=100)[-1] * 1e3

    async def stop(self) -> None:
        """Ends it; raises `AssertionError` if it had ended before."""
        assert self._process.returncode is None, "the other tenant got no answer"
        self._process.kill()
        await self._process.wait()
        await self._reading


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


async def held(gateway: GatewayProcess, target: Target, spared: GatewayProcess, seed: int) -> bool:
    """Measures the other tenant alone, then beside the attack, here and on the spared gateway."""
    other, elsewhere = [await OtherTenant.start(each.port) for each in (gateway, spared)]
    os.nice(NICE)
    try:
        await other.warm()
        await elsewhere.warm()
        await asyncio.sleep(QUIET_S)
        quiet_ms, before_bytes = other.p99_ms(), rss_bytes(gateway.process.pid)
        elsewhere.p99_ms()
        faults = [fault async for fault in attack(target, seed)]
        beside_ms, spared_ms = other.p99_ms(), elsewhere.p99_ms()
    finally:
        await other.stop()
        await elsewhere.stop()
    grown_bytes = rss_bytes(gateway.process.pid) - before_bytes
    wait_until_at_rest(gateway)
    num_tracebacks = gateway.log.count("Traceback")
    if num_tracebacks:
        print("Traceback" + gateway.log.split("Traceback", 1)[1][:4_000])
    print(*faults, sep="\n")
    print(
        f"{len(faults)} faults, {num_tracebacks} tracebacks; memory grew by "
        f"{grown_bytes >> 20} MiB; the other tenant's p99 was {quiet_ms:.1f} ms alone, "
        f"{beside_ms:.1f} ms beside the attack, and {spared_ms:.1f} ms meanwhile on the gateway "
        "that was spared"
    )
    is_small = grown_bytes <= MAX_GROWTH_BYTES
    is_spared = beside_ms <= 2 * max(quiet_ms, spared_ms)
    return not faults and not num_tracebacks and is_small and is_spared


def main() -> bool:
    """Serves, attacks, and says whether all held."""
    seed = int(os.environ.get("SEED", random.SystemRandom().randrange(1 << 32)))
    with contextlib.ExitStack() as stack:
        folders = [stack.enter_context(tempfile.TemporaryDirectory(prefix="lw-h-")) for _ in "ab"]
        served = [stack.enter_context(serving(Path(folder))) for folder in folders]
        (gateway, target), (spared, _) = served
        return asyncio.run(held(gateway, target, spared, seed))
