"""Four gateways at five times a tenant's limits for a minute, one round to Redis in twenty late.

Each gateway is a process, with a wire of its own to one Redis. Of three tenants one presses its
requests, one its tokens and one its places. All three stay within all limits and the bound that
docs/pools.md states, and 2 s after the last task no place is taken. The pools alone are asked the
same by `tests/integration/test_late_redis.py`.
"""

import asyncio
import contextlib
import os
import random
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import msgspec

from router.classify.task import GroupLimits
from router.pools.local_pools import MIN_UNANSWERED, local_limits
from tests.e2e.gateway_process import GatewayProcess
from tests.integration.redis_fleet import Server, Wire, running

LIMIT_S = 300
SECONDS = 60.0
NUM_GATEWAYS = 4
TOKENS = (60, 180)  # of an answer, from and to: 2 s on the deep engine, as it is simulated
MOST_TOKENS = TOKENS[1] + 20  # of a task; its prompt is short
# Each tenant meets one limit, and its others are out of reach.
TIGHT = GroupLimits(requests_per_min=240, tokens_per_min=30_720, max_concurrent=8)
AMPLE = GroupLimits(requests_per_min=60_000, tokens_per_min=9_000_000, max_concurrent=200)
TENANTS = {
    name.replace("_", "-"): msgspec.structs.replace(AMPLE, **{name: getattr(TIGHT, name)})
    for name in ("requests_per_min", "tokens_per_min", "max_concurrent")
}
OFFERED_PER_S = 5 * TIGHT.requests_per_min / 60  # of each tenant, over all gateways
LATE_SHARE = 1 / 40  # of the pieces each way, so that one round in twenty is late
LATE_S, BUDGET_MS = 0.3, 50
PATIENT_MS = 2_000  # where none is late, a busy machine is no reason to limit locally
KEY = "sk-of-a-tenant-that-presses-its-"
_TENANT = """
[[tenants]]
id = "{id}"
keys = ["{key}"]
limits.deep = {{ requests_per_min = {limits.requests_per_min}, \
tokens_per_min = {limits.tokens_per_min}, max_concurrent = {limits.max_concurrent} }}
"""
CREATED, TERMINALS = b"event: response.created", (b"response.completed", b"response.incomplete")


class Terminal(msgspec.Struct):
    """Says what the last event says of the tokens."""

    class Response(msgspec.Struct):
        class Usage(msgspec.Struct):
            total_tokens: int

        usage: Usage

    response: Response


class Load:
    """Runs a tenant's tasks on all gateways, and keeps what they used."""

    def __init__(self, presses: str, seed: int) -> None:
        self.presses = presses  # the limit that is tight
        self.limits = TENANTS[presses]
        self.chance = random.Random(f"{seed} {presses}")
        self.num_requests = self.num_tokens = self.num_running = self.most_at_once = 0
        self.refused = Counter[str]()  # by the limits that refused
        self.modes = Counter[str]()
        self.failures: list[str] = []

    async def one(self, client: httpx.AsyncClient) -> None:
        """Runs one task, and notes how it ended."""
        num_tokens = self.chance.randint(*TOKENS)
        body = {"model": "lanewise-deep", "input": "Count.", "stream": True, "store": False}
        body |= {"min_tokens": num_tokens, "max_output_tokens": num_tokens, "ignore_eos": True}
        try:
            async with client.stream("POST", "/responses", json=body) as answer:
                self.modes[answer.headers.get("x-lanewise-ratelimit-mode", "none")] += 1
                if answer.status_code == 429:
                    error = msgspec.json.decode(await answer.aread())["error"]
                    self.refused.update(error.get("violated-policies", ()))
                elif answer.status_code != 200:
                    self.failures.append(f"{answer.status_code} {await answer.aread()!r:.200}")
                else:
                    await self._follow(answer)
        except httpx.HTTPError as error:
            self.failures.append(repr(error))

    async def _follow(self, answer: httpx.Response) -> None:
        self.num_requests += 1
        is_open, last = False, b""
        try:
            async for line in answer.aiter_lines():
                if not is_open and line.encode() == CREATED:
                    is_open = True
                    self.num_running += 1
                    self.most_at_once = max(self.most_at_once, self.num_running)
                elif line.startswith("data:"):
                    last = line.removeprefix("data:").encode()
        finally:
            self.num_running -= is_open
        if any(kind in last[:80] for kind in TERMINALS):
            usage = msgspec.json.decode(last, type=Terminal).response.usage
            self.num_tokens += usage.total_tokens
        else:
            self.failures.append(f"{last!r:.200}")

    async def of(self, gateway: GatewayProcess, seconds: float) -> None:
        """Offers tasks to one gateway."""
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + seconds
        headers = {"authorization": f"Bearer {KEY}{self.presses}"}
        limits = httpx.Limits(max_connections=None)
        async with (
            httpx.AsyncClient(
                base_url=gateway.base_url, headers=headers, limits=limits, timeout=60.0
            ) as client,
            asyncio.TaskGroup() as tasks,
        ):
            while loop.time() < ends_s:
                tasks.create_task(self.one(client))
                await asyncio.sleep(self.chance.expovariate(OFFERED_PER_S / NUM_GATEWAYS))

    def held(self, minutes: float, places_left: int, *, is_late: bool) -> bool:
        """Prints the figures; says whether all are within the bounds, and the limit was pressed."""
        limits = self.limits
        # A gateway's tasks that no reply of Redis has granted: see docs/pools.md.
        part = local_limits(limits, NUM_GATEWAYS).max_concurrent
        bound = max(MIN_UNANSWERED, part) if is_late else 0
        beyond = NUM_GATEWAYS * bound
        most_requests = limits.requests_per_min * (1 + minutes) + beyond
        # What runs was admitted by what it was expected to use; the rest is a debt.
        in_debt = (min(limits.max_concurrent, self.most_at_once) + beyond) * MOST_TOKENS
        most_tokens = limits.tokens_per_min * (1 + minutes) + in_debt
        most_at_once = limits.max_concurrent + beyond
        print(
            f"{self.presses}: {self.num_requests} requests of {most_requests:.0f}, "
            f"{self.num_tokens} tokens of {most_tokens:.0f}, {self.most_at_once} tasks at once of "
            f"{most_at_once}, which is {bound} more a gateway; refused by {dict(self.refused)}; "
            f"limited by {dict(self.modes)}; {places_left} places taken 2 s after the last task"
        )
        print("\n".join(self.failures[:10]))
        return (
            self.num_requests <= most_requests
            and self.num_tokens <= most_tokens
            and self.most_at_once <= most_at_once
            and self.refused.total() > 0
            and not self.failures
            and places_left == 0
        )


