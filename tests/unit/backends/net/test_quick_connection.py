"""A peer is given up when nothing comes of it, and not because its pong is late."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest
import websockets
from websockets.asyncio.client import connect
from websockets.server import ServerProtocol

from backends.net.quick_connection import QuickConnection

PING_S = 0.05
WAIT_S = 30.0  # bounds a hang


class Peer(asyncio.Protocol):
    """Completes the handshake, and answers no pings; says something as often as it is asked to."""

    def __init__(self) -> None:
        self._protocol = ServerProtocol()
        self.transport: asyncio.Transport
        self.num_pings = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.num_pings += bool(data and data[0] == 0x89)
        if self._protocol.handshake_exc is None and not self.num_pings:
            self._protocol.receive_data(data)
            for event in self._protocol.events_received():
                if isinstance(event, websockets.Request):
                    self._protocol.send_response(self._protocol.accept(event))
                    self.transport.write(b"".join(self._protocol.data_to_send()))

    def say(self) -> None:
        self.transport.write(b"\x82\x01x")  # a binary message of one byte


@contextlib.asynccontextmanager
async def connected() -> AsyncIterator[tuple[Peer, QuickConnection]]:
    peer, loop = Peer(), asyncio.get_running_loop()
    server = await loop.create_server(lambda: peer, "127.0.0.1", 0, family=socket.AF_INET)
    port = server.sockets[0].getsockname()[1]
    try:
        async with connect(
            f"ws://127.0.0.1:{port}",
            create_connection=QuickConnection,
            compression=None,
            ping_interval=PING_S,
            ping_timeout=PING_S,
            close_timeout=PING_S,
            proxy=None,
        ) as connection:
            assert isinstance(connection, QuickConnection)
            yield peer, connection
            peer.transport.abort()
    finally:
        server.close()


async def until_pinged(peer: Peer, num_pings: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while peer.num_pings < num_pings:
            peer.say()
            await asyncio.sleep(PING_S / 20)


async def test_who_speaks_is_there_without_a_pong() -> None:
    async with connected() as (peer, connection):
        connection.listen(lambda _: None, 1_000)
        await until_pinged(peer, 5)


async def test_who_is_silent_is_given_up() -> None:
    async with connected() as (_, connection):
        with pytest.raises(websockets.ConnectionClosed, match="keepalive ping timeout"):
            await asyncio.wait_for(connection.recv(), WAIT_S)


async def test_who_is_not_read_is_not_given_up() -> None:
    async with connected() as (peer, connection):
        connection.transport.pause_reading()
        async with asyncio.timeout(WAIT_S):
            while peer.num_pings < 5:  # noqa: ASYNC110 - the peer has no event for it
                await asyncio.sleep(PING_S)
