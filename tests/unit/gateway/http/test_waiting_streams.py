"""A client that leaves while its request waits for a pool leaves its place in the queue, too."""

import asyncio
from typing import Any

import msgspec
import pytest

from gateway.http.background import BackgroundRuns
from gateway.http.streams import create_response
from gateway.task.own_input import parse_request
from gateway.wire.errors import ProtocolError
from gateway.wire.events import CreateBody
from tests.patience import until
from tests.unit.gateway.waiting_world import WaitingWorld, tenant


@pytest.mark.parametrize("way", ["whole", "events", "in the background"])
async def test_who_leaves_while_waiting_is_in_no_queue(way: str) -> None:
    world = WaitingWorld([], limits=tenant(max_concurrent=1))
    runs = BackgroundRuns(world.gw, 8)
    _, running = world.start()
    await until(lambda: len(world.fast.generations) == 1)
    fields = {"stream": way == "events", "background": way == "in the background"}
    raw = {"model": "wafer-model", "input": "Hi.", "metadata": {"route": "fast"}, **fields}
    body = msgspec.convert(raw, CreateBody)
    left = asyncio.Event()

    async def receive() -> Any:
        await left.wait()
        return {"type": "http.disconnect"}

    async def asks() -> Any:
        if body.background:
            return await runs.create(world.tenant, body, 100, receive)
        parsed = await parse_request(body, max_tokens=4_096)
        return await create_response(
            world.gw, world.tenant, parsed, receive, {}, parent=None, keep=None
        )

    asking = asyncio.create_task(asks())
    await world.waits(1)
    left.set()
    await world.waits(0)
    with pytest.raises(ProtocolError, match="left before"):
        await asking
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert len(world.fast.generations) == 1, "nothing was generated for nobody"
    await runs.close()
    await world.left()
