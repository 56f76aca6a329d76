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
    assert member._life is not None
    return member._life.process.pid


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
        assert member._life is not None
        life = member._life
        os.kill(pid_of(member), signal.SIGSTOP)
        await member.stop(0.1)
        assert life.process.returncode == -signal.SIGKILL


async def test_one_whose_successor_cannot_start_goes_on() -> None:
    async with engines() as member:
        first, earlier = pid_of(member), member.begin
        complaint = await member.replace(b"no configuration", 60.0)
        assert complaint == "the process that was to follow it ended with status 1"
        assert pid_of(member) == first
        assert await member.ask("alive", 60.0) == b""
        assert member.begin == earlier, "it is started again as it was"


async def test_one_whose_successor_does_not_come_up_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fleet_member, "START_LIMIT_S", 0.0)
    async with engines() as member:
        first = pid_of(member)
        complaint = await member.replace(member.begin.config, 60.0)
        assert complaint == "the process that was to follow it did not serve within 0 s"
        assert pid_of(member) == first
        assert await member.ask("alive", 60.0) == b""


async def test_one_is_followed_by_another_without_a_gap() -> None:
    async with engines() as member:
        first, changed = pid_of(member), msgspec.json.encode(Config(policy_cache="elsewhere"))
        assert await member.replace(changed, 60.0) == ""
        assert pid_of(member) != first
        assert member.is_serving
        assert member.begin.config == changed
        assert (member.num_starts, member.num_restarts) == (2, 0)


async def test_one_that_refuses_a_configuration_is_started_again_as_it_was() -> None:
    async with engines() as member:
        earlier = member.begin
        two = Config(backends=(Config().backends[0],) * 2)
        unusable = msgspec.json.encode(two).replace(b'"wafer"', b'"abacus"')
        assert await member.reload(unusable, 1.0) is None, "it could not even be read"
        assert member.begin == earlier


async def test_one_that_answers_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_member, "BEAT_INTERVAL_S", 0.001)
    async with engines() as member:
        for _ in range(20):
            assert await member.ask("alive", 60.0) == b""
        assert member.num_starts == 1


def test_used_cpu_is_read() -> None:
    assert fleet_member._cpu_s(os.getpid()) > 0
    assert fleet_member._cpu_s(2**31 - 1) == 0
