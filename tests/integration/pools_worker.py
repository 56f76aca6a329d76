"""Plays a gateway process as pools see it: admits, holds, settles, renews, until killed.

    python pools_worker.py URL SECONDS LEASE_MS SEED PLAN

PLAN is JSON: tenants with their limits and what a task of theirs asks. Prints one JSON line per
task that ran, with the machine's monotonic clock: [tenant, tokens, granted at, settled at].
"""

import asyncio
import json
import random
import sys
import time
from collections.abc import Awaitable, Callable

from router.classify.task import GroupLimits, Tenant
from router.pools.pools import Demand, Reservation
from router.pools.redis_pools import PoolsUnavailable, RedisPools


async def main(url: str, seconds: float, lease_ms: int, seed: int, plan: str) -> None:
    chance = random.Random(seed)
    pools = RedisPools(url, lease_us=lease_ms * 1_000, budget_us=20_000_000)
    live: dict[str, Reservation] = {}
    ends_s = time.monotonic() + seconds

    async def act(number: int, tenant: Tenant, tokens: int, hold_s: float) -> None:
        name = f"{seed}-{tenant.id}-{tenant.key_id}-{number}"
        grant = await pools.reserve_first(tenant, name, [(Demand("fast", tokens),)])
        granted_s = time.monotonic()
        if grant.reservation is None:
            return
        live[name] = grant.reservation
        await asyncio.sleep(hold_s * chance.random() * 2)
        settled_s = time.monotonic()
        await pools.settle(live.pop(name), {"fast": tokens})
        print(json.dumps([tenant.id, tokens, granted_s, settled_s]), flush=True)

    async def tasks(tenant: Tenant, tokens: int, rate_per_s: float, hold_s: float) -> None:
        running: set[asyncio.Task[None]] = set()
        number = 0
        while time.monotonic() < ends_s:
            number += 1
            task = asyncio.create_task(act(number, tenant, tokens, hold_s))
            running.add(task)
            task.add_done_callback(running.discard)
            await asyncio.sleep(chance.expovariate(rate_per_s))
        await asyncio.gather(*running)

    async def every(interval_s: float, duty: Callable[[], Awaitable[object]]) -> None:
        while True:
            await asyncio.sleep(interval_s)
            try:
                await duty()
            except PoolsUnavailable as error:
                print(error, file=sys.stderr)

    print(json.dumps(["", 0, time.monotonic(), 0]), flush=True)
    duties = [
        asyncio.create_task(every(lease_ms / 3_000, lambda: pools.renew(list(live.values())))),
        asyncio.create_task(every(0.1, pools.reap)),
    ]
    await asyncio.gather(
        *(
            tasks(tenant_of(each), each["tokens"], each["rate_per_s"], each["hold_s"])
            for each in json.loads(plan)
        )
    )
    for duty in duties:
        duty.cancel()
    await pools.close()


def tenant_of(plan: dict[str, object]) -> Tenant:
    limits = GroupLimits(**plan["limits"])  # type: ignore[arg-type]
    of_key = plan.get("key_limits")
    key_limits = {"fast": GroupLimits(**of_key)} if isinstance(of_key, dict) else {}
    key_id = str(plan.get("key", ""))
    return Tenant(
        id=str(plan["id"]),
        tier="any",
        limits={"fast": limits},
        key_id=key_id,
        key_limits=key_limits,  # type: ignore[arg-type]
    )


if __name__ == "__main__":
    url, seconds, lease_ms, seed, plan = sys.argv[1:]
    asyncio.run(main(url, float(seconds), int(lease_ms), int(seed), plan))
