"""All gateways on a Redis forget a tenant that one of them erases."""

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from gateway.store.erasures import Erasures
from router.redis.client import redis_client


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with redis_client(redis_url, timeout_s=30) as client:
        yield client


async def test_others_forget_at_their_next_look(redis: Redis) -> None:
    here, there, late = (Erasures(redis, "tenants") for _ in range(3))
    forgotten: list[str] = []

    async def forget(tenant_id: str) -> None:
        forgotten.append(tenant_id)

    await there.look(forget)
    await here.announce("acme")
    await here.announce("other")
    await there.look(forget)
    assert forgotten == ["acme", "other"]
    await here.announce("acme")
    await there.look(forget)
    assert forgotten == ["acme", "other", "acme"], "each erasure counts, and each but once"
    await late.look(forget)  # it began after them, and remembers nothing of before
    assert len(forgotten) == 3
    await redis.delete("lw1:{erased}:number", "lw1:{erased}:tenants")
    await here.announce("new")
    await there.look(forget)
    assert forgotten[3:] == ["new"], "a Redis that lost its data counts anew"


async def test_deleted_responses_are_no_erased_tenants(redis: Redis) -> None:
    tenants, responses = Erasures(redis, "tenants"), Erasures(redis, "responses")
    forgotten: list[str] = []

    async def forget(erased_id: str) -> None:
        forgotten.append(erased_id)

    await tenants.look(forget)
    await responses.look(forget)
    await Erasures(redis, "responses").announce("resp_1")
    await tenants.look(forget)
    assert forgotten == []
    await responses.look(forget)
    assert forgotten == ["resp_1"]
