"""Tests limits as clients meet them: waits that are true, waiting, and a Redis that goes away."""

import asyncio
import math
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import redis
from openai import AsyncOpenAI

import lanewise
from tests.e2e.gateway_process import GatewayProcess, free_port, redis_binary, wait_until_at_rest
from tests.e2e.socket_client import SocketClient

LIMITED_KEY, SPENDER_KEY = "sk-limited-key", "sk-spender-key"
REFUSED_KEY, WAITING_KEY, NARROW_KEY = "sk-refused-tenant", "sk-waiting-tenant", "sk-narrow-tenant"
PATIENCE_S = 60.0  # bounds a hang; never decides whether something was fast enough
PER_MIN = 240  # four a second
MAX_REFUSED = 12  # by the burst
LONG = "Write 9000 words about rain."

CONFIG = f"""
[waiting.tenants]
waiting = {{ fast = 30000 }}
narrow = {{ fast = 30000 }}

[[tenants]]
id = "refused"
keys = ["{REFUSED_KEY}"]
limits.fast = {{ requests_per_min = {PER_MIN}, tokens_per_min = 2000000, max_concurrent = 64 }}

[[tenants]]
id = "waiting"
keys = ["{WAITING_KEY}"]
limits.fast = {{ requests_per_min = {PER_MIN}, tokens_per_min = 2000000, max_concurrent = 64 }}

[[tenants]]
id = "narrow"
keys = ["{NARROW_KEY}"]
limits.fast = {{ requests_per_min = 6000, tokens_per_min = 2000000, max_concurrent = 1 }}

[[tenants]]
id = "limited"
keys = ["{LIMITED_KEY}"]
limits.fast = {{ requests_per_min = 6000, tokens_per_min = 2000000, max_concurrent = 64 }}
key_limits.fast = {{ requests_per_min = 2 }}

[[tenants]]
id = "spender"
keys = ["{SPENDER_KEY}"]
limits.fast = {{ requests_per_min = 6000, tokens_per_min = 2000000, max_concurrent = 64 }}
budgets.key_day.hard_usd = 0.01

[[prices]]
model = "lanewise-fast"
input = 0
output = 10
"""


