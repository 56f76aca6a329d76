"""Tests `lanewise serve --workers 2`: two processes that are one gateway to everybody outside."""

import asyncio
import contextlib
import os
import signal
import time
import urllib.error
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
import redis
import websockets
from openai import OpenAI, RateLimitError

from tests.e2e.gateway_process import (
    CONFIG,
    DEVELOPMENT_KEY,
    SMALL_KEY,
    GatewayProcess,
    children,
    listening_on,
    redis_binary,
    served,
    wait_until_at_rest,
)
from tests.e2e.leases import leases
from tests.e2e.socket_client import SocketClient

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads /proc")

NUM_SOCKETS = 24  # that the kernel gives all of them to one worker: one in eight million
BOOK = "Write a book of 16,000 tokens."
WAIT_S = 60.0  # bounds a hang; decides nothing


@pytest.fixture(scope="module")
def temporary(folder: Path) -> Path:
    """Returns where the embedded Redis has its folder; a short path."""
    path = folder / "w"
    path.mkdir()
    return path


@pytest.fixture(scope="module")
def fleet(folder: Path, temporary: Path) -> Iterator[GatewayProcess]:
    """Gives two workers, their engines, and a Redis of their own."""
    (folder / "workers.toml").write_text(CONFIG)
    path = f"{Path(redis_binary()).parent}:{os.environ['PATH']}"
    with served(
        folder,
        *("--config", "workers.toml", "--workers", "2"),
        environ={"TMPDIR": str(temporary), "PATH": path},
    ) as process:
        until(lambda: serving(process) == 2)
        yield process
    assert "Traceback" not in process.log, process.log


@pytest.fixture(scope="module")
def embedded(fleet: GatewayProcess, temporary: Path) -> Iterator["redis.Redis[bytes]"]:
    (path,) = temporary.glob("lanewise-*/redis.sock")
    client = redis.Redis.from_url(f"unix://{path}")
    yield client
    client.close()


def until(holds: Callable[[], bool]) -> None:
    """Returns once it holds."""
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, "it never came to hold"
        time.sleep(0.05)


def serving(fleet: GatewayProcess) -> float:
    """Returns how many workers serve; -1 while the supervisor is too busy to say so."""
    try:
        return fleet.metrics().total("lanewise_workers")
    except urllib.error.HTTPError:
        return -1


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def engines_of(fleet: GatewayProcess) -> int:
    """Returns the process of the simulated engines: it is none of the workers."""
    (engines,) = (
        pid
        for pid in set(children(fleet.process.pid)) - set(listening_on(fleet))
        if b"gateway.process.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    )
    return engines


def ask(fleet: GatewayProcess, key: str = DEVELOPMENT_KEY) -> str:
    """Asks for one response on a connection of its own; returns its id."""
    with OpenAI(base_url=fleet.base_url, api_key=key, max_retries=0) as client:
        made = client.responses.create(model="lanewise-fast", input="Hi.", max_output_tokens=16)
        return str(made.id)


def test_limits_hold_across_workers(fleet: GatewayProcess) -> None:
    assert len(listening_on(fleet)) == 2
    answered = refused = 0
    for _ in range(12):
        try:
            ask(fleet, SMALL_KEY)
            answered += 1
        except RateLimitError:
            refused += 1
    # 2 a minute; a slow machine may take long enough for another to come in.
    assert 2 <= answered <= 4, (answered, refused)
    wait_until_at_rest(fleet)
    assert fleet.metrics().total("lanewise_requests_total", outcome="rate_limited") == refused


def test_any_worker_knows_a_response_that_another_runs(fleet: GatewayProcess) -> None:
    def fresh() -> OpenAI:
        return OpenAI(base_url=fleet.base_url, api_key=DEVELOPMENT_KEY, max_retries=0)

    with fresh() as client:
        begun = client.responses.create(
            model="lanewise-deep", input=BOOK, max_output_tokens=16_000, background=True
        )
    for _ in range(8):  # on either worker
        with fresh() as client:
            assert client.responses.retrieve(begun.id).status == "in_progress"
    with fresh() as client:
        assert client.responses.cancel(begun.id).status == "cancelled"
    for _ in range(8):
        with fresh() as client:
            assert client.responses.retrieve(begun.id).status == "cancelled"


async def test_a_killed_worker_takes_only_its_own_with_it(
    fleet: GatewayProcess, embedded: "redis.Redis[bytes]"
) -> None:
    victim, other = listening_on(fleet)
    async with contextlib.AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(SocketClient.open(fleet)) for _ in range(NUM_SOCKETS)
        ]
        for client in clients:
            await client.create(BOOK, model="lanewise-deep", max_output_tokens=16_000)
        for client in clients:
            await client.next_type("response.created")
        connections = "lanewise_ws_connections"  # of workers that report one after the other
        await asyncio.to_thread(until, lambda: fleet.metrics().total(connections) == NUM_SOCKETS)
        before = await asyncio.to_thread(fleet.metrics)
        assert before.total("lanewise_tasks_running") == NUM_SOCKETS
        assert before.total("lanewise_ratelimit_leases") == NUM_SOCKETS
        os.kill(victim, signal.SIGKILL)
        lost = []
        for client in clients:
            try:  # not by an event, which may have come before
                await asyncio.wait_for(await client.socket.ping(), WAIT_S)
            except websockets.ConnectionClosed:
                lost.append(client)
        assert 0 < len(lost) < NUM_SOCKETS
        # Its listening socket may close after its clients' ones.
        await asyncio.to_thread(until, lambda: not is_there(victim))
        for _ in lost:  # they come back, and are served
            client = await stack.enter_async_context(SocketClient.open(fleet))
            assert (await client.turn("Hi.", max_output_tokens=16))["output"]
        await asyncio.to_thread(until, lambda: serving(fleet) == 2)
        assert other in listening_on(fleet), "only the killed one was replaced"
        after = await asyncio.to_thread(fleet.metrics)
        for name in ("lanewise_ws_opened_total", "lanewise_requests_total"):
            assert after.total(name) >= before.total(name), "a sum that falls reads as a restart"
        assert after.total("lanewise_ws_opened_total") >= NUM_SOCKETS + len(lost)
        await asyncio.to_thread(until, lambda: fleet.metrics().total(connections) == NUM_SOCKETS)
        assert after.total("lanewise_worker_restarts_total") == 1
        assert after.total("lanewise_workers_wanted") == 2
    await asyncio.to_thread(wait_until_at_rest, fleet)
    # Nobody renews what the killed one held. Half a minute later its places are free again; here
    # the clock of those leases is put forward instead.
    (lease_key,) = embedded.keys("lw1:{dev}*lease")
    left = leases(embedded)
    assert len(left) == len(lost)
    embedded.zadd(lease_key, dict.fromkeys(left, 1), xx=True)
    embedded.zadd("lw1:{sweeper}:due", {"dev": 1})
    await asyncio.to_thread(until, lambda: not leases(embedded))
    reaped = "lanewise_ratelimit_reaped_total"  # counted once Redis's answer is there
    await asyncio.to_thread(until, lambda: fleet.metrics().total(reaped) == len(lost))