@contextlib.asynccontextmanager
async def gateways(
    folder: Path, wires: list[Wire], budget_ms: int
) -> AsyncIterator[list[GatewayProcess]]:
    """Starts one process for each wire, and waits until it is ready."""
    config = folder / "late.toml"
    config.write_text(
        "".join(
            _TENANT.format(id=name, key=KEY + name, limits=limits)
            for name, limits in TENANTS.items()
        )
    )
    environ = {"LANEWISE_REDIS_BUDGET_MS": str(budget_ms), "LANEWISE_KEY_PEPPERS": "1:" + "ab" * 32}
    made = [
        GatewayProcess(folder, "--config", str(config), "--redis", wire.url, environ=environ)
        for wire in wires
    ]
    try:
        for gateway in made:
            await asyncio.to_thread(gateway.wait_until_ready)
        yield made
    finally:
        for gateway in made:
            await asyncio.to_thread(gateway.stop)


async def places_left(server: Server) -> dict[str, int]:
    """Returns those of each tenant still taken in Redis, 2 s after the last task."""
    left = dict.fromkeys(TENANTS, 1)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(2.0):
            while any(left.values()):
                await asyncio.sleep(0.05)
                for name in TENANTS:
                    key = f"lw1:{{{name}}}:p:deep"
                    left[name] = int(await asyncio.to_thread(server.ask, "HGET", key, "n") or 0)
    return left


async def held(
    server: Server,
    folder: Path,
    seed: int,
    *,
    seconds: float = SECONDS,
    late_share: float = LATE_SHARE,
) -> bool:
    """Offers the loads, prints the figures, and says whether all of them are within the bounds.

    Where no reply is late (`late_share` 0) the limits hold to the task.
    """
    loop, loads = asyncio.get_running_loop(), [Load(name, seed) for name in TENANTS]
    budget_ms = BUDGET_MS if late_share else PATIENT_MS
    async with contextlib.AsyncExitStack() as stack:
        wires = [Wire(server, seed + number) for number in range(NUM_GATEWAYS)]
        for wire in wires:
            await stack.enter_async_context(wire.open())
        served = await stack.enter_async_context(gateways(folder, wires, budget_ms))
        await asyncio.sleep(2.0)  # for each to know of all
        for wire in wires:
            wire.late_share, wire.late_s = late_share, LATE_S
        started_s = loop.time()
        await asyncio.gather(*(load.of(gateway, seconds) for load in loads for gateway in served))
        minutes = (loop.time() - started_s) / 60
        left = await places_left(server)
        print(f"{sum(wire.num_late for wire in wires)} late pieces")
    verdicts = [
        load.held(minutes, left[load.presses], is_late=late_share > 0) for load in loads
    ]  # all are printed
    return all(verdicts)


def main() -> bool:
    """Prints the figures and the seed; returns whether all held."""
    seed = int(os.environ.get("SEED", random.SystemRandom().randrange(1 << 32)))
    print(f"seed {seed}")
    with tempfile.TemporaryDirectory(prefix="lw-late-") as name:
        server = Server(Path(name))
        with running(server):
            server.ask("PING")
            return asyncio.run(held(server, Path(name), seed))
