"""Supports the scenarios: the invariants, looked at once a second while faults go on.

In Redis, in one atomic look at each tenant's pools: no more places are taken than there are, as
many as there are leases, and no level is above its limit. Of each gateway: sockets opened less
those closed are those open. At the end: nothing is under way, no place is taken, each answer that
a client saw to its end is in the ledger exactly once, and no log or metric has a word of a prompt
or a key.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from typing import Any

import msgspec

from tests.chaos.fleet import (
    CANARY,
    ENGINE_KEY,
    LEASE_KEY,
    POOL_KEYS,
    TENANTS,
    Fleet,
    until,
)
from tests.chaos.load import Tally
from tests.e2e.gateway_process import GatewayProcess, Samples
from tests.integration.redis_fleet import Server

LOOK_S = 1.0
LEDGER = "lw1:{ledger}:entries"
ENTRY_S = 5.0  # entries go in batches, and their wait doubles while Redis is away
PER_UNIT = 60_000  # of a level: bucket.LEVEL_PER_UNIT
MAX_TOLD = 20  # violations that are kept
# Places taken, places there are, and levels beside their limits of each group; then the leases.
LOOK = """
local out = {}
for group = 2, 3 do
  local pool = redis.call('HMGET', KEYS[group], 'n', 'max', 'r', 'rpm', 't', 'tpm')
  for field = 1, 6 do table.insert(out, pool[field] or '0') end
end
for _, lease in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do table.insert(out, lease) end
return out
"""


class Watch:
    """Says what was violated, and how often it was looked."""

    def __init__(self, ask: Callable[..., Any], fleet: Fleet, *, num_beyond: int = 0) -> None:
        """`ask` sends a command to Redis. `num_beyond`: places above the limit that docs/pools.md
        allows while Redis is late or away."""
        self._ask = ask
        self._fleet = fleet
        self._num_beyond = num_beyond
        self.violations: list[str] = []
        self.num_looks = 0
        self.leases: list[int] = []

    def tell(self, violation: str) -> None:
        """Keeps a violation."""
        if len(self.violations) < MAX_TOLD:
            self.violations.append(violation)

    def look(self) -> None:
        """Looks once at Redis and all gateways, less those that do not answer."""
        self.num_looks += 1
        num_leases = 0
        for tenant in TENANTS:
            keys = [key.format(tenant) for key in (LEASE_KEY, *POOL_KEYS)]
            told = self._ask("EVAL", LOOK, 3, *keys)
            num_leases += len(told) - 12
            self._check_pools(tenant, told)
        self.leases.append(num_leases)
        for gateway in list(self._fleet.gateways):
            with contextlib.suppress(OSError):
                self._check_sockets(gateway.metrics())

    def _check_pools(self, tenant: str, told: list[str]) -> None:
        # One that ends with "!" holds nothing: it is remembered as settled.
        leases = [lease.rsplit("|", 2)[1:] for lease in told[12:] if not lease.endswith("!")]
        for index, group in enumerate(("fast", "deep")):
            held, most, requests, rpm, tokens, tpm = (
                int(n) for n in told[6 * index : 6 * index + 6]
            )
            num_leases = sum(lease[index] != "-1" for lease in leases)
            if not 0 <= held <= most + self._num_beyond:
                self.tell(f"{tenant} has {held} of {most} places on {group}")
            if held != num_leases:
                self.tell(f"{tenant} has {held} places and {num_leases} leases on {group}")
            if requests > rpm * PER_UNIT or tokens > tpm * PER_UNIT:
                self.tell(f"{tenant} has a level above its limit on {group}")

    def _check_sockets(self, samples: Samples) -> None:
        opened, closed, now = (
            samples.total(f"lanewise_ws_{name}")
            for name in ("opened_total", "closed_total", "connections")
        )
        if opened - closed != now:
            self.tell(f"{opened} sockets opened, {closed} closed, {now} open")

    async def run(self) -> None:
        """Looks once a second, until cancelled."""
        while True:
            try:
                await asyncio.to_thread(self.look)
            except Exception as error:  # Redis is away, and so says every scenario that takes it
                self.tell(f"no look: {error!r}")
            await asyncio.sleep(LOOK_S)

    async def at_the_end(self, tallies: Iterable[Tally], *, ledger: bool = True) -> None:
        """Checks what holds once all is quiet."""
        for gateway in self._fleet.gateways:
            if not await until(lambda each=gateway: not _left(each)):  # type: ignore[misc]
                self.tell(f"left behind: {_left(gateway)}")
        await until(lambda: not self._places(), timeout_s=5.0)
        if places := self._places():
            self.tell(f"{places} places are taken, and nothing runs")
        for tally in tallies:
            if tally.doubled or tally.hung:
                self.tell(f"{tally.doubled} doubled and {tally.hung} hung turns")
            if ledger:
                entered = partial(self._has_entered, tally.terminal_ids)
                await until(entered, timeout_s=ENTRY_S)
                await asyncio.to_thread(self.check_ledger, tally.terminal_ids)
        self._check_words()

    def _places(self) -> int:
        keys = [key.format(tenant) for tenant in TENANTS for key in POOL_KEYS]
        return sum(int(self._ask("HGET", key, "n") or 0) for key in keys)

    def _entered(self) -> Counter[str]:
        entries = [pair[1][1] for pair in self._ask("XRANGE", LEDGER, "-", "+")]
        return Counter(msgspec.json.decode(entry)["task_id"] for entry in entries)

    def _has_entered(self, wanted: set[str]) -> bool:
        return wanted <= self._entered().keys()

    def check_ledger(self, wanted: set[str]) -> None:
        """Checks that each of these answers stands in it once, and nothing stands in it twice."""
        counted = self._entered()
        if twice := [task for task, number in counted.items() if number > 1]:
            self.tell(f"{len(twice)} tasks stand twice in the ledger, such as {twice[0]}")
        if missing := wanted - set(counted):
            self.tell(f"{len(missing)} of {len(wanted)} answers are not in the ledger")

    def _check_words(self) -> None:
        pages = [self._fleet.logs]
        for gateway in self._fleet.gateways:
            with contextlib.suppress(OSError):
                pages.append(text_of_metrics(gateway))
        for word in (CANARY, ENGINE_KEY, *TENANTS.values()):
            if any(word in page for page in pages):
                self.tell(f"{word!r} stands in a log or a metric")
        if "Traceback" in pages[0]:
            self.tell("a traceback stands in a log")


def _left(gateway: GatewayProcess) -> dict[str, float]:
    return gateway.metrics().left_behind() if gateway.process.poll() is None else {}


def text_of_metrics(gateway: GatewayProcess) -> str:
    """Returns a scrape as it came."""
    with gateway._open("/metrics") as answer:
        return str(answer.read().decode())


@contextlib.asynccontextmanager
async def watching(server: Server, fleet: Fleet, *, num_beyond: int = 0) -> AsyncIterator[Watch]:
    """Looks once a second meanwhile."""
    watch = Watch(server.ask, fleet, num_beyond=num_beyond)
    looking = asyncio.create_task(watch.run())
    try:
        yield watch
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
