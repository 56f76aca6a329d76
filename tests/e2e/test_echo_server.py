"""Tests the server of `make conformance`, whose suite is skipped where no Python 2.7 is found."""

import websockets

from tests.conformance.autobahn import echo_server


async def test_it_echoes_text_and_bytes() -> None:
    with echo_server() as port:
        async with websockets.connect(f"ws://127.0.0.1:{port}") as socket:
            for message in ("a word", b"\x00\xff"):
                await socket.send(message)
                assert await socket.recv() == message
