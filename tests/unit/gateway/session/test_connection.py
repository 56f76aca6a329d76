"""A connection's reader gives others a turn, whatever waits for it."""

import asyncio
from typing import Any, cast

from gateway.access.auth import Keys
from gateway.config.sections import ServerConfig
from gateway.session.connection import Connection
from gateway.transport.asgi_socket import AsgiSocket
from gateway.transport.socket_protocol import MAX_TAKEN
from tests.unit.gateway.world import World

NUM_FRAMES = 20 * MAX_TAKEN


class FullSocket:
    """Has many frames, so that none is waited for, and then its client leaves."""

    def __init__(self) -> None:
        self.num_read = 0

    async def receive(self) -> dict[str, Any]:
        self.num_read += 1
        if self.num_read > NUM_FRAMES:
            return {"type": "websocket.disconnect", "code": 1000}
        return {"type": "websocket.receive", "text": "{}"}

    async def write(self, frames: list[bytes]) -> None: ...

    def write_now(self, frames: list[bytes]) -> bool:
        return True

    def take_by(self, taker: object) -> None: ...

    def abort(self) -> None: ...


async def test_others_have_a_turn_between_the_frames_that_wait() -> None:
    world, socket = World(), FullSocket()
    connection = Connection(
        world.gw,
        ServerConfig(),
        cast("Keys", None),
        world.tenant,
        cast("AsgiSocket", socket),
    )
    serving = asyncio.create_task(connection.serve())
    most, before = 0, 0
    while not serving.done():
        await asyncio.sleep(0)
        most, before = max(most, socket.num_read - before), socket.num_read
    await serving
    assert socket.num_read == NUM_FRAMES + 1
    assert most <= MAX_TAKEN
