"""What gateways on one Redis tell each other of lost responses."""

import asyncio

import pytest

from gateway.config.sections import ServerConfig
from gateway.rejoin import elsewhere
from gateway.rejoin.elsewhere import Elsewhere
from gateway.rejoin.mail import ALL
from gateway.rejoin.notes import Remembers, packed
from gateway.rejoin.rejoins import Rejoins
from router.redis.client import redis_client
from tests.unit.gateway.world import World

NEVER_S = 3_600.0
NUM_LOOKS = 2_000


async def test_what_a_dead_gateway_remembered_is_not_waited_for(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elsewhere, "CLAIM_S", NEVER_S)
    gw = World().gw
    rejoins = Rejoins(gw, ServerConfig())
    dead = packed([Remembers("lw1:lost:dead", ("resp_1",), NEVER_S)])
    async with redis_client(redis_url, timeout_s=30) as redis, asyncio.timeout(30):
        others = Elsewhere(gw, redis, rejoins)
        carrying = asyncio.create_task(others.run())
        try:
            while not await redis.publish(ALL, dead):
                pass  # it does not listen yet
            for _ in range(NUM_LOOKS):
                if rejoins.num_elsewhere:
                    break
                await asyncio.sleep(0.01)
            assert rejoins.num_elsewhere == 1
            assert await others.recall(("acme", "key"), "resp_1") is None
            assert rejoins.num_elsewhere == 0
        finally:
            carrying.cancel()
            await asyncio.wait((carrying,))