def test_a_gateway_without_its_engines_is_not_ready(fleet: GatewayProcess) -> None:
    def readiness() -> httpx.Response:
        return httpx.get(f"{fleet.url}/readyz")

    engines = engines_of(fleet)
    before = fleet.metrics()
    os.kill(engines, signal.SIGSTOP)  # it does not answer, and its connections stand
    # One worker notices before the other, and either may answer.
    until(lambda: (answer := readiness()).status_code == 503 and "wafer, gpu" in answer.text)
    os.kill(engines, signal.SIGKILL)
    # So many answers in a row are of both.
    until(lambda: all(readiness().status_code == 200 for _ in range(20)))
    ask(fleet)
    restarts = "lanewise_worker_restarts_total"
    assert fleet.metrics().total(restarts) == before.total(restarts) + 1


async def test_workers_that_drain_say_so_to_new_connections(folder: Path) -> None:
    """A balancer asks for a while whether a gateway is ready, and sends it tasks until it knows."""
    with served(folder, "--workers", "2") as process:
        async with SocketClient.open(process) as client:
            await client.create(BOOK, model="lanewise-deep", max_output_tokens=1_000)
            await client.next_type("response.output_text.delta")
            process.process.terminate()

            def is_draining() -> bool:
                try:
                    return httpx.get(f"{process.url}/readyz").status_code == 503
                except httpx.TransportError:  # of a worker that had nothing to drain
                    return False

            await asyncio.to_thread(until, is_draining)
            assert process.process.poll() is None, "it still drained"
            process.process.terminate()  # at once


async def test_sigterm_drains_all_and_leaves_no_process(
    fleet: GatewayProcess, temporary: Path
) -> None:
    running = children(fleet.process.pid)
    assert len(running) == 4, "two workers, their engines, Redis"
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(SocketClient.open(fleet)) for _ in range(8)]
        for client in clients:
            await client.create("Write a very long text.", max_output_tokens=400)
            await client.next_type("response.output_text.delta")
        fleet.process.terminate()
        for client in clients:  # what runs may end
            assert (await client.terminal())["response"]["usage"]["output_tokens"] > 0
            with pytest.raises(websockets.ConnectionClosed):
                await client.receive()
            assert client.socket.close_code in (1001, 1012)
    assert await asyncio.to_thread(fleet.process.wait, WAIT_S) == 0, fleet.log
    assert not [pid for pid in running if is_there(pid)]
    assert os.listdir(temporary) == [], "the embedded Redis took its folder with it"


def test_a_stop_before_all_serve_is_an_orderly_one(folder: Path) -> None:
    process = GatewayProcess(folder, "--workers", "2")
    try:
        until(lambda: len(children(process.process.pid)) == 4)  # begun; they serve seconds later
    finally:
        assert process.stop() == 0, process.log
    assert "never retrieved" not in process.log
    assert "Traceback" not in process.log, process.log
