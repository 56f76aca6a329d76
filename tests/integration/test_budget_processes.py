"""Four gateway processes spend one tenant's budgets, and one is killed: not a nano-dollar over."""

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway.process.embedded_redis import server_binaries
from router.classify.task import Account, GroupLimits, Tenant
from router.pools.pools import Demand
from router.pools.redis_pools import RedisPools

LEASE_MS = 1_000
MOST_AT_ONCE_NUSD = 8 * 3_000_000  # that one worker runs
DAY_NUSD, RUN_NUSD = 400_000_000, 250_000_000
LIMITS = GroupLimits(requests_per_min=10**6, tokens_per_min=10**9, max_concurrent=10**6)
ACCOUNTS = (
    Account("t", (DAY_NUSD, -1, -1), (DAY_NUSD // 2, -1, -1)),
    Account("r.night", (-1, -1, RUN_NUSD)),
)
SPENDER = Tenant(id="acme", tier="any", limits={"fast": LIMITS}, accounts=ACCOUNTS)
WITHOUT_RUN = Tenant(id="acme", tier="any", limits={"fast": LIMITS}, accounts=ACCOUNTS[:1])
WORKER = Path(__file__).with_name("budget_worker.py")


@contextmanager
def gateways(url: str, seed: int) -> Iterator[list["subprocess.Popen[str]"]]:
    made = [
        subprocess.Popen(
            [sys.executable, str(WORKER), url, str(LEASE_MS), str(seed + number)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(4)
    ]
    try:
        yield made
    finally:
        for each in made:
            each.kill()
            each.communicate()


async def test_budgets_are_exact_under_four_gateways_and_a_kill(
    redis_url: str, request: pytest.FixtureRequest
) -> None:
    if request.node.callspec.params["redis_server"] != server_binaries()[0]:
        pytest.skip("one server is enough for what several processes do to it")
    seed = random.SystemRandom().randrange(2**31)
    print("seed", seed)
    pools = RedisPools(redis_url, lease_us=LEASE_MS * 1_000, budget_us=20_000_000)
    try:
        with gateways(redis_url, seed) as running:
            for each in running:
                assert each.stderr is not None
                each.stderr.readline()  # it works
            victim = running[0]
            victim.send_signal(signal.SIGKILL)
            said = [each.communicate(timeout=60)[0] for each in running]
        charged = [json.loads(line) for text in said for line in text.splitlines()]
        # What the killed one reserved comes back within a lease; nothing of it was charged.
        deadline_s = time.monotonic() + 60
        balances = await pools.accounts("acme", ACCOUNTS)
        while any(balance.held for balance in balances) and time.monotonic() < deadline_s:
            await pools.reap()
            balances = await pools.accounts("acme", ACCOUNTS)
        assert [balance.held for balance in balances] == [0, 0]
        of_run = sum(each["nusd"] for each in charged if each["has_run"])
        total = sum(each["nusd"] for each in charged)
        # The victim may have settled what it ran without living to say so.
        assert 0 <= balances[0].spent[0] - total <= MOST_AT_ONCE_NUSD
        assert 0 <= balances[1].spent[2] - of_run <= MOST_AT_ONCE_NUSD
        assert balances[0].spent[0] <= DAY_NUSD
        assert balances[1].spent[2] <= RUN_NUSD
        assert max(each["refused"] for each in charged) > 0, "nobody met a budget"
        assert sum(each["told"] for each in charged) <= 1, "a soft limit was told twice"

        # A budget that is spent refuses; a run that is raised goes on.
        most = RUN_NUSD - balances[1].spent[2] + 1
        refused = await pools.reserve_first(SPENDER, "more", [(Demand("fast", 1, most),)])
        assert refused.over_budget is not None
        await pools.raise_run("acme", "r.night", RUN_NUSD + most)
        left = DAY_NUSD - balances[0].spent[0]
        grant = await pools.reserve_first(SPENDER, "more", [(Demand("fast", 1, min(most, left)),)])
        assert grant.over_budget is None
    finally:
        await pools.close()
