"""Tests the client's end of a WebSocket, where the peer does not keep to the protocol."""

import asyncio

import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosedError
from websockets.frames import CloseCode

from backends.net.quick_connection import QuickConnection

PATIENCE_S = 30.0  # bounds a hang
MAX_BYTES = 1_000


@pytest.mark.parametrize("size", [MAX_BYTES + 1, 100 * MAX_BYTES])
async def test_a_peer_that_sends_too_much_and_never_closes_is_left_at_once(size: int) -> None:
    is_left = asyncio.Event()

    async def peer(connection: ServerConnection) -> None:
        connection.transport.pause_reading()  # so it sees no close
        await connection.send("x" * size)
        await is_left.wait()

    async with serve(peer, "127.0.0.1", 0, compression=None, close_timeout=0.1) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        connection = await connect(
            f"ws://127.0.0.1:{port}/",
            compression=None,
            max_size=MAX_BYTES,
            ping_interval=None,
            proxy=None,
            create_connection=QuickConnection,
        )
        assert isinstance(connection, QuickConnection)
        heard: list[bytes] = []
        connection.listen(heard.extend, MAX_BYTES)
        try:
            with pytest.raises(ConnectionClosedError) as closed:
                await asyncio.wait_for(connection.recv(), PATIENCE_S)
            assert closed.value.sent is not None
            assert closed.value.sent.code == CloseCode.MESSAGE_TOO_BIG
            assert heard == []
        finally:
            is_left.set()
            connection.transport.abort()


async def test_larger_messages_may_be_allowed_later() -> None:
    async def peer(connection: ServerConnection) -> None:
        async for message in connection:
            await connection.send(message * 3)

    async with serve(peer, "127.0.0.1", 0, compression=None) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        async with connect(
            f"ws://127.0.0.1:{port}/",
            compression=None,
            max_size=MAX_BYTES,
            proxy=None,
            create_connection=QuickConnection,
        ) as connection:
            assert isinstance(connection, QuickConnection)
            heard: asyncio.Queue[bytes] = asyncio.Queue()

            def listen(messages: list[bytes]) -> None:
                for message in messages:
                    heard.put_nowait(message)

            connection.listen(listen, MAX_BYTES)
            connection.allow(3 * MAX_BYTES)
            await connection.send("x" * MAX_BYTES)
            got = await asyncio.wait_for(heard.get(), PATIENCE_S)
            assert len(got) == 3 * MAX_BYTES
