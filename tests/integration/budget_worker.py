"""Plays a gateway process as budgets see it: reserves what a task can cost, charges its cost.

    python budget_worker.py URL LEASE_MS SEED

Prints `up` on standard error once it has reserved, and a JSON line per task that was charged. Ends
when it has been refused often.
"""

import asyncio
import json
import random
import sys

from router.classify.task import Account, GroupLimits, Tenant
from router.pools.pools import Demand, Reservation
from router.pools.redis_pools import RedisPools

LIMITS = GroupLimits(requests_per_min=10**6, tokens_per_min=10**9, max_concurrent=10**6)
ENOUGH_REFUSALS = 200


async def main(url: str, lease_ms: int, seed: int, accounts: tuple[Account, ...]) -> None:
    chance = random.Random(seed)
    pools = RedisPools(url, lease_us=lease_ms * 1_000, budget_us=20_000_000)
    both = Tenant(id="acme", tier="any", limits={"fast": LIMITS}, accounts=accounts)
    own = Tenant(id="acme", tier="any", limits={"fast": LIMITS}, accounts=accounts[:1])
    live: dict[str, Reservation] = {}
    num_refused = num_told = 0
    number = 0

    async def act(name: str, has_run: bool) -> None:
        nonlocal num_refused, num_told
        most = chance.randrange(1, 3_000_000)
        tenant = both if has_run else own
        grant = await pools.reserve_first(tenant, name, [(Demand("fast", 1, most),)])
        num_told += grant.accounts[0].soft_told[0]
        if grant.reservation is None:
            num_refused += 1
            return
        if not number:
            print("up", file=sys.stderr, flush=True)
        live[name] = grant.reservation
        await asyncio.sleep(chance.random() * 0.02)
        nusd = chance.randrange(most + 1)
        await pools.settle(live.pop(name), {"fast": 1}, nusd)
        said = {"nusd": nusd, "has_run": has_run, "refused": num_refused, "told": num_told}
        num_told = 0
        print(json.dumps(said), flush=True)

    async def renew() -> None:
        while True:
            await asyncio.sleep(lease_ms / 3_000)
            await pools.renew(list(live.values()))

    renewing = asyncio.create_task(renew())
    while num_refused < ENOUGH_REFUSALS:
        await asyncio.gather(
            *(act(f"{seed}-{number}-{part}", chance.random() < 0.5) for part in range(8))
        )
        number += 1
    renewing.cancel()
    await pools.close()


if __name__ == "__main__":
    day, run = (400_000_000, -1, -1), (-1, -1, 250_000_000)
    given = (Account("t", day, (200_000_000, -1, -1)), Account("r.night", run))
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), given))
