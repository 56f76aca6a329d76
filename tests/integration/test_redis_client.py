"""Tests the client of calls off a task's path, whose connections a server closed meanwhile."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from router.redis.client import redis_client
from tests.integration.redis_fleet import PATIENCE_S, Cluster, Sentinels, Server, running

NUM_CONNECTIONS = 5


@contextlib.contextmanager
def servers(kind: str, folder: Path) -> Iterator[tuple[str, list[Server]]]:
    """Gives a URL, and the servers behind it that keep data."""
    if kind == "one":
        one = Server(folder)
        with running(one):
            one.ask("PING")
            yield f"redis://127.0.0.1:{one.port}", [one]
        return
    made = Cluster(folder) if kind == "cluster" else Sentinels(folder)
    with running(*made.servers):
        made.form()
        masters = made.servers[:3] if isinstance(made, Cluster) else [made.master]
        yield made.url, masters


async def call_at_once(client: Redis) -> None:
    """Makes as many calls as need a connection each."""
    keys = (f"{{one slot}}:{number}" for number in range(NUM_CONNECTIONS))
    await asyncio.gather(*(client.set(key, "kept") for key in keys))


async def asked(client: Redis, command: str, number: int) -> Any:
    key = f"{{one slot}}:{number}"
    if command == "get":
        return await client.get(key)
    pipe = client.pipeline(transaction=False)
    pipe.get(key)
    (answer,) = await pipe.execute()
    return answer


@pytest.mark.parametrize("kind", ["one", "sentinels", "cluster"])
async def test_connections_that_a_server_closed_meanwhile_fail_no_call(
    kind: str, tmp_path: Path
) -> None:
    """Redis's `timeout` does it, a balancer between, and a restart."""
    with servers(kind, tmp_path) as (url, masters):
        async with redis_client(url, timeout_s=PATIENCE_S) as client:
            for command in ("get", "pipeline"):
                await call_at_once(client)
                for master in masters:
                    await asyncio.to_thread(master.ask, "CLIENT", "KILL", "TYPE", "normal")
                await asyncio.sleep(0.1)  # until this loop has read that they are closed
                for number in range(NUM_CONNECTIONS):
                    assert await asked(client, command, number) == b"kept"
            if kind == "sentinels":  # these connections live as long as the process
                pool: Any = client.connection_pool
                for sentinel in pool.sentinel_manager.sentinels:
                    await sentinel.aclose()