@dataclass
class World:
    """Is a gateway of its own, on a Redis of its own that tests may stop."""

    gateway: GatewayProcess
    redis: "subprocess.Popen[bytes]"
    client: "redis.Redis[bytes]"

    def leave(self, tenant: str, num_requests: int) -> None:
        """Sets what is left of a tenant's requests, as if it had used the rest just now."""
        post(self.gateway, {"refused": REFUSED_KEY, "waiting": WAITING_KEY}[tenant])
        self.client.hset(f"lw1:{{{tenant}}}:p:fast", "r", num_requests * 60_000)

    def refused(self) -> httpx.Response:
        """Returns a refusal of the next request, once the machine is quick enough for one."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            self.leave("refused", -4)
            answer = post(self.gateway, REFUSED_KEY)
            if answer.status_code == 429:
                return answer
            assert time.monotonic() < deadline

    def until_mode(self, mode: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            ready = httpx.get(f"{self.gateway.url}/readyz")
            if ready.json().get("pools") == mode:
                return
            assert time.monotonic() < deadline, ready.text
            time.sleep(0.02)


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with tempfile.TemporaryDirectory(prefix="lw-limits-") as name:
        folder = Path(name)
        (folder / "lanewise.toml").write_text(CONFIG)
        port = free_port()
        command = [redis_binary(), "--port", str(port), "--save", "", "--appendonly", "no"]
        command += ["--bind", "127.0.0.1", "--dir", name]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        url = f"redis://127.0.0.1:{port}/0"
        config = str(folder / "lanewise.toml")
        process = GatewayProcess(
            folder,
            *("--config", config, "--redis", url),
            environ={"LANEWISE_REDIS_BUDGET_MS": "500"},  # waited out where Redis is frozen
        )
        try:
            process.wait_until_ready()
            with redis.Redis.from_url(url) as client:
                yield World(process, server, client)
            wait_until_at_rest(process)
        finally:
            server.send_signal(signal.SIGCONT)
            assert process.stop() == 0, process.log
            server.kill()
            server.wait()
        assert "Traceback" not in process.log, process.log


def post(gateway: GatewayProcess, key: str, **body: Any) -> httpx.Response:
    headers = {"authorization": f"Bearer {key}"}
    fields = {"model": "lanewise-fast", "input": "x", "max_output_tokens": 1, **body}
    return httpx.post(f"{gateway.base_url}/responses", json=fields, headers=headers, timeout=60)


async def burst(client: AsyncOpenAI, number: int) -> list[Any]:
    """Asks so often at once; returns the answers."""
    asks = [
        client.responses.create(model="lanewise-fast", input="x", max_output_tokens=1)
        for _ in range(number)
    ]
    return await asyncio.gather(*asks)


async def test_the_official_sdks_own_retries_get_through_a_refused_burst(world: World) -> None:
    name, labels = "lanewise_ratelimit_decisions_total", {"result": "reject", "limit": "rpm"}
    num_refused = 0.0
    client = AsyncOpenAI(base_url=world.gateway.base_url, api_key=REFUSED_KEY)  # as it comes
    async with asyncio.timeout(PATIENCE_S), client:
        while num_refused < 5:  # a slow machine's burst may be no faster than requests come back
            world.leave("refused", 2)
            before = world.gateway.metrics().total(name, **labels)
            answers = await burst(client, MAX_REFUSED)
            assert all(answer.status in ("completed", "incomplete") for answer in answers)
            num_refused = world.gateway.metrics().total(name, **labels) - before


def test_who_waits_as_told_gets_in(world: World) -> None:
    refused = world.refused()
    headers, error = refused.headers, refused.json()["error"]
    wait_s = int(headers["retry-after-ms"]) / 1e3
    # At most a turn for each who was refused before, and what is missing now.
    assert 0 < wait_s <= (MAX_REFUSED + 5) * 60 / PER_MIN
    assert headers["retry-after"] == str(max(1, math.ceil(wait_s)))
    assert headers["x-ratelimit-limit-requests"] == str(PER_MIN)
    assert headers["x-ratelimit-remaining-requests"] == "0"
    assert headers["x-lanewise-ratelimit-mode"] == "redis"
    assert error["code"] == "rate_limit_exceeded"
    assert error["violated-policies"] == ["fast-requests"]
    states = dict(part.strip().split(";", 1) for part in headers["ratelimit"].split(","))
    assert states['"fast-requests"'] == f"r=0;t={headers['retry-after']}"
    assert f'"fast-requests";q={PER_MIN};w=60' in headers["ratelimit-policy"]
    time.sleep(wait_s)
    admitted = post(world.gateway, REFUSED_KEY)
    assert admitted.status_code == 200, admitted.text
    assert admitted.headers["x-lanewise-ratelimit-mode"] == "redis"
    assert admitted.json()["routing"]["ratelimit_mode"] == "redis"


async def test_a_socket_is_told_the_same(world: World) -> None:
    async with (
        asyncio.timeout(PATIENCE_S),
        SocketClient.open(world.gateway, REFUSED_KEY) as client,
    ):
        error: dict[str, Any] = {"type": ""}
        while error["type"] != "error":  # see `refused`
            world.leave("refused", -4)
            await client.create("x", max_output_tokens=1)
            error = await client.next_type("error", "response.incomplete")
        assert error["status"] == 429
        headers = error["error"]["headers"]
        assert headers["x-lanewise-ratelimit-mode"] == "redis"
        assert int(headers["retry-after"]) >= 1
        await asyncio.sleep(int(headers["retry-after-ms"]) / 1e3)
        await client.create("x", max_output_tokens=1)
        await client.until(lambda event: event["type"].startswith("response.incomplete"))


async def test_a_burst_waits_where_it_may(world: World) -> None:
    name, labels = "lanewise_admission_wait_seconds_count", {"group": "fast", "outcome": "admitted"}
    num_waited = 0.0
    client = AsyncOpenAI(base_url=world.gateway.base_url, api_key=WAITING_KEY, max_retries=0)
    async with asyncio.timeout(PATIENCE_S), client:
        while num_waited < 4:  # as above
            world.leave("waiting", 2)
            before = world.gateway.metrics().total(name, **labels)
            assert len(await burst(client, 8)) == 8
            num_waited = world.gateway.metrics().total(name, **labels) - before
    samples = world.gateway.metrics()
    assert samples.total("lanewise_admission_queue_depth") == 0


async def test_a_client_that_asks_is_told_its_place(world: World) -> None:
    asks = {"queue_events": "true"}
    async with SocketClient.open(world.gateway, NARROW_KEY) as client:
        client.checks = False  # an event of ours is among them
        await client.create(LONG, stream_id="a", max_output_tokens=16_000)
        first = await client.until(lambda event: event["type"] == "response.in_progress")
        await client.create("x", stream_id="b", max_output_tokens=1, metadata=asks)
        told = await client.until(lambda event: event["type"] == "response.waiting")
        assert (told["group"], told["place"], told["stream_id"]) == ("fast", 1, "b")
        assert told["expected_wait_ms"] > 0
        await client.create("x", stream_id="c", max_output_tokens=1, metadata=asks)
        last = await client.until(lambda event: event["type"] == "response.waiting")
        assert (last["place"], last["stream_id"]) == (2, "c")
        await client.send({"type": "response.cancel", "response_id": last["response_id"]})
        error = await client.until(lambda event: event["type"] == "error")
        assert (error["error"]["code"], error["stream_id"]) == ("response_cancelled", "c")
        await client.send({"type": "response.cancel", "response_id": first["response"]["id"]})
        ended = await client.until(
            lambda event: event["type"] == "response.incomplete" and event.get("stream_id") == "b"
        )
        assert ended["response"]["id"] == told["response_id"]
        assert ended["sequence_number"] > told["sequence_number"]


async def test_a_task_that_waits_unseen_is_cancelled_by_its_stream(world: World) -> None:
    """Nothing has named it by then, as it did not ask where it stands."""
    async with SocketClient.open(world.gateway, NARROW_KEY) as client:
        await client.create(LONG, stream_id="a", max_output_tokens=16_000)
        first = await client.until(lambda event: event["type"] == "response.in_progress")
        await client.create("x", stream_id="b", max_output_tokens=1)
        await client.send({"type": "response.cancel", "stream_id": "b"})
        error = await client.until(lambda event: event["type"] == "error")
        assert (error["error"]["code"], error["stream_id"]) == ("response_cancelled", "b")
        sdk = lanewise.connect(world.gateway.url, NARROW_KEY)
        async with sdk, sdk.stream("x", max_output_tokens=1) as stream:
            await stream.cancel()
            with pytest.raises(lanewise.LanewiseError) as cancelled:
                await stream.response()
        assert cancelled.value.code == "response_cancelled"
        assert world.gateway.metrics().total("lanewise_admission_queue_depth") == 0
        await client.send({"type": "response.cancel", "response_id": first["response"]["id"]})
        await client.until(lambda event: event["type"] == "response.incomplete")


async def test_a_stream_over_http_is_told_its_place_too(world: World) -> None:
    async with SocketClient.open(world.gateway, NARROW_KEY) as socket:
        socket.checks = False
        await socket.create(LONG, max_output_tokens=16_000)
        first = await socket.until(lambda event: event["type"] == "response.in_progress")
        client = AsyncOpenAI(base_url=world.gateway.base_url, api_key=NARROW_KEY, max_retries=0)
        async with client:
            stream = await client.responses.create(
                model="lanewise-fast",
                input="x",
                stream=True,
                max_output_tokens=1,
                metadata={"queue_events": "true"},
            )
            waiting = await anext(aiter(stream))
            await socket.send({"type": "response.cancel", "response_id": first["response"]["id"]})
            kinds = [waiting.type, *[event.type async for event in stream]]
    assert kinds[0] == "response.waiting"
    assert kinds[1] == "response.created"
    assert kinds[-1] == "response.incomplete"


async def test_a_refusal_after_the_first_place_is_an_error_event(world: World) -> None:
    async with SocketClient.open(world.gateway, NARROW_KEY) as socket:
        socket.checks = False
        await socket.create(LONG, max_output_tokens=16_000)
        await socket.until(lambda event: event["type"] == "response.in_progress")
        client = AsyncOpenAI(base_url=world.gateway.base_url, api_key=NARROW_KEY, max_retries=0)
        async with client:
            stream = await client.responses.create(
                model="lanewise-fast",
                input="x",
                stream=True,
                metadata={"queue_events": "true", "max_wait_ms": "1100"},
            )
            with pytest.raises(openai.APIError, match="Rate limit reached"):
                assert [event.type async for event in stream] == [], "it got in after all"


def test_a_frozen_redis_costs_no_task(world: World) -> None:
    world.leave("refused", 200)
    assert post(world.gateway, SPENDER_KEY, store=False, max_output_tokens=16).is_success
    world.redis.send_signal(signal.SIGSTOP)
    try:
        # The first ones may wait for their budget; none is refused for it.
        answers = [post(world.gateway, REFUSED_KEY, store=False) for _ in range(4)]
        world.until_mode("degraded")
        answers += [post(world.gateway, REFUSED_KEY, store=False) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200] * 8
        assert answers[-1].headers["x-lanewise-ratelimit-mode"] == "degraded"
        assert answers[-1].headers["x-ratelimit-limit-requests"] == str(PER_MIN // 2)
        assert answers[-1].json()["routing"]["ratelimit_mode"] == "degraded"
        assert world.gateway.metrics().total("lanewise_ratelimit_degraded") == 1
        check_limits_of_a_key(world)
    finally:
        world.redis.send_signal(signal.SIGCONT)
    world.until_mode("redis")
    afforded = post(world.gateway, SPENDER_KEY, store=False, max_output_tokens=800)
    assert afforded.is_success, "the budget is whole again"
    assert post(world.gateway, REFUSED_KEY).headers["x-lanewise-ratelimit-mode"] == "redis"
    samples = world.gateway.metrics()
    assert samples.total("lanewise_ratelimit_recoveries_total") >= 1
    assert samples.total("lanewise_ratelimit_unsettled") == 0
    deadline = time.monotonic() + 20.0  # below a lease
    while world.client.hget("lw1:{refused}:p:fast", "n") != b"0":
        assert time.monotonic() < deadline


def check_limits_of_a_key(world: World) -> None:
    """Checks that without Redis a key has half of its requests, and half of its budget's rest."""
    first, second = (post(world.gateway, LIMITED_KEY, store=False) for _ in range(2))
    assert (first.status_code, second.status_code) == (200, 429)
    assert "this key's requests per min: Limit 1" in second.json()["error"]["message"]
    half, more = (
        post(world.gateway, SPENDER_KEY, store=False, max_output_tokens=num) for num in (400, 800)
    )
    assert (half.status_code, more.status_code) == (200, 429)
    assert more.headers["x-lanewise-ratelimit-mode"] == "degraded"
    assert int(more.headers["retry-after"]) <= 60, "Redis may be back before the day is over"
    said = more.json()["error"]["message"]
    assert "the key's budget of the day: $0.01" in said
    assert "While Redis is away each gateway has a part of half of what was left" in said


def test_a_gateway_that_never_saw_redis_is_not_ready(tmp_path: Path) -> None:
    path = tmp_path / "lanewise.toml"
    path.write_text(CONFIG)
    nowhere = f"redis://127.0.0.1:{free_port()}/0"
    gateway = GatewayProcess(tmp_path, "--config", str(path), "--redis", nowhere)
    try:
        gateway.wait_until_ready()
        ready = httpx.get(f"{gateway.url}/readyz")
        assert (ready.status_code, ready.json()["status"]) == (503, "blind")
        assert httpx.get(f"{gateway.url}/healthz").status_code == 200
        refused = post(gateway, REFUSED_KEY)
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "1"
        assert refused.headers["x-lanewise-ratelimit-mode"] == "degraded"
    finally:
        assert gateway.stop() == 0, gateway.log
