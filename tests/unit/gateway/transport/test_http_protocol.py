"""Tests what one read of a connection may hold, fed as the event loop would."""

import asyncio
import gc
import weakref
from functools import partial
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from gateway.transport.http_protocol import MAX_HEAD_BYTES, MAX_HEADERS, PIECE_BYTES, HttpProtocol
from gateway.transport.keepalive import AcceptQueue
from gateway.transport.socket_protocol import WATCH

LARGE = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % (2 * MAX_HEAD_BYTES)
LARGE += bytes(2 * MAX_HEAD_BYTES)
NEXT = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"


class Transport(asyncio.Transport):
    """Keeps what is written until it is closed."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.written = bytearray()
        self.closed = asyncio.Event()
        self.is_paused = False  # reads come from the test even so

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.closed.set()

    abort = close

    def is_closing(self) -> bool:
        return self.closed.is_set()

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False


async def says_ok(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})


def made(transport: Transport, app: Any = says_ok) -> HttpProtocol:
    config = uvicorn.Config(app, log_config=None)
    config.load()
    protocol = HttpProtocol(
        AcceptQueue(),
        1 << 20,
        config=config,
        server_state=ServerState(),
        app_state={},
    )
    protocol.connection_made(transport)
    return protocol


async def answers(*reads: bytes) -> bytes:
    """Returns all that is answered to what comes in those reads."""
    transport = Transport()
    protocol = made(transport)
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


async def test_a_whole_head_is_bounded_though_its_last_read_is_short() -> None:
    """Also where it offers an upgrade that is ignored, so that it is read again."""
    upgrade = b"connection: upgrade, close\r\nupgrade: h2c\r\n"
    for more in (b"connection: close\r\n", upgrade):
        head = b"GET / HTTP/1.1\r\nhost: x\r\n" + more + b"x: " + b"a" * (MAX_HEAD_BYTES - 200)
        for last in (b"b" * 20, b"b" * 2_000):
            written = await answers(head[:30_000], head[30_000:], last + b"\r\n\r\n")
            is_large = len(head) + len(last) > MAX_HEAD_BYTES
            assert (b"HTTP/1.1 431" in written) == is_large, (more, last, written)


async def test_headers_are_bounded_in_number_of_one_name_too() -> None:
    for num_headers, is_refused in ((MAX_HEADERS, False), (MAX_HEADERS + 1, True)):
        more = b"x: y\r\n" * (num_headers - 2)
        written = await answers(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n%b\r\n" % more)
        assert (b"HTTP/1.1 431" in written) == is_refused, num_headers


ONE = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9000\r\n\r\n" + b"\n" * 9_000


@pytest.mark.parametrize("reads", [[ONE * 5_000, NEXT], [ONE * 500 + ONE[:9], ONE[9:] + NEXT]])
async def test_requests_that_come_together_are_read_as_they_are_answered(
    reads: list[bytes],
) -> None:
    transport = Transport()
    protocol = made(transport)
    most = 0
    for read in reads:
        protocol.data_received(read)
        assert transport.is_paused
    async with asyncio.timeout(30):
        while not transport.is_closing():
            most = max(most, len(protocol.pipeline))
            await asyncio.sleep(0)
    protocol.connection_lost(None)
    assert transport.written.count(b"HTTP/1.1 200 OK") == b"".join(reads).count(b"GET")
    assert most <= PIECE_BYTES / len(ONE) + 1


async def test_a_body_of_blank_lines_is_a_body() -> None:
    written = await answers(ONE + POST + POST[:2_000], POST[2_000:] + NEXT)
    assert written.count(b"HTTP/1.1 200 OK") == 4, written


async def test_reading_goes_on_behind_requests_that_came_together() -> None:
    transport = Transport()
    protocol = made(transport)
    protocol.data_received(ONE * 500)
    async with asyncio.timeout(30):
        while transport.written.count(b"200 OK") < 500:  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert not transport.is_paused
    protocol.data_received(NEXT)
    async with asyncio.timeout(30):
        await transport.closed.wait()
    protocol.connection_lost(None)


async def test_what_waits_ends_with_its_connection() -> None:
    transport = Transport()
    protocol = made(transport)
    gc.disable()  # which may have passed over them, too
    try:
        protocol.data_received(ONE * 500)
        waiting = [weakref.ref(cycle) for cycle, _ in protocol.pipeline]
        assert waiting
        transport.close()
        protocol.connection_lost(None)
        for _ in range(9):
            await asyncio.sleep(0)
        assert not any(cycle() for cycle in waiting)
    finally:
        gc.enable()


@pytest.mark.parametrize("when", ["while it waits", "before", "after its answer", "unwatched"])
async def test_who_watches_a_request_hears_that_its_client_left(when: str) -> None:
    transport, left, reading = Transport(), asyncio.Event(), asyncio.Event()

    async def waits(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        if when == "before":
            reading.set()
            await asyncio.sleep(0)
        end_watching = scope["state"][WATCH](left.set)
        if when == "unwatched":
            end_watching()
        if when == "after its answer":
            await says_ok(scope, partial(asyncio.sleep, 0, {}), send)
        reading.set()
        await asyncio.sleep(0.01)

    protocol = made(transport, waits)
    protocol.data_received(LARGE)
    assert transport.is_paused, "its body is large"
    await reading.wait()
    if when != "before":
        assert not transport.is_paused, "nobody hears the end of what is not read"
    protocol.connection_lost(None)
    await asyncio.gather(*protocol.tasks)
    assert left.is_set() == (when in ("while it waits", "before"))
