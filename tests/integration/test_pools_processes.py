"""Tests several gateway processes on one Redis: nobody exceeds a limit, and crashes heal."""

import asyncio
import json
import random
import signal
import time
from collections import Counter
from typing import Any

import pytest

from gateway.process.embedded_redis import server_binaries
from router.pools.pools import Balance
from router.pools.redis_pools import RedisPools
from tests.integration.pools_load import (
    check_limits,
    gateway,
)
from tests.integration.pools_worker import tenant_of

SECONDS = 3.0
LEASE_MS = 1_000  # of those that are killed
TEND_S = 0.05


@pytest.fixture
def first_server_only(request: pytest.FixtureRequest) -> None:
    if request.node.callspec.params["redis_server"] != server_binaries()[0]:
        pytest.skip("one server is enough for what several processes do to it")


@pytest.mark.usefixtures("first_server_only")
def test_four_gateways_never_exceed_one_tenants_limits(redis_url: str) -> None:
    print(check_limits(redis_url, SECONDS))


@pytest.mark.usefixtures("first_server_only")
async def test_twenty_kills_leave_the_pools_full_within_a_lease_and_a_second(
    redis_url: str,
) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    limits = {"requests_per_min": 10**6, "tokens_per_min": 600_000, "max_concurrent": 40}
    plan = [
        {"id": name, "limits": limits, "tokens": 500, "rate_per_s": 40, "hold_s": 0.4}
        for name in ("one", "two")
    ]
    tenants = [tenant_of(each) for each in plan]
    watcher = RedisPools(redis_url, lease_us=LEASE_MS * 1_000, budget_us=20_000_000)
    gateways: list[Any] = []
    try:
        for kill in range(20):
            gateways += [gateway(redis_url, 100 * kill + len(gateways), 60.0, plan, LEASE_MS)]
            if len(gateways) < 4:
                gateways += [gateway(redis_url, 100 * kill + 50, 60.0, plan, LEASE_MS)]
            for balance in [b for tenant in tenants for b in await watcher.balances(tenant)]:
                assert 0 <= balance.remaining <= balance.limit
            victim = gateways.pop(chance.randrange(len(gateways)))
            victim.stdout.readline()  # it works
            await asyncio.sleep(chance.uniform(0.05, 0.25))
            victim.send_signal(signal.SIGKILL)
            victim.communicate()
        for each in gateways:
            each.send_signal(signal.SIGKILL)
            each.communicate()
        held = [places(await watcher.balances(tenant)) for tenant in tenants]
        assert held != [40, 40], "nothing was under way when they died"
        num_reaped = 0
        left_s = LEASE_MS / 1e3 + 1.0
        while left_s > 0:  # as a gateway that lives on, and has no task of these tenants
            began_s = time.monotonic()
            num_reaped += await watcher.reap()
            await asyncio.sleep(TEND_S)
            # While the machine holds this process up, nobody could reap: that is not counted.
            left_s -= min(time.monotonic() - began_s, 2 * TEND_S)
        for tenant in tenants:
            balances = {b.unit: b.remaining for b in await watcher.balances(tenant)}
            assert balances["concurrent"] == 40
        assert num_reaped > 0
    finally:
        for each in gateways:
            each.kill()
        await watcher.close()


@pytest.mark.usefixtures("first_server_only")
async def test_a_keys_own_limits_hold_over_four_gateways_and_a_kill(redis_url: str) -> None:
    """Its requests are few and do not come back in time: not one more runs, wherever it asks."""
    seed = random.SystemRandom().randrange(2**31)
    print("seed", seed)
    whole = {"requests_per_min": 10**6, "tokens_per_min": 10**9, "max_concurrent": 10**4}
    tight = {"requests_per_min": 8, "tokens_per_min": 10**9, "max_concurrent": 5}
    load = {"id": "acme", "limits": whole, "tokens": 10, "rate_per_s": 60, "hold_s": 0.05}
    plan = [load | {"key": "tight", "key_limits": tight, "tokens": 7}, load | {"key": "other"}]
    key, other = map(tenant_of, plan)
    watcher = RedisPools(redis_url, lease_us=LEASE_MS * 1_000, budget_us=20_000_000)
    began_s = time.monotonic()
    gateways = [gateway(redis_url, seed + number, 1.0, plan, LEASE_MS) for number in range(4)]
    try:
        ran = Counter[int](json.loads(each.stdout.readline())[1] for each in gateways)
        while not ran[7]:  # until one of the tight key's has run: one gateway may take all
            line = gateways[0].stdout.readline()
            if not line:
                break
            ran[json.loads(line)[1]] += 1
        gateways[0].send_signal(signal.SIGKILL)
        for each in gateways:  # not by `communicate`, which loses what `readline` has read ahead
            ran.update(json.loads(line)[1] for line in each.stdout)
        took_s = time.monotonic() - began_s
        assert 0 < ran[7] <= 8 + 8 * took_s / 60, "the limit, and what came back meanwhile"
        assert ran[10] > 2 * ran[7], "the tenant's other key was not limited"
        left = {b.unit: b for b in await watcher.balances(key)}
        while left["key_concurrent"].remaining < 5:  # the test's own limit bounds it
            await watcher.reap()
            left = {b.unit: b for b in await watcher.balances(key)}
        assert "key_requests" not in {b.unit for b in await watcher.balances(other)}
    finally:
        for each in gateways:
            each.kill()
            each.communicate()
        await watcher.close()


def places(balances: tuple[Balance, ...]) -> int:
    return next(b.remaining for b in balances if b.unit == "concurrent")
