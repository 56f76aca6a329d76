"""What weighs few tokens is bounded in bytes: bodies, frames, and what is stored of them."""

import asyncio
import contextlib
import json
import select
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import websockets

from tests.e2e.gateway_process import DEVELOPMENT_KEY, GatewayProcess, served, wait_until_at_rest
from tests.e2e.socket_client import SocketClient

MIB = 1 << 20
SMALL = f"""
[memory]
max_tenant_in_flight_bytes = {4 * MIB}
max_tenant_remembered_bytes = {2 * MIB}
[store]
max_tenant_bytes = {3 * MIB}
[[tenants]]
id = "heavy"
keys = ["{DEVELOPMENT_KEY}"]
tier = "development"
limits.fast = {{ requests_per_min = 6000, tokens_per_min = 20000000, max_concurrent = 256 }}
[[tenants]]
id = "other"
keys = ["sk-other-tenant-here"]
limits.fast = {{ requests_per_min = 600, tokens_per_min = 2000000, max_concurrent = 8 }}
"""
OTHER = {"authorization": "Bearer sk-other-tenant-here"}
HEAVY = {"authorization": f"Bearer {DEVELOPMENT_KEY}"}


@pytest.fixture(scope="module")
def small(folder: Path, redis_url: str) -> Iterator[GatewayProcess]:
    path = folder / "bytes.toml"
    path.write_text(SMALL)
    with served(folder, "--config", str(path), "--redis", redis_url) as process:
        yield process
        wait_until_at_rest(process)
        assert "Traceback" not in process.log


def reasoning(num_bytes: int) -> list[dict[str, object]]:
    return [
        {"type": "reasoning", "summary": [], "encrypted_content": "x" * num_bytes},
        {"type": "message", "role": "user", "content": "Hi."},
    ]


def ask(gateway: GatewayProcess, headers: dict[str, str], **body: object) -> httpx.Response:
    url = f"{gateway.base_url}/responses"
    whole = {"model": "lanewise-fast", "input": "Hi.", "max_output_tokens": 16} | body
    return httpx.post(url, json=whole, headers=headers, timeout=60)


def test_encrypted_reasoning_has_a_weight(small: GatewayProcess) -> None:
    light = ask(small, HEAVY, input=reasoning(0)).json()["usage"]["input_tokens"]
    heavy = ask(small, HEAVY, input=reasoning(16_000)).json()["usage"]["input_tokens"]
    assert heavy == light + 3_000  # base64: 3 bytes in 4 characters, 4 bytes a token
    refused = ask(small, HEAVY, input=reasoning(3 * MIB))
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "context_length_exceeded"


def test_one_tenants_records_do_not_push_out_anothers(small: GatewayProcess) -> None:
    kept = [ask(small, OTHER).json()["id"] for _ in range(5)]
    for _ in range(6):  # each a record of over a mebibyte, of few tokens
        message = {"type": "message", "role": "user", "content": "Hi.", "id": "m" * MIB}
        assert ask(small, HEAVY, input=[message]).status_code == 200
    for response_id in kept:
        url = f"{small.base_url}/responses/{response_id}"
        assert httpx.get(url, headers=OTHER, timeout=60).status_code == 200
    dropped = small.metrics().total("lanewise_stored_responses_dropped_total")
    assert dropped >= 3


def test_unfinished_bodies_are_bounded_together(small: GatewayProcess) -> None:
    head = (
        f"POST /v1/responses HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {DEVELOPMENT_KEY}\r\n"
        f"content-length: {2 * MIB}\r\n\r\n"
    )
    with contextlib.ExitStack() as stack:
        made = []
        for _ in range(8):
            each = stack.enter_context(socket.create_connection(("127.0.0.1", small.port), 60))
            with contextlib.suppress(ConnectionError):
                each.sendall(head.encode() + b" " * (2 * MIB - 1))
            made.append(each)
        waiting = set(made)
        while len(waiting) > 2:  # whichever came first: two fit
            answered, _, _ = select.select(waiting, (), (), 60)
            assert answered, f"{len(waiting)} bodies of 2 MiB are held"
            for each in answered:
                with contextlib.suppress(ConnectionError):
                    assert each.recv(65_536).startswith(b"HTTP/1.1 429")
                waiting.discard(each)
        assert ask(small, OTHER).status_code == 200
    wait_until_at_rest(small)
    assert ask(small, HEAVY).status_code == 200  # all was given back


