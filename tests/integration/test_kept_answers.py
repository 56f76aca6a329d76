"""Answers are kept by tenant and key, within bounds, on a real Redis."""

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from gateway.store.kept_answers import MARK_TTL_S, TTL_S, KeptAnswer, KeptAnswers
from gateway.store.stored_bytes import ANSWERS, StoredBytes
from gateway.wire.errors import ProtocolError
from router.redis.client import redis_client

KIB = 1 << 10
ASK, OTHER = b"a digest", b"another digest"


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with redis_client(redis_url, timeout_s=30) as client:
        yield client


def answers_of(redis: Redis, max_tenant_bytes: int | None = None) -> KeptAnswers:
    counted = StoredBytes(redis, TTL_S, max_tenant_bytes, records=ANSWERS)
    return KeptAnswers(redis, lambda: True, counted)


def answer(body: bytes = b"{}") -> KeptAnswer:
    return KeptAnswer(ASK, ((b"content-type", b"application/json"),), body)


async def code_of(answers: KeptAnswers, name: str, request: bytes) -> str:
    with pytest.raises(ProtocolError) as refused:
        await answers.claim("acme", name, request)
    return refused.value.code


async def test_a_key_is_marked_while_it_runs_and_answered_afterwards(redis: Redis) -> None:
    answers, other_gateway = answers_of(redis), answers_of(redis)
    assert await answers.claim("acme", "one", ASK) is None
    assert await code_of(other_gateway, "one", ASK) == "idempotency_key_in_use"
    assert await code_of(other_gateway, "one", OTHER) == "idempotency_key_reused"
    assert await other_gateway.claim("other", "one", OTHER) is None  # another tenant's
    await answers.end("acme", "one", answer())
    assert await other_gateway.claim("acme", "one", ASK) == answer()
    assert await other_gateway.claim("acme", "one", ASK) == answer()
    assert await code_of(answers, "one", OTHER) == "idempotency_key_reused"
    assert 0 < await redis.ttl("lw1:{acme}:i:one") <= TTL_S


async def test_what_is_not_kept_may_run_again_and_a_dead_gateways_mark_falls_away(
    redis: Redis,
) -> None:
    answers = answers_of(redis)
    assert await answers.claim("acme", "one", ASK) is None
    await answers.end("acme", "one", None)
    assert await answers.claim("acme", "one", OTHER) is None
    assert 0 < await redis.ttl("lw1:{acme}:i:one:runs") <= MARK_TTL_S
    await redis.delete("lw1:{acme}:i:one:runs")
    await answers.renew("acme", "one", OTHER)  # as one does that was paused for long
    assert await code_of(answers, "one", OTHER) == "idempotency_key_in_use"


async def test_a_tenants_oldest_go_beyond_its_bound_and_all_upon_erasure(redis: Redis) -> None:
    answers = answers_of(redis, max_tenant_bytes=100 * KIB)
    for number in range(12):
        assert await answers.claim("acme", f"k{number}", ASK) is None
        await answers.end("acme", f"k{number}", answer(b"x" * 15 * KIB))
    left = [number for number in range(12) if await redis.exists(f"lw1:{{acme}}:i:k{number}")]
    assert left == [6, 7, 8, 9, 10, 11]
    assert await answers.erase("acme") == len(left)
    assert await redis.keys("lw1:{acme}:*") == []


async def test_without_redis_nothing_is_promised(redis: Redis) -> None:
    answers = KeptAnswers(redis, lambda: False, StoredBytes(redis, TTL_S, records=ANSWERS))
    assert await code_of(answers, "one", ASK) == "server_is_overloaded"
