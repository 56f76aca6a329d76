"""A process of the supervisor that does not answer is replaced, and ends when it shall."""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import AsyncIterator

import msgspec
import pytest

from gateway.config.config import Config
from gateway.fleet import patience
from gateway.fleet.wire import Begin
from gateway.process import fleet_member
from gateway.process.fleet_member import Member
from router.redis.cancelling import cancelled


@contextlib.asynccontextmanager
async def engines() -> AsyncIterator[Member]:
    """Gives a process of simulated engines, which serves."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        begin = Begin(msgspec.json.encode(Config()), 0, (listener.fileno(),), "key")
        member = Member("the engines' process", begin, {}, lambda _: None)
        keeper = asyncio.create_task(member.keep_running())
        try:
            await member.has_served.wait()
            yield member
            await member.stop(60.0)
        finally:
            await cancelled(keeper)


def pid_of(member: Member) -> int:
    assert member._process is not None
    return member._process.pid


async def test_one_that_is_silent_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "SILENT_S", 0.5)
    monkeypatch.setattr(fleet_member, "BEAT_INTERVAL_S", 0.05)
    monkeypatch.setattr(fleet_member, "BEAT_TIMEOUT_S", 0.2)
    async with engines() as member:
        first = pid_of(member)
        os.kill(first, signal.SIGSTOP)
        while member.num_starts == 1 or not member.is_serving:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert pid_of(member) != first
        assert member.num_restarts >= 1


async def test_one_that_hangs_is_killed_when_it_shall_end() -> None:
    async with engines() as member:
        os.kill(pid_of(member), signal.SIGSTOP)
        await member.stop(0.1)
        assert member._process is not None
        assert member._process.returncode == -signal.SIGKILL


async def test_one_that_answers_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_member, "BEAT_INTERVAL_S", 0.001)
    async with engines() as member:
        for _ in range(20):
            assert await member.ask("alive", 60.0) == b""
        assert member.num_starts == 1


def test_used_cpu_is_read() -> None:
    assert fleet_member._cpu_s(os.getpid()) > 0
    assert fleet_member._cpu_s(2**31 - 1) == 0
