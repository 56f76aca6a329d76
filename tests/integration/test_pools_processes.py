"""Several gateway processes on one Redis: limits that nobody exceeds, and crashes that heal."""

import asyncio
import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gateway.process.embedded_redis import server_binaries
from router.pools.pools import Balance
from router.pools.redis_pools import RedisPools
from tests.integration.pools_worker import tenant_of

WORKER = Path(__file__).parent / "pools_worker.py"
ROOT = Path(__file__).parents[2]
NUM_GATEWAYS = 4
SECONDS = 3.0
LEASE_MS = 1_000  # of those that are killed
TEND_S = 0.05

UNBOUND = {"requests_per_min": 10**6, "tokens_per_min": 10**9, "max_concurrent": 10**4}
# Each is bound by another pool, and offered several times what that gives.
PLAN: list[dict[str, Any]] = [
    {
        "id": "by-requests",
        "limits": UNBOUND | {"requests_per_min": 120},
        "tokens": 10,
        "rate_per_s": 60,
        "hold_s": 0.0,
    },
    {
        "id": "by-tokens",
        "limits": UNBOUND | {"tokens_per_min": 6_000},
        "tokens": 70,
        "rate_per_s": 50,
        "hold_s": 0.0,
    },
    {
        "id": "by-places",
        "limits": UNBOUND | {"max_concurrent": 5},
        "tokens": 10,
        "rate_per_s": 100,
        "hold_s": 0.05,
    },
]


def gateway(
    url: str, seed: int, seconds: float, plan: list[dict[str, Any]], lease_ms: int = 30_000
) -> Any:
    command = [sys.executable, str(WORKER), url, str(seconds), str(lease_ms), str(seed)]
    return subprocess.Popen(
        [*command, json.dumps(plan)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
    )


@pytest.fixture
def first_server_only(request: pytest.FixtureRequest) -> None:
    if request.node.callspec.params["redis_server"] != server_binaries()[0]:
        pytest.skip("one server is enough for what several processes do to it")


def run_gateways(url: str, seconds: float) -> tuple[float, dict[str, list[list[Any]]]]:
    """How long they ran, and the tasks of each tenant that they ran."""
    gateways = [gateway(url, seed, seconds, PLAN) for seed in range(NUM_GATEWAYS)]
    ran: dict[str, list[list[Any]]] = {}
    for each in gateways:
        output, _ = each.communicate(timeout=seconds + 60)
        assert each.returncode == 0
        for line in output.splitlines():
            task = json.loads(line)
            ran.setdefault(task[0], []).append(task)
    started_s = min(task[2] for task in ran.pop(""))
    ended_s = max(task[2] for tasks in ran.values() for task in tasks)
    return ended_s - started_s, ran


def most_at_once(tasks: list[list[Any]]) -> int:
    changes = [(task[2], 1) for task in tasks] + [(task[3], -1) for task in tasks]
    running = most = 0
    for _, change in sorted(changes):
        running += change
        most = max(most, running)
    return most


def check_limits(url: str, seconds: float) -> str:
    """Nobody got more than a full pool and its refill; and everybody got that, or nearly."""
    elapsed_s, ran = run_gateways(url, seconds)
    minutes = (elapsed_s + 0.002) / 60  # the server's milliseconds are whole ones
    requests, tokens = len(ran["by-requests"]), sum(task[1] for task in ran["by-tokens"])
    most = most_at_once(ran["by-places"])
    assert 120 <= requests <= 120 + 120 * minutes
    assert 6_000 - 70 <= tokens <= 6_000 + 6_000 * minutes
    assert 3 <= most <= 5
    assert len(ran["by-places"]) > 5 * seconds
    return (
        f"{elapsed_s:.1f} s: {requests} requests of {120 + 120 * minutes:.1f}, {tokens} tokens of "
        f"{6_000 + 6_000 * minutes:.1f}, at most {most} of 5 places at once"
    )


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
        num_swept = 0
        left_s = LEASE_MS / 1e3 + 1.0
        while left_s > 0:  # as a gateway that lives on, and has no task of these tenants
            began_s = time.monotonic()
            num_swept += await watcher.tend()
            await asyncio.sleep(TEND_S)
            # While the machine holds this process up, nobody could sweep: that is not counted.
            left_s -= min(time.monotonic() - began_s, 2 * TEND_S)
        for tenant in tenants:
            balances = {b.unit: b.remaining for b in await watcher.balances(tenant)}
            assert balances["concurrent"] == 40
        assert num_swept > 0
    finally:
        for each in gateways:
            each.kill()
        await watcher.close()


def places(balances: tuple[Balance, ...]) -> int:
    return next(b.remaining for b in balances if b.unit == "concurrent")
