"""Tests the loads and faults of `make chaos`, for seconds: the invariants hold, however slowly."""

import asyncio
import signal
from pathlib import Path

from tests.chaos.fleet import LEASE_KEY, POOL_KEYS, redis_and_fleet, until
from tests.chaos.load import Load
from tests.chaos.watch import Watch, watching

SEED = 20
SECONDS = 4.0


async def test_a_drain_and_a_frozen_redis_cost_no_turn_and_break_no_invariant(
    tmp_path: Path,
) -> None:
    async with redis_and_fleet(tmp_path, 2) as (server, fleet):
        async with watching(server, fleet) as watch:
            load = Load(lambda: fleet.urls, num_sockets=10, turns_per_s=20, seed=SEED, chains=True)
            run = asyncio.create_task(load.run(SECONDS))
            await asyncio.sleep(SECONDS / 4)
            server.send(signal.SIGSTOP)
            await asyncio.sleep(SECONDS / 4)
            server.send(signal.SIGCONT)
            drained = fleet.gateways.pop()
            assert await asyncio.to_thread(drained.stop) == 0, drained.log
            tally = await run
            (kept,) = fleet.gateways
            assert await until(lambda: not kept.metrics().total("lanewise_ratelimit_degraded"))
            await watch.at_the_end([tally])
        assert tally.num_good > 0, str(tally)
        assert (tally.lost, tally.doubled, tally.hung) == (0, 0, 0), str(tally)
        assert not watch.violations
        assert watch.num_looks > 0
        await _finds_what_is_planted(Watch(server.ask, fleet), server)


async def _finds_what_is_planted(watch: Watch, server: "object") -> None:
    """Plants a place that nobody gave back, a lease of nobody, and an answer charged twice."""
    ask = server.ask  # type: ignore[attr-defined]
    pool, lease = POOL_KEYS[0].format("steady"), LEASE_KEY.format("steady")
    ask("HINCRBY", pool, "n", 1)
    watch.look()
    assert "1 places and 0 leases" in watch.violations[-1]
    ask("HINCRBY", pool, "n", -1)
    ask("ZADD", lease, 1 << 52, "2:nobody|5|-1")
    watch.look()
    assert "0 places and 1 leases" in watch.violations[-1]
    ask("ZREM", lease, "2:nobody|5|-1")
    entry = ask("XRANGE", "lw1:{ledger}:entries", "-", "+", "COUNT", 1)[0][1]
    ask("XADD", "lw1:{ledger}:entries", "*", *entry)
    watch.check_ledger({"resp_unknown"})
    assert "1 tasks stand twice" in watch.violations[-2]
    assert "1 of 1 answers are not in the ledger" in watch.violations[-1]
