"""Measures what pools cost a gateway: CPU-microseconds per admitted and settled task.

    python tests/bench/pools.py [--json] [--seconds 4]

Rows with 1, 8 and 64 tasks at once run as fast as they can; the last keeps 5,000 tasks a second
for some seconds, arriving at random (seeded). Each is measured through `RedisPools` and, in the
same run and on the same server, through redis-py call by call with the same script and arguments.
The CPU is this process's alone; the server has its own row. Wall time says what a task waits.
"""

import argparse
import asyncio
import json
import random
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import uvloop
from redis.asyncio import BlockingConnectionPool, Redis

from gateway.process.embedded_redis import EmbeddedRedis
from router.classify.task import GroupLimits, Tenant
from router.pools.pools import LEASE_US, Demand
from router.pools.redis_pools import RedisPools
from router.pools.script_calls import NUM_KEYS, SCRIPT, grant_of, reserve_call, settle_call
from router.redis.servers import Script

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench import rows as shape

MANY = GroupLimits(requests_per_min=10**9, tokens_per_min=10**9, max_concurrent=10**6)
TENANTS = [
    Tenant(id=f"tenant-{number}", tier="bench", limits={"fast": MANY, "deep": MANY})
    for number in range(20)
]
RANKED = [(Demand("deep", 900), Demand("fast", 500)), (Demand("fast", 500),)]
SEED = 5
RATE_PER_S = 5_000
NUM_CONNECTIONS = 64  # redis-py's: it has one call under way on each

Pair = Callable[[int], Awaitable[None]]


class Row(NamedTuple):
    """Is one measurement."""

    name: str
    cpu_us: float  # of this process, per pair
    server_us: float  # of the server, per pair
    wait_us: float  # median time that a pair took
    num_pairs: int


def pool_pair(pools: RedisPools) -> Pair:
    async def pair(number: int) -> None:
        tenant = TENANTS[number % len(TENANTS)]
        grant = await pools.reserve_first(tenant, f"resp_{number:048x}", RANKED)
        assert grant.reservation is not None
        await pools.settle(grant.reservation, {"fast": 400, "deep": 800})

    return pair


def redis_py_pair(client: "Redis") -> Pair:
    sha = Script(SCRIPT, NUM_KEYS).sha

    async def pair(number: int) -> None:
        tenant = TENANTS[number % len(TENANTS)]
        name = f"resp_{number:048x}"
        call = reserve_call(tenant, name, RANKED, LEASE_US // 1_000)
        reply = await client.evalsha(sha, NUM_KEYS, *call)
        grant = grant_of(reply, tenant, name, RANKED)
        assert grant.reservation is not None
        settle = settle_call(grant.reservation, {"fast": 400, "deep": 800})
        assert await client.evalsha(sha, NUM_KEYS, *settle) == 1

    return pair


def server_cpu_us(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 10_000.0


async def at_once(pair: Pair, width: int, first: int, num_pairs: int) -> list[float]:
    waits: list[float] = []
    numbers = iter(range(first, first + num_pairs))

    async def worker() -> None:
        for number in numbers:
            started = time.perf_counter()
            await pair(number)
            waits.append((time.perf_counter() - started) * 1e6)

    await asyncio.gather(*(worker() for _ in range(width)))
    return waits


async def paced(pair: Pair, first: int, num_pairs: int) -> list[float]:
    """Lets tasks arrive at random, exponentially apart, whether those before have ended or not."""
    chance, waits = random.Random(SEED), []
    loop = asyncio.get_running_loop()
    running: set[asyncio.Task[None]] = set()

    async def timed(number: int) -> None:
        started = time.perf_counter()
        await pair(number)
        waits.append((time.perf_counter() - started) * 1e6)

    due_s = loop.time()
    for number in range(first, first + num_pairs):
        due_s += chance.expovariate(RATE_PER_S)
        if due_s > loop.time():
            await asyncio.sleep(due_s - loop.time())
        task = asyncio.ensure_future(timed(number))
        running.add(task)
        task.add_done_callback(running.discard)
    await asyncio.gather(*running)
    return waits


async def idle_cpu_s(num_pairs: int) -> float:
    """Returns what `paced` itself costs: the arrivals of tasks that do nothing."""

    async def nothing(number: int) -> None:
        del number

    before = time.process_time()
    await paced(nothing, 0, num_pairs)
    return time.process_time() - before


async def measure(seconds: float) -> list[Row]:
    server = EmbeddedRedis()
    url = await server.start()
    assert server.pid is not None
    pools = RedisPools(url, budget_us=5_000_000)
    connections = BlockingConnectionPool.from_url(url, max_connections=NUM_CONNECTIONS, timeout=600)
    client: Redis = Redis(connection_pool=connections)
    await client.script_load(SCRIPT)
    rows: list[Row] = []
    first = 0
    num_paced = int(seconds * RATE_PER_S)
    idle_s = await idle_cpu_s(num_paced)
    try:
        for label, pair in (("pools", pool_pair(pools)), ("redis-py", redis_py_pair(client))):
            await at_once(pair, 8, first, 500)  # connections, caches
            first += 500
            for width in (1, 8, 64, 0):
                num_pairs = num_paced if width == 0 else 4_000
                server_before, before = server_cpu_us(server.pid), time.process_time()
                if width:
                    waits = await at_once(pair, width, first, num_pairs)
                    cpu_s = time.process_time() - before
                else:
                    waits = await paced(pair, first, num_pairs)
                    cpu_s = time.process_time() - before - idle_s
                served_us = server_cpu_us(server.pid) - server_before
                name = f"{width} at once" if width else f"{RATE_PER_S:,} tasks/s"
                rows.append(
                    Row(
                        f"{label}, {name}",
                        cpu_s * 1e6 / num_pairs,
                        served_us / num_pairs,
                        statistics.median(waits),
                        num_pairs,
                    )
                )
                first += num_pairs
    finally:
        await client.aclose()
        await connections.disconnect()
        await pools.close()
        await server.stop()
    return rows


def rows_of(rows: list[Row]) -> list[shape.Row]:
    """Compares each kind of load through the pools with redis-py."""
    theirs = {row.name.partition(", ")[2]: row for row in rows if row.name.startswith("redis-py")}
    made = []
    for row in rows:
        label, _, load = row.name.partition(", ")
        if label != "pools":
            continue
        served = f"the server: {row.server_us:.0f} CPU-us a pair, {theirs[load].server_us:.0f}"
        made.append(
            shape.Row(
                name=f"reserve and settle, {load}",
                unit="CPU-us/task",
                values=[row.cpu_us],
                baseline="redis-py, same script",
                baseline_values=[theirs[load].cpu_us],
                goal=shape.ahead(),
                per="task",
                cpu_us=[row.cpu_us],
                wall_us=[row.wait_us],
                baseline_cpu_us=[theirs[load].cpu_us],
                baseline_wall_us=[theirs[load].wait_us],
                load=f"{load}: {served} by redis-py",
            )
        )
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object per row")
    parser.add_argument("--seconds", type=float, default=4.0, help="how long the last row runs")
    shape.add_argument(parser)
    arguments = parser.parse_args()
    measured = uvloop.run(measure(arguments.seconds))
    if arguments.rows is not None:
        shape.publish(rows_of(measured), arguments)
        return
    for row in measured:
        if arguments.json:
            print(json.dumps(row._asdict()))
        else:
            print(
                f"{row.name:<26} {row.cpu_us:7.1f} CPU-us a pair   server {row.server_us:6.1f}   "
                f"median wait {row.wait_us:8.0f} us"
            )


if __name__ == "__main__":
    main()
