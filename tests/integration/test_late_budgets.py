"""Tests budgets that were met first, as replies say that come late or whose client has left."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from router.classify.task import Account, GroupLimits, Tenant
from router.pools.budgets import AccountBalance
from router.pools.pools import Demand
from router.pools.redis_pools import PoolsUnavailable, RedisPools
from tests.integration.redis_fleet import Server, Wire, running
from tests.patience import until

LIMITS = GroupLimits(requests_per_min=6_000, tokens_per_min=1_000_000, max_concurrent=40)
SOFT = Account("t", (1_000, -1, -1), (500, 700, -1))
PLAIN = Tenant(id="acme", tier="pro", limits={"fast": LIMITS}, accounts=(SOFT,))
OF_KEY = Tenant(
    id="acme",
    tier="pro",
    key_id="k1",
    limits={"fast": LIMITS},
    key_limits={"fast": LIMITS},
    accounts=(SOFT, Account("k.k1", (-1, 600, -1), (-1, -1, -1))),
)
SHORT_US = 100_000
Told = list[tuple[str, AccountBalance]]


def asked(nusd: int) -> list[tuple[Demand, ...]]:
    """Returns two ranked routes: the accounts have to tell their tokens and money."""
    return [(Demand("fast", 100, nusd),), (Demand("fast", 50, nusd),)]


def hearing(pools: RedisPools) -> Told:
    told: Told = []
    pools.on_late_budgets = lambda tenant_id, found: told.extend((tenant_id, e) for e in found)
    return told


async def spent(pools: RedisPools, tenant: Tenant, nusd: int) -> None:
    """Spends so much, of which no reply has told yet."""
    grant = await pools.reserve_first(tenant, "first", asked(0))
    assert grant.reservation is not None
    await pools.settle(grant.reservation, {}, nusd)


async def left(pools: RedisPools, tenant: Tenant, nusd: int) -> None:
    """Asks as a client that leaves before the reply is there."""
    asking = asyncio.ensure_future(pools.reserve_first(tenant, "left", asked(nusd)))
    await asyncio.sleep(0)
    asking.cancel()


async def until_told(told: Told) -> AccountBalance:
    await until(lambda: bool(told))
    ((tenant_id, balance),) = told
    assert tenant_id == "acme"
    return balance


@pytest.fixture
async def pools(redis_url: str) -> AsyncIterator[RedisPools]:
    pools = RedisPools(redis_url, budget_us=20_000_000)
    yield pools
    await pools.close()


@pytest.mark.parametrize("tenant", [PLAIN, OF_KEY])
async def test_a_reply_whose_client_has_left_tells(pools: RedisPools, tenant: Tenant) -> None:
    told = hearing(pools)
    await spent(pools, tenant, 600)
    await left(pools, tenant, 0)
    balance = await until_told(told)
    assert (balance.account, balance.spent[0]) == (SOFT, 600)
    assert balance.soft_told == (True, False, False)
    grant = await pools.reserve_first(tenant, "next", asked(0))
    assert not any(any(each.soft_told) for each in grant.accounts), "once"


async def test_a_refusal_whose_client_has_left_tells(pools: RedisPools) -> None:
    told = hearing(pools)
    await spent(pools, OF_KEY, 400)
    await left(pools, OF_KEY, 300)
    balance = await until_told(told)
    assert (balance.account.name, balance.hard_told) == ("k.k1", (False, True, False))


async def test_a_late_reply_tells(tmp_path: Path) -> None:
    server = Server(tmp_path)
    with running(server):
        server.ask("PING")
        async with Wire(server).open() as wire:
            pools = RedisPools(wire.url, budget_us=SHORT_US)
            told = hearing(pools)
            await spent(pools, PLAIN, 600)
            wire.late_share, wire.late_s = 1.0, 5 * SHORT_US / 1e6
            with pytest.raises(PoolsUnavailable):
                await pools.reserve_first(PLAIN, "late", asked(0))
            balance = await until_told(told)
            assert balance.soft_told == (True, False, False)
            await pools.close()
