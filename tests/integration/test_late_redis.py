"""Tests four gateways over wires that are late now and then, as `make accept` does for a minute."""

import asyncio
import random
from pathlib import Path

from tests.integration.late_gateways import overload
from tests.integration.redis_fleet import Server, Wire, running
from tests.integration.watched_gateway import FAST, PATIENCE_S, TENANT, gateway

SECONDS = 4.0
SHORT_US = 100_000


def taken(server: Server) -> int:
    return int(server.ask("HGET", "lw1:{acme}:p:fast", "n") or 0)


def test_limits_hold_and_all_places_come_back(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print("seed", seed)
    server = Server(tmp_path)
    with running(server):
        server.ask("PING")
        figures = asyncio.run(overload(server, SECONDS, seed))
    print(figures)
    assert figures.held, str(figures)


async def test_what_arrives_after_everybody_gave_up_is_undone(tmp_path: Path) -> None:
    """A client leaves while its reservation is on the way, and the wire brings it later."""
    server = Server(tmp_path)
    with running(server):
        server.ask("PING")
        async with Wire(server).open() as wire, gateway(wire.url, budget_us=SHORT_US) as one:
            await one.until_back()
            kept = await one.reserve("kept")
            wire.late_share, wire.late_s = 1.0, 5 * SHORT_US / 1e6
            asking = asyncio.ensure_future(one.pools.reserve_first(TENANT, "left", FAST))
            await asyncio.sleep(SHORT_US / 1e6)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            async with asyncio.timeout(PATIENCE_S):
                wire.late_share = 0.0
                await asyncio.sleep(2 * wire.late_s)
                while await asyncio.to_thread(taken, server) != 1:
                    await asyncio.sleep(0.05)
                    await one.pools.check()
            await one.pools.settle(kept, {})
            await one.until_settled()
            assert await asyncio.to_thread(taken, server) == 0
