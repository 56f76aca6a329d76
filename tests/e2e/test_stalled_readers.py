"""A client that does not read costs little, and nobody else waits for it."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.e2e.flooding_upstream import PIECE, FloodingUpstream
from tests.e2e.gateway_process import (
    DEVELOPMENT_KEY,
    GatewayProcess,
    served_beside,
    wait_until_at_rest,
)
from tests.e2e.socket_client import TERMINALS, SocketClient

NUM_PIECES = 100_000  # 100 MB: far more than the sockets' buffers between client and upstream
MOST_UNREAD = 60_000  # of them; the kernel buffers up to 32 MiB of what the gateway does not read
NEVER_S = 3_600

CONFIG = """
[server]
send_timeout_s = {timeout_s}

[[backends]]
kind = "upstream"
name = "flood"
[backends.options]
group = "fast"
model = "flood"
upstream_model = "flood"
base_url = "http://127.0.0.1:{port}/v1"
protocol = "{protocol}"
window_tokens = 100_000_000
max_output_tokens = 50_000_000
max_answer_bytes = 1_000_000_000
{more}

[[tenants]]
id = "dev"
keys = ["{key}"]
[tenants.limits.fast]
requests_per_min = 6_000
tokens_per_min = 1_000_000_000
max_concurrent = 64
"""
FLOOD = {"model": "flood", "input": "flood", "max_output_tokens": 50_000_000, "stream": True}
OWN = {"http": ("responses", ""), "socket": ("responses-ws", "")}


@contextlib.asynccontextmanager
async def flooded(
    folder: Path, protocol: str, more: str, *, timeout_s: float, num_pieces: int = NUM_PIECES
) -> AsyncIterator[tuple[GatewayProcess, FloodingUpstream]]:
    """Gives a gateway with such an upstream."""
    async with FloodingUpstream.running(protocol, num_pieces) as upstream:
        toml = CONFIG.format(
            port=upstream.port,
            protocol=protocol,
            more=more,
            timeout_s=timeout_s,
            key=DEVELOPMENT_KEY,
        )
        async with served_beside(folder, toml) as gateway:
            await rises(gateway, "lanewise_backend_up")
            yield gateway, upstream


async def rises(gateway: GatewayProcess, metric: str) -> None:
    """Waits until a metric is above 0; its scrapes take their time."""
    while not await asyncio.to_thread(lambda: gateway.metrics().total(metric)):
        assert gateway.process.poll() is None


@contextlib.asynccontextmanager
async def stalled(gateway: GatewayProcess, way: str) -> AsyncIterator[None]:
    """Gives a client of a long answer that reads no more than it has to."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    client.connect(("127.0.0.1", gateway.port))
    reader, writer = await asyncio.open_connection(sock=client, limit=1024)
    shared = f"host: x\r\nauthorization: Bearer {DEVELOPMENT_KEY}\r\n"
    if way == "socket":
        key = "dGhlIHNhbXBsZSBub25jZQ=="  # RFC 6455 1.3
        writer.write(
            f"GET /v1/responses HTTP/1.1\r\n{shared}connection: upgrade\r\nupgrade: websocket\r\n"
            f"sec-websocket-version: 13\r\nsec-websocket-key: {key}\r\n\r\n".encode()
        )
        await reader.readuntil(b"\r\n\r\n")
        payload = json.dumps({"type": "response.create", **FLOOD}).encode()
        writer.write(b"\x81\xfe" + len(payload).to_bytes(2, "big") + b"\0\0\0\0" + payload)
    else:
        body = json.dumps(FLOOD)
        writer.write(
            f"POST /v1/responses HTTP/1.1\r\n{shared}content-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n{body}".encode()
        )
    await writer.drain()
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    try:
        yield
    finally:
        writer.transport.abort()
        writer.close()


@pytest.mark.parametrize("way", ["http", "socket"])
@pytest.mark.parametrize("upstream_way", OWN)
async def test_an_upstream_of_its_own_waits_for_a_reader_that_stalls(
    tmp_path: Path, upstream_way: str, way: str
) -> None:
    async with flooded(tmp_path, *OWN[upstream_way], timeout_s=4.0) as (gateway, upstream):
        async with stalled(gateway, way):
            await rises(gateway, "lanewise_ws_send_stalls_total")
            await asyncio.to_thread(wait_until_at_rest, gateway)
        assert 0 < upstream.num_sent < MOST_UNREAD


@pytest.mark.parametrize("upstream_way", OWN)
async def test_a_reader_that_pauses_gets_all_of_it(tmp_path: Path, upstream_way: str) -> None:
    num_pieces = 12_000
    flood = flooded(tmp_path, *OWN[upstream_way], timeout_s=NEVER_S, num_pieces=num_pieces)
    async with (
        flood as (gateway, upstream),
        SocketClient.open(gateway) as client,
    ):
        client.checks = False
        transport = client.socket.transport
        await client.send({"type": "response.create", **FLOOD})
        await client.receive()
        transport.pause_reading()
        num_sent, num_same = 0, 0
        while num_same < 20:
            await asyncio.sleep(0.02)
            num_same = num_same + 1 if upstream.num_sent == num_sent else 0
            num_sent = upstream.num_sent
        transport.resume_reading()
        num_chars = 0
        while (event := await client.receive())["type"] not in TERMINALS:
            num_chars += len(event.get("delta", ""))
            client.received.clear()
        assert event["type"] == "response.completed"
        assert num_chars == num_pieces * len(PIECE)


@pytest.mark.parametrize("way", ["http", "socket"])
async def test_nobody_waits_for_a_reader_that_stalls_on_a_shared_socket(
    tmp_path: Path, way: str
) -> None:
    shared = "cancel_event = true\nmax_streams_per_socket = 4"
    flood = flooded(tmp_path, "responses-ws", shared, timeout_s=NEVER_S)
    async with flood as (gateway, upstream):
        async with stalled(gateway, way), SocketClient.open(gateway) as client:
            for number in range(20):
                answer = await client.turn(f"turn {number}", model="flood")
                assert answer["status"] == "completed"
            await rises(gateway, "lanewise_ws_send_stalls_total")
        await asyncio.to_thread(wait_until_at_rest, gateway)
        assert 0 < upstream.num_sent < MOST_UNREAD
