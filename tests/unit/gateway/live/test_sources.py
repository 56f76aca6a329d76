"""What the feed shows of a tenant's pools, whatever Redis says of it, and of what has ended."""

from types import SimpleNamespace
from typing import Any

import pytest

from gateway.live.sources import UNREADABLE, shown_pools, worker_sample
from gateway.task.pipeline import handle_task
from router.classify.task import Tenant
from router.pools.pools import Balance
from router.pools.redis_pools import PoolsUnavailable
from tests.unit.gateway.world import World

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


async def test_a_sample_has_what_has_just_ended() -> None:
    world = World()
    keys: Any = SimpleNamespace(tenant_view=SimpleNamespace(is_current=True, is_lost=False))
    policies: Any = SimpleNamespace(current=SimpleNamespace(source="built-in", shadow_version=None))
    for num_ended in (1, 2):
        assert await handle_task(world.gw, world.job(metadata={"route": "fast"})) is not None
        assert worker_sample(world.gw, keys, policies).ended == {"fast ok": num_ended}
    await world.check()
