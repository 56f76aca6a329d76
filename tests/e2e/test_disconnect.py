"""Clients that vanish leave nothing behind: no task, no sequence, no reservation.

Those whose connection is lost opt out of coming back here; `test_rejoin.py` has what they leave.
"""

import asyncio
import json
import signal
import socket
import struct
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import httpx
import pytest
import redis
import websockets

from tests.e2e.gateway_process import DEVELOPMENT_KEY, GatewayProcess, wait_until_at_rest
from tests.e2e.leases import leases
from tests.e2e.socket_client import SocketClient

LONG = "Write a guide to sorting of 16,000 tokens."
HEADERS = {"authorization": f"Bearer {DEVELOPMENT_KEY}"}

# Both engines busy on three streams and a fourth task waiting; says so, then waits to be killed.
KILLED_CLIENT = """
    import json, sys, time
    from websockets.sync.client import connect

    url, key, prompt = sys.argv[1:]
    with connect(url, additional_headers={"authorization": f"Bearer {key}"}, max_size=None) as ws:
        for stream_id, model, metadata in (
            ("fast", "lanewise-fast", {}),
            ("deep", "lanewise-deep", {}),
            ("both", "auto", {"route": "parallel", "strategy": "breadth"}),
            ("deep", "lanewise-deep", {}),
        ):
            ws.send(json.dumps({
                "type": "response.create", "model": model, "input": prompt,
                "metadata": {**metadata, "rejoin": "never"},
                "stream_id": stream_id, "max_output_tokens": 16000,
            }))
        streaming = set()
        while streaming != {"fast", "deep", "both"}:
            event = json.loads(ws.recv())
            if event["type"] == "response.output_text.delta":
                streaming.add(event["stream_id"])
        print("streaming", flush=True)
        time.sleep(600)
"""


@pytest.fixture(autouse=True)
def nothing_of_other_tests(redis_client: "redis.Redis[bytes]") -> None:
    """Waits until no lease is left of calls that a busy machine left without an answer."""
    deadline = time.monotonic() + 45.0
    while leases(redis_client):
        assert time.monotonic() < deadline, leases(redis_client)
        time.sleep(0.05)


async def at_rest(gateway: GatewayProcess, redis_client: "redis.Redis[bytes]") -> None:
    await asyncio.to_thread(nothing_left, gateway, redis_client)


def nothing_left(gateway: GatewayProcess, redis_client: "redis.Redis[bytes]") -> None:
    """Waits until Redis has read the settlements that the gateway has sent."""
    wait_until_at_rest(gateway)
    deadline = time.monotonic() + 10.0  # a third of a lease: what is left to expire takes longer
    while found := leases(redis_client):
        assert time.monotonic() < deadline, found
        time.sleep(0.02)


def test_a_killed_client_leaves_nothing_behind(
    gateway: GatewayProcess, redis_client: "redis.Redis[bytes]", tmp_path: Path
) -> None:
    script = tmp_path / "client.py"
    script.write_text(textwrap.dedent(KILLED_CLIENT))
    command = [sys.executable, str(script), gateway.socket_url, DEVELOPMENT_KEY, LONG]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
        try:
            assert client.stdout is not None
            assert client.stdout.readline() == "streaming\n"
            busy = gateway.metrics()
            assert busy.total("lanewise_tasks_running") >= 3
            assert busy.total("lanewise_backend_inflight") >= 2
            # A variation may have ended, and then its lease has, too.
            assert busy.total("lanewise_ratelimit_leases") >= 3
            assert len(leases(redis_client)) >= 3
        finally:
            client.send_signal(signal.SIGKILL)
    nothing_left(gateway, redis_client)
    assert gateway.metrics().total("lanewise_requests_total", outcome="cancelled") >= 3


async def streaming_socket(gateway: GatewayProcess, **metadata: str) -> websockets.ClientConnection:
    ws = await websockets.connect(
        gateway.socket_url, additional_headers=HEADERS, max_size=None, compression=None
    )
    connection = SocketClient(ws)
    await connection.create(
        LONG, model="lanewise-deep", max_output_tokens=16_000, metadata=metadata
    )
    await connection.next_type("response.output_text.delta")
    return ws


async def test_a_reset_connection_leaves_nothing_behind(
    gateway: GatewayProcess, redis_client: "redis.Redis[bytes]"
) -> None:
    ws = await streaming_socket(gateway, rejoin="never")
    raw = ws.transport.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # RST, not FIN
    ws.transport.abort()
    await ws.wait_closed()
    await at_rest(gateway, redis_client)


