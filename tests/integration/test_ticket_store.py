"""Tests tickets of sockets, on a real Redis."""

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from gateway.access import socket_tickets
from gateway.access.socket_tickets import LIFE_S, Holder, SocketTickets
from gateway.wire.errors import ProtocolError
from router.classify.task import Tenant
from router.redis.client import redis_client

ACME = Tenant(id="acme", tier="pro", limits={}, key_id="4fJ0")


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with redis_client(redis_url, timeout_s=30) as client:
        yield client


async def test_a_ticket_is_taken_once(redis: Redis) -> None:
    tickets = SocketTickets(redis)
    ticket = await tickets.make(ACME)
    assert await SocketTickets(redis).take(ticket) == Holder("acme", "4fJ0")
    with pytest.raises(ProtocolError, match="was used"):
        await tickets.take(ticket)


async def test_what_is_refused_takes_no_room(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_tickets, "MAX_PER_KEY", 2)
    tickets = SocketTickets(redis)
    for _ in range(2):
        await tickets.make(ACME)
    for _ in range(3):
        with pytest.raises(ProtocolError, match="as many as it may"):
            await tickets.make(ACME)
    keys = await redis.keys("*")
    assert len(keys) == 3  # the tickets, and their counter
    assert all([0 < await redis.ttl(key) <= LIFE_S for key in keys])
