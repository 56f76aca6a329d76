"""What one read of a connection may hold, fed as the event loop would."""

import asyncio
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from gateway.transport.http_protocol import MAX_HEAD_BYTES, HttpProtocol
from gateway.transport.keepalive import AcceptQueue

LARGE = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % (2 * MAX_HEAD_BYTES)
LARGE += bytes(2 * MAX_HEAD_BYTES)
NEXT = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"


class Transport(asyncio.Transport):
    """Keeps what is written until it is closed."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.written = bytearray()
        self.closed = asyncio.Event()

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.closed.set()

    abort = close

    def is_closing(self) -> bool:
        return self.closed.is_set()

    def pause_reading(self) -> None:
        """Reads come from the test."""

    resume_reading = pause_reading


async def says_ok(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})


async def answers(*reads: bytes) -> bytes:
    """All that is answered to what comes in those reads."""
    transport = Transport()
    config = uvicorn.Config(says_ok, log_config=None)
    config.load()
    protocol = HttpProtocol(
        AcceptQueue(),
        1 << 20,
        config=config,
        server_state=ServerState(),
        app_state={},
    )
    protocol.connection_made(transport)
    for read in reads:
        if transport.is_closing():
            break
        protocol.data_received(read)
        await asyncio.sleep(0)
    async with asyncio.timeout(30):
        await transport.closed.wait()
    protocol.connection_lost(None)
    return bytes(transport.written)


async def test_a_head_that_begins_behind_a_large_body_is_not_that_large() -> None:
    written = await answers(LARGE + NEXT[:20], NEXT[20:])
    assert written.count(b"HTTP/1.1 200 OK") == 2, written


async def test_a_head_is_bounded_wherever_it_begins() -> None:
    endless = b"GET / HTTP/1.1\r\nhost: x\r\nx: " + b"a" * 20_000
    written = await answers(endless, *[b"a" * 20_000] * 3)
    assert b"HTTP/1.1 431" in written, written
    written = await answers(LARGE + endless, *[b"a" * 20_000] * 4)
    assert b"HTTP/1.1 200" not in written[12:], written