async def test_a_polite_goodbye_leaves_nothing_behind(
    gateway: GatewayProcess, redis_client: "redis.Redis[bytes]"
) -> None:
    ws = await streaming_socket(gateway)
    await ws.close()
    assert ws.close_code == 1000
    await at_rest(gateway, redis_client)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/responses", {"input": LONG, "max_output_tokens": 16_000}),
        (
            "/chat/completions",
            {
                "messages": [{"role": "user", "content": LONG}],
                "max_completion_tokens": 16_000,
            },
        ),
    ],
)
async def test_an_aborted_event_stream_leaves_nothing_behind(
    gateway: GatewayProcess,
    redis_client: "redis.Redis[bytes]",
    path: str,
    body: dict[str, object],
) -> None:
    async with (
        httpx.AsyncClient(headers=HEADERS) as http,
        http.stream(
            "POST",
            gateway.base_url + path,
            json={"model": "lanewise-deep", "stream": True, **body},
        ) as answer,
    ):
        chunks = answer.aiter_text()
        while "elta" not in await anext(chunks):
            pass
        assert gateway.metrics().total("lanewise_tasks_running") == 1
    await at_rest(gateway, redis_client)


async def test_an_aborted_request_leaves_nothing_behind(
    gateway: GatewayProcess, redis_client: "redis.Redis[bytes]"
) -> None:
    body = json.dumps({"model": "lanewise-deep", "input": LONG, "max_output_tokens": 16_000})
    _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(
        f"POST /v1/responses HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {DEVELOPMENT_KEY}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode()
    )
    await writer.drain()
    while not gateway.metrics().total("lanewise_backend_inflight"):
        pass  # a scrape each time round
    writer.close()
    await writer.wait_closed()
    await at_rest(gateway, redis_client)


async def test_a_reader_that_stalls_is_cut(folder: Path, redis_url: str, tmp_path: Path) -> None:
    """It reads nothing while an engine writes, and is cut with its generation, without a word."""
    config = tmp_path / "lanewise.toml"
    config.write_text("[server]\nsend_timeout_s = 0.5\n")
    gateway = GatewayProcess(folder, "--config", str(config), "--redis", redis_url)
    try:
        await asyncio.to_thread(gateway.wait_until_ready)
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port, limit=1024)
        key = "dGhlIHNhbXBsZSBub25jZQ=="  # RFC 6455 1.3
        writer.write(
            "GET /v1/responses HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\n"
            f"upgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: {key}\r\n"
            f"authorization: Bearer {DEVELOPMENT_KEY}\r\n\r\n".encode()
        )
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        long = {"input": LONG, "max_output_tokens": 16_000, "stream_id": "long"}
        writer.write(text_frame({"type": "response.create", "model": "lanewise-deep", **long}))
        # More than any socket buffer holds: each answer has this field three times.
        echoed = {"input": "x", "generate": False, "user": "x" * (1 << 20), "stream_id": "echo"}
        for _ in range(8):
            writer.write(text_frame({"type": "response.create", "model": "auto", **echoed}))
        await writer.drain()
        while not gateway.metrics().total("lanewise_ws_send_stalls_total"):
            assert gateway.process.poll() is None
        await asyncio.to_thread(wait_until_at_rest, gateway)
        writer.transport.abort()
    finally:
        status = gateway.stop()
    assert status == 0
    assert "Traceback" not in gateway.log, gateway.log


def text_frame(event: dict[str, object]) -> bytes:
    """Returns a whole message, masked with zeros: RFC 6455 5.2 and 5.3."""
    payload = json.dumps(event).encode()
    return b"\x81\xff" + struct.pack(">Q", len(payload)) + b"\0\0\0\0" + payload


async def test_clients_that_vanish_as_their_tasks_end_leave_nothing_behind(
    gateway: GatewayProcess,
) -> None:
    """A task that ends while its socket is taken down may have begun the next one of its stream."""

    async def vanish(pause_s: float) -> None:
        async with SocketClient.open(gateway) as client:
            for number in range(100):
                stream_id = f"s{number % 30}"
                await client.create("Hi.", max_output_tokens=1, stream_id=stream_id)
            await asyncio.sleep(pause_s)
            client.socket.transport.abort()

    for _ in range(2):
        await asyncio.gather(*(vanish(0.03 * number) for number in range(6)))
    await asyncio.to_thread(wait_until_at_rest, gateway)
    assert "Traceback" not in gateway.log, gateway.log


@pytest.mark.parametrize("is_half_closed", [False, True])
def test_a_client_that_closes_its_side_is_taken_for_one_that_left(
    gateway: GatewayProcess, is_half_closed: bool
) -> None:
    """Nothing tells the two apart until something is sent in vain (docs/protocol.md)."""
    body = json.dumps({"model": "lanewise-fast", "input": "Tell a story.", "store": False})
    head = f"POST /v1/responses HTTP/1.0\r\nauthorization: {HEADERS['authorization']}\r\n"
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=60) as connection:
        connection.sendall(f"{head}content-length: {len(body)}\r\n\r\n{body}".encode())
        if is_half_closed:
            connection.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: connection.recv(65_536), b""))
    assert (b"200 OK" in answer) is not is_half_closed, answer
    wait_until_at_rest(gateway)