def test_events_of_background_runs_are_bounded(small: GatewayProcess) -> None:
    """Each run brings much that weighs few tokens; the oldest are forgotten, the newest is kept."""
    item = {"type": "message", "role": "user", "content": "Hi.", "id": "m" * (MIB * 3 // 4)}
    ids = []
    for _ in range(4):
        ids.append(ask(small, HEAVY, input=[item], background=True).json()["id"])
        wait_until_at_rest(small)
    url, streamed = f"{small.base_url}/responses/", {"stream": "true"}
    answers = [httpx.get(url + each, params=streamed, headers=HEAVY, timeout=60) for each in ids]
    assert [each.status_code for each in answers] == [404, 404, 200, 200]

    def remembered_bytes() -> float:
        return small.metrics().total("lanewise_tenant_memory_bytes", kind="remembered")

    deadline = time.monotonic() + 30
    while remembered_bytes() <= MIB:  # it is sampled, perhaps after the first run only
        assert time.monotonic() < deadline
    assert remembered_bytes() <= 2 * MIB


def test_events_of_runs_that_go_on_are_bounded(small: GatewayProcess) -> None:
    item = {"type": "message", "role": "user", "content": "A book.", "id": "m" * (MIB * 3 // 4)}
    long = {"model": "lanewise-fast", "max_output_tokens": 100_000, "min_tokens": 100_000}
    ids = []

    def remembered_bytes() -> float:
        return small.metrics().total("lanewise_tenant_memory_bytes", kind="remembered")

    def status_of(response_id: str) -> int:
        url, streamed = f"{small.base_url}/responses/{response_id}", {"stream": "true"}
        with httpx.stream("GET", url, params=streamed, headers=HEAVY, timeout=60) as answer:
            return answer.status_code

    try:
        for _ in range(4):
            asked = {**long, "ignore_eos": True, "input": [item], "background": True}
            ids.append(ask(small, HEAVY, **asked).json()["id"])
        while status_of(ids[0]) == 200:  # they are counted once a second
            assert small.process.poll() is None
        while not MIB < remembered_bytes() <= 2 * MIB:
            assert small.process.poll() is None
        assert 200 in map(status_of, ids)
    finally:
        for each in ids:
            url = f"{small.base_url}/responses/{each}"
            assert httpx.post(f"{url}/cancel", headers=HEAVY, timeout=60).status_code == 200
            assert httpx.get(url, headers=HEAVY, timeout=60).json()["status"] == "cancelled"
    wait_until_at_rest(small)


async def test_unfinished_frames_are_bounded_together(small: GatewayProcess) -> None:
    async with contextlib.AsyncExitStack() as stack:
        sockets = []
        for _ in range(3):
            client = await stack.enter_async_context(SocketClient.open(small))
            sockets.append(client.socket)
            client.socket.protocol.send_text(b" " * (2 * MIB), fin=False)
            for piece in client.socket.protocol.data_to_send():
                client.socket.transport.write(piece)
        # Whichever came last of them is refused, since two fit.
        receiving = {asyncio.create_task(each.recv()): each for each in sockets}
        done, waiting = await asyncio.wait(
            receiving, timeout=60, return_when=asyncio.FIRST_COMPLETED
        )
        assert done, f"{len(waiting)} frames of 2 MiB are held"
        (refused,) = done
        assert json.loads(refused.result())["error"]["code"] == "rate_limit_exceeded"
        with pytest.raises(websockets.ConnectionClosed) as closed:
            await receiving[refused].recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1013
        for each in sockets:
            each.transport.abort()
        await asyncio.gather(*waiting, return_exceptions=True)
