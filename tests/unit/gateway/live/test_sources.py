"""What the feed shows of the pools of one tenant, whatever Redis says of it."""

import pytest

from gateway.live.sources import UNREADABLE, shown_pools
from router.classify.task import Tenant
from router.pools.pools import Balance
from router.pools.redis_pools import PoolsUnavailable

TENANT = Tenant(id="acme", tier="pro", limits={})
WRONG_TYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"


async def test_a_tenant_whose_keys_redis_cannot_use_is_named_among_the_others() -> None:
    async def read(tenant: Tenant) -> tuple[Balance, ...]:
        raise PoolsUnavailable(WRONG_TYPE)

    shown = await shown_pools(TENANT, read)
    assert shown == {"tenant": "acme", "pools": [], "fault": UNREADABLE}


async def test_where_redis_answers_for_nobody_nothing_is_shown() -> None:
    async def read(tenant: Tenant) -> tuple[Balance, ...]:
        raise PoolsUnavailable("Redis is away")

    with pytest.raises(PoolsUnavailable):
        await shown_pools(TENANT, read)
