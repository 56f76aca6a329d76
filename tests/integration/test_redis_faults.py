"""Tests what a Redis can do to a call: be late, silent, cut, full, emptied, or speak nonsense.

Budgets are far from what they are compared with, so that a busy machine decides no test.
"""

import asyncio
import contextlib
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import uvloop

from router.classify.task import GroupLimits, Tenant
from router.pools.pools import Demand, Grant, Renewal, Reservation, lease_of
from router.pools.redis_pools import PoolsUnavailable, RedisPools
from router.redis.servers import RECONNECT_PAUSE_S, RedisAway, RedisServers
from router.redis.url import parse_redis_url
from tests.integration.redis_fleet import PATIENCE_S, Server, Wire, running
from tests.patience import until

LIMITS = GroupLimits(requests_per_min=6_000, tokens_per_min=1_000_000, max_concurrent=3)
TENANT = Tenant(id="acme", tier="any", limits={"fast": LIMITS})
FAST = [(Demand("fast", 100),)]
BUDGET_US = 20_000_000  # where it is not waited out
SHORT_US = 200_000  # where it is


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path)
    with running(made):
        made.ask("PING")
        yield made


async def reserve(pools: RedisPools, name: str) -> Grant:
    """Ask until it is answered: a busy machine may take longer than a budget, too."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await pools.reserve_first(TENANT, name, FAST)
            except PoolsUnavailable:
                await asyncio.sleep(RECONNECT_PAUSE_S)


@pytest.mark.parametrize("turns", range(8))
async def test_closing_at_any_moment_leaves_no_connection(tmp_path: Path, turns: int) -> None:
    path = str(tmp_path / "redis.sock")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        servers = RedisServers(parse_redis_url(f"unix://{path}"), budget_us=BUDGET_US)
        asked = asyncio.create_task(servers.ping())
        for _ in range(turns):
            await asyncio.sleep(0)
        await servers.close()
        with pytest.raises(RedisAway):
            await asked
        listening.setblocking(False)
        accepted: list[socket.socket] = []
        with contextlib.suppress(BlockingIOError):
            while True:
                accepted.append(listening.accept()[0])
        for connection in accepted:
            with connection:
                connection.setblocking(False)
                while connection.recv(1_024):
                    pass  # it would raise `BlockingIOError` were it still open


@pytest.mark.parametrize(
    ("delay_s", "budget_us", "num_connections"),
    [(0.3, BUDGET_US, 1), (0.3, SHORT_US, 2), (2.0, SHORT_US, None)],
)
async def test_a_slow_redis(
    server: Server, delay_s: float, budget_us: int, num_connections: int | None
) -> None:
    """A reply that is later than its budget is taken while the second attempt is under way."""
    async with Wire(server).open() as wire:
        pools = RedisPools(wire.url, budget_us=budget_us)
        assert (await reserve(pools, "before")).index == 0
        wire.delay_s = delay_s
        outcomes = await asyncio.gather(
            *(pools.reserve_first(TENANT, "a", FAST) for _ in range(20)), return_exceptions=True
        )
        if num_connections is not None:
            assert not [each for each in outcomes if isinstance(each, BaseException)]
            await until(lambda: wire.num_connections >= num_connections)  # it takes them later
            assert wire.num_connections == num_connections
        else:
            assert all(isinstance(each, PoolsUnavailable) for each in outcomes)
        wire.delay_s = 0.0
        assert (await reserve(pools, "a")).index == 0
        await pools.close()


async def test_a_cut_wire_costs_no_call(server: Server) -> None:
    async with Wire(server).open() as wire:
        pools = RedisPools(wire.url, budget_us=BUDGET_US)
        await pools.balances(TENANT)  # connected, and the script is known
        wire.is_deaf = True  # what is asked is done, and its answer lost
        calls = [asyncio.ensure_future(pools.reserve_first(TENANT, "a", FAST)) for _ in range(9)]
        async with asyncio.timeout(PATIENCE_S):
            while not await asyncio.to_thread(server.ask, "EXISTS", "lw1:{acme}:lease"):
                pass
        wire.is_deaf = False
        wire.cut()
        grants = await asyncio.gather(*calls)
        assert {grant.index for grant in grants} == {0}
        assert wire.num_connections == 2
        balances = await pools.balances(TENANT)
        assert next(b for b in balances if b.unit == "concurrent").remaining == 2  # charged once
        await pools.close()


async def test_a_silent_redis_costs_two_budgets_and_no_more(server: Server) -> None:
    async with Wire(server).open() as wire:
        pools = RedisPools(wire.url, budget_us=SHORT_US)
        await reserve(pools, "before")
        num_connections = wire.num_connections
        wire.is_silent = True
        outcomes = await asyncio.wait_for(
            asyncio.gather(
                *(pools.reserve_first(TENANT, str(n), FAST) for n in range(200)),
                return_exceptions=True,
            ),
            PATIENCE_S,
        )
        assert all(isinstance(each, PoolsUnavailable) for each in outcomes)
        assert wire.num_connections == num_connections + 1  # one more attempt, for all of them
        await pools.close()


async def test_a_redis_that_is_killed_and_starts_again_empty(server: Server) -> None:
    pools = RedisPools(f"redis://127.0.0.1:{server.port}", budget_us=BUDGET_US)
    held = (await pools.reserve_first(TENANT, "before", FAST)).reservation
    assert held is not None
    server.send(signal.SIGKILL)
    with pytest.raises(PoolsUnavailable):
        await pools.settle(held, {"fast": 1})
    server.start()
    server.ask("PING")
    await asyncio.sleep(RECONNECT_PAUSE_S)
    assert await pools.renew([held]) == Renewal(0, 0)
    await pools.adopt(TENANT, held)
    for name, index in (("b", 0), ("c", 0), ("d", None)):
        assert (await pools.reserve_first(TENANT, name, FAST)).index == index
    assert await pools.settle(held, {"fast": 1})
    assert not await pools.settle(held, {"fast": 1})
    assert (await pools.reserve_first(TENANT, "d", FAST)).index == 0
    await pools.close()


async def test_a_redis_out_of_memory_takes_nothing_new_and_gives_back(server: Server) -> None:
    pools = RedisPools(f"redis://127.0.0.1:{server.port}", budget_us=BUDGET_US)
    held = (await pools.reserve_first(TENANT, "a", FAST)).reservation
    assert held is not None
    server.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
    server.ask("CONFIG", "SET", "maxmemory", 1)
    with pytest.raises(PoolsUnavailable, match="OOM"):
        await pools.reserve_first(TENANT, "b", FAST)
    assert await pools.settle(held, {"fast": 1})
    server.ask("CONFIG", "SET", "maxmemory", 0)
    for name in "bcd":
        assert (await pools.reserve_first(TENANT, name, FAST)).index == 0
    await pools.close()


async def test_a_redis_that_only_reads(server: Server) -> None:
    pools = RedisPools(f"redis://127.0.0.1:{server.port}", budget_us=BUDGET_US)
    held = (await pools.reserve_first(TENANT, "a", FAST)).reservation
    assert held is not None
    server.ask("REPLICAOF", "127.0.0.1", 1)
    with pytest.raises(PoolsUnavailable, match=r"READONLY|MASTERDOWN"):
        await pools.reserve_first(TENANT, "b", FAST)
    with pytest.raises(PoolsUnavailable, match=r"READONLY|MASTERDOWN"):
        await pools.settle(held, {})
    server.ask("REPLICAOF", "NO", "ONE")
    assert (await pools.reserve_first(TENANT, "b", FAST)).index == 0
    assert await pools.settle(held, {})
    await pools.close()


async def test_users_passwords_and_databases(server: Server) -> None:
    server.ask("ACL", "SETUSER", "lanewise", "on", ">pass/word", "~lw1:*", "+@all")
    at = f"127.0.0.1:{server.port}"
    pools = RedisPools(f"redis://lanewise:pass%2Fword@{at}/3", budget_us=BUDGET_US)
    assert (await pools.reserve_first(TENANT, "a", FAST)).index == 0
    await pools.close()
    assert "db3:keys=3" in server.ask("INFO", "keyspace")
    for url in (f"redis://lanewise:wrong@{at}", f"redis://{at}/99", f"redis://nobody:x@{at}"):
        pools = RedisPools(url, budget_us=BUDGET_US)
        with pytest.raises(PoolsUnavailable, match=r"AUTH|SELECT"):
            await pools.reserve_first(TENANT, "a", FAST)
        await pools.close()


class Parrot:
    """Answers each command with the next of its lines, and then for ever its last."""

    def __init__(self, *lines: bytes) -> None:
        self._lines = list(lines)
        self.num_commands = 0
        self.port = 0

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[RedisPools]:
        writers: list[asyncio.StreamWriter] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writers.append(writer)
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                while head := await reader.readline():
                    for _ in range(int(head[1:])):
                        size = int((await reader.readline())[1:])
                        await reader.readexactly(size + 2)
                    self.num_commands += 1
                    line = self._lines.pop(0) if len(self._lines) > 1 else self._lines[0]
                    if not line:
                        break
                    writer.write(line)
            writer.close()

        listener = await asyncio.start_server(serve, "127.0.0.1", 0)
        self.port = listener.sockets[0].getsockname()[1]
        pools = RedisPools(f"redis://127.0.0.1:{self.port}", budget_us=BUDGET_US)
        try:
            yield pools
        finally:
            await pools.close()
            listener.close()
            for writer in writers:
                writer.close()


@pytest.mark.parametrize(
    ("lines", "num_commands", "settled"),
    [
        ((b"-LOADING Redis is loading\r\n", b":1\r\n"), 2, True),
        ((b"-TRYAGAIN\r\n", b"-CLUSTERDOWN\r\n", b":1\r\n"), 3, True),
        ((b"-NOSCRIPT No matching script\r\n", b"$2\r\nok\r\n", b":1\r\n"), 3, True),
        ((b"-MASTERDOWN Link is down\r\n", b":1\r\n"), 2, True),
        ((b"", b":1\r\n"), 2, True),  # hangs up instead of an answer
        ((b"what?\r\n",), 2, False),
        ((b"-NOPERM this user may not\r\n",), 1, False),
        ((b"",), 2, False),
        ((b"-TRYAGAIN\r\n",), 7, False),  # for ever
    ],
)
async def test_what_a_server_may_answer(
    lines: tuple[bytes, ...], num_commands: int, settled: bool
) -> None:
    parrot = Parrot(*lines)
    async with parrot.open() as pools:
        reservation = Reservation("a", "acme", FAST[0], lease_of("a", FAST[0]), 0)
        if settled:
            assert await pools.settle(reservation, {})
        else:
            with pytest.raises(PoolsUnavailable):
                await pools.settle(reservation, {})
        assert parrot.num_commands == num_commands


def test_on_uvloop_too(server: Server) -> None:
    async def one_task() -> None:
        pools = RedisPools(f"redis://127.0.0.1:{server.port}", budget_us=BUDGET_US)
        grant = await pools.reserve_first(TENANT, "a", FAST)
        assert grant.reservation is not None
        assert await pools.settle(grant.reservation, {"fast": 1})
        await pools.close()

    uvloop.run(one_task())
