"""Tests the usage ledger on a real Redis: each entry once, whatever is cut on its way in or out."""

import asyncio
import csv
import json
import random
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

import pytest
import redis as sync_redis
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from gateway.access.tenant_store import Change, TenantStore
from gateway.access.tenant_view import TenantsView
from gateway.config.sections import LedgerConfig
from gateway.store import usage_export
from gateway.store.ledger import STREAM, Ledger, open_ledger, spent_key
from gateway.store.ledger_entry import COLUMNS, LedgerEntry, LedgerLine
from gateway.store.parquet import ParquetFile
from gateway.store.usage_export import ExportError, Source, Summary
from gateway.store.usage_export import export as drain
from router.redis.audit import AuditEntry
from router.redis.client import redis_client
from tests.integration.redis_fleet import Cluster, running

EXPORT = """
import asyncio, pathlib, sys
from gateway.store.usage_export import export
from router.redis.client import redis_client

async def whole():
    async with redis_client(sys.argv[1], timeout_s=30) as client:
        await export(client, pathlib.Path(sys.argv[2]))

asyncio.run(whole())
"""
NOON_S = 1_700_000_000


def entry(number: int, tenant_id: str = "acme", cost: int = 7) -> LedgerEntry:
    line = LedgerLine(
        backend="wafer",
        group="fast",
        model="lanewise-fast",
        input_tokens=5,
        cached_tokens=1,
        output_tokens=2,
        reasoning_tokens=0,
        exact=True,
        cost_units=cost,
    )
    return LedgerEntry(
        task_id=f"resp_{number}",
        tenant_id=tenant_id,
        key_id="k",
        tier="pro",
        route="fast",
        outcome="ok",
        ended_s=NOON_S,
        duration_ms=12,
        lines=(line,),
    )


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_url, socket_timeout=60) as client:
        yield client


@pytest.fixture
def stored(redis_url: str) -> Iterator["sync_redis.Redis[bytes]"]:
    with sync_redis.Redis.from_url(redis_url) as client:
        yield client


def fill(redis_url: str, count: int, first: int = 0) -> None:
    async def add() -> None:
        async with (
            redis_client(redis_url, timeout_s=60) as client,
            open_ledger(client, LedgerConfig()) as ledger,
        ):
            for number in range(first, first + count):
                ledger.add(entry(number))

    asyncio.run(add())


def export(url: str, out: Path, adopt: str | None = None) -> Summary:
    async def whole() -> Summary:
        async with redis_client(url, timeout_s=60) as client:
            return await drain(client, out, adopt=adopt)

    return asyncio.run(whole())


def task_ids(path: Path) -> list[str]:
    with path.open(newline="") as file:
        return [row["task_id"] for row in csv.DictReader(file)]


# -- in ----------------------------------------------------------------------------------------


async def test_entries_and_counters_are_sent(client: Redis) -> None:
    async with open_ledger(client, LedgerConfig()) as ledger:
        for number in range(1_200):
            ledger.add(entry(number, tenant_id=f"t{number % 2}"))
    assert await client.xlen(STREAM) == 1_200
    assert (ledger.report.num_appended, ledger.report.num_waiting) == (1_200, 0)
    spent = await ledger.spent("t1", NOON_S)
    assert (spent["tasks"], spent["cost_units"], spent["fast.tokens"]) == (600, 4_200, 4_200)
    assert await ledger.spent("t1", NOON_S + 86_400) == {}


async def test_counters_without_an_answer_are_not_added_twice(
    client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, other = Ledger(client, max_entries=1000), Ledger(client, max_entries=1000)
    run, num_lost = ledger._add_spent, 3

    async def without_answers(**call: Any) -> None:
        nonlocal num_lost
        await run(**call)
        num_lost -= 1
        if num_lost >= 0:
            raise ConnectionError("the answer was lost")

    monkeypatch.setattr(ledger, "_add_spent", without_answers)
    for number, tenant_id in enumerate(("t1", "t1", "t2")):
        ledger.add(entry(number, tenant_id=tenant_id))
    assert not await ledger.flush()
    ledger.add(entry(3, tenant_id="t1"))
    while not await ledger.flush():
        pass
    other.add(entry(4, tenant_id="t2"))
    assert await other.flush()
    for tenant_id, num_tasks in (("t1", 3), ("t2", 2)):
        spent = await ledger.spent(tenant_id, NOON_S)
        assert (spent["tasks"], spent["cost_units"]) == (num_tasks, 7 * num_tasks)
        assert not [name for name in spent if name.startswith("by")]


async def test_counters_that_redis_cannot_add_to_keep_no_others_back(
    client: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    broken = spent_key("t0", NOON_S)
    await client.set(broken, "no hash")
    ledger = Ledger(client, max_entries=1000)
    for number in range(6):
        ledger.add(entry(number, tenant_id=f"t{number % 3}"))
        assert await ledger.flush()
    for tenant_id in ("t1", "t2"):
        assert (await ledger.spent(tenant_id, NOON_S))["tasks"] == 2
    assert await client.xlen(STREAM) == 6
    assert broken in caplog.text
    await client.delete(broken)
    ledger.add(entry(6, tenant_id="t0"))
    assert await ledger.flush()
    assert (await ledger.spent("t0", NOON_S))["tasks"] == 1


async def test_a_batch_without_an_answer_is_not_appended_twice(
    client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(client, max_entries=1000)
    run = ledger._append

    async def without_answer(**call: Any) -> None:
        await run(**call)
        raise ConnectionError("the answer was lost")

    ledger.add(entry(1))
    monkeypatch.setattr(ledger, "_append", without_answer)
    assert not await ledger.flush()
    assert not await ledger.flush()
    monkeypatch.setattr(ledger, "_append", run)
    ledger.add(entry(2))
    assert await ledger.flush()
    found = [json.loads(fields[b"e"])["task_id"] for _, fields in await client.xrange(STREAM)]
    assert found == ["resp_1", "resp_2"]


async def test_what_redis_took_and_lost_with_its_master_is_counted(client: Redis) -> None:
    ledger = Ledger(client, max_entries=1000)
    for number in range(4):
        ledger.add(entry(number))
        assert await ledger.flush()
        if number == 1:
            replica = await client.get(ledger._writer)  # it has no more than that when it leads
    await client.set(ledger._writer, replica)
    for _ in range(3):
        ledger.add(entry(4))
        assert await ledger.flush()
        assert ledger.report.num_forgotten == 2


async def test_a_full_redis_that_drops_the_writers_number_has_lost_nothing(client: Redis) -> None:
    """The number has a time to live, and goes by `volatile-lru`; the stream has none."""
    ledger = Ledger(client, max_entries=10_000)
    for number in range(3):
        ledger.add(entry(number))
        assert await ledger.flush()
        for key in await client.keys("lw1:{ledger}:w:*"):
            await client.delete(key)
    assert (await client.xlen(STREAM), ledger.report.num_forgotten) == (3, 0)
    await client.delete(STREAM)
    ledger.add(entry(3))
    assert await ledger.flush()
    assert (await client.xlen(STREAM), ledger.report.num_forgotten) == (1, 3)


async def test_what_has_no_room_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.store.ledger.MAX_WAITING", 100)
    at_once = Retry(NoBackoff(), 0)
    async with Redis(unix_socket_path="/nowhere/redis.sock", retry=at_once) as nowhere:
        ledger = Ledger(nowhere, max_entries=1000)
        for _ in range(103):
            ledger.add(entry(1))
        assert not await ledger.flush()
        assert ledger.report.num_lost == 3
        assert ledger.report.num_waiting == 100


@pytest.mark.parametrize("takes", [True, False])
async def test_at_the_end_a_slow_redis_is_waited_for_and_a_silent_one_is_not(
    client: Redis, monkeypatch: pytest.MonkeyPatch, takes: bool
) -> None:
    ledger = Ledger(client, max_entries=10_000)
    for number in range(1_600):  # four batches
        ledger.add(entry(number))
    run, may_send = ledger._append, asyncio.Semaphore(0)

    async def slowly(**call: Any) -> Any:
        await may_send.acquire()
        return await run(**call)

    async def never(**_call: Any) -> None:
        await asyncio.Event().wait()

    async def one_batch(sending: "asyncio.Task[None]", _time_s: float) -> None:
        number = ledger._number
        may_send.release()
        while takes and ledger._number == number and not sending.done():  # noqa: ASYNC110
            await asyncio.sleep(0)

    monkeypatch.setattr(ledger, "_append", slowly if takes else never)
    monkeypatch.setattr(ledger, "_give_time", one_batch)
    await ledger.close()
    assert await client.xlen(STREAM) == (1_600 if takes else 0)
    assert ledger.report.num_lost == (0 if takes else 1_600)


async def test_a_stream_nobody_exports_stays_bounded_and_says_what_it_dropped(
    client: Redis,
) -> None:
    ledger = Ledger(client, max_entries=1000)
    for number in range(3_000):
        ledger.add(entry(number))
    assert await ledger.flush()
    length = await client.xlen(STREAM)
    assert 1000 <= length < 1500
    assert ledger.report.num_dropped == 3_000 - length
    assert ledger.report.num_entries == length


# -- out ---------------------------------------------------------------------------------------


def test_a_csv_grows_by_each_export(
    redis_url: str, stored: "sync_redis.Redis[bytes]", tmp_path: Path
) -> None:
    out = tmp_path / "usage.csv"
    for first in (0, 1_500):
        fill(redis_url, 1_500, first)
        assert export(redis_url, out).num_entries == 1_500
    assert task_ids(out) == [f"resp_{number}" for number in range(3_000)]
    with out.open(newline="") as file:
        row = next(csv.DictReader(file))
    assert list(row) == list(COLUMNS)
    assert (row["exact"], row["cost_units"], row["ended_at"]) == (
        "true",
        "7",
        "2023-11-14T22:13:20Z",
    )
    assert stored.xlen(STREAM) == 0
    assert export(redis_url, out).num_entries == 0


class Cut(Exception):  # noqa: N818
    """The process ended here."""


def cut_once(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, *, after: bool) -> None:
    real = getattr(owner, name)
    left = [3]  # the third call

    def cut(*arguments: Any) -> Any:
        left[0] -= 1
        if left[0] == 0 and not after:
            raise Cut
        answer = real(*arguments)
        if left[0] == 0:
            raise Cut
        return answer

    async def cut_awaited(*arguments: Any) -> None:
        left[0] -= 1
        if left[0] > 0 or after:
            await real(*arguments)
        if left[0] == 0:
            raise Cut

    monkeypatch.setattr(owner, name, cut_awaited if iscoroutinefunction(real) else cut)


CUTS = [
    (usage_export.os, "fsync"),
    (usage_export, "_write_checkpoint"),
    (Source, "acknowledge"),
]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(("owner", "name"), CUTS)
def test_cut_anywhere_each_entry_is_there_once(
    redis_url: str,
    stored: "sync_redis.Redis[bytes]",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    after: bool,
) -> None:
    fill(redis_url, 4_500)
    out, other = tmp_path / "usage.csv", tmp_path / "other.csv"
    with monkeypatch.context() as patch:
        cut_once(patch, owner, name, after=after)
        with pytest.raises(Cut):
            export(redis_url, out)
    with out.open("ab") as file:
        file.write(b"half a li")  # as a crash in the middle of a write leaves it
    elsewhere = export(redis_url, other)  # another file gets none of what this one was handed
    assert export(redis_url, out).num_dropped == 0
    found = task_ids(out) + task_ids(other)
    assert sorted(found) == sorted(f"resp_{number}" for number in range(4_500))
    assert elsewhere.num_entries == len(task_ids(other))
    assert stored.xlen(STREAM) == 0


def test_killed_again_and_again(
    redis_url: str, stored: "sync_redis.Redis[bytes]", tmp_path: Path
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    out = tmp_path / "usage.csv"
    command = [sys.executable, "-c", EXPORT, redis_url, str(out)]
    num_entries = num_cut = 0
    while num_cut < 2:
        if stored.xlen(STREAM) < 15_000:  # at first, or when it was faster than the kill
            assert num_entries < 300_000, "it is always faster"
            fill(redis_url, 30_000, num_entries)
            num_entries += 30_000
        before = stored.xlen(STREAM)
        with subprocess.Popen(command) as process:
            while stored.xlen(STREAM) >= before:  # until it is under way
                assert process.poll() is None
                time.sleep(0.001)
            time.sleep(chance.random() * 0.05)
            process.kill()
        num_cut += stored.xlen(STREAM) > 0  # else it was over
    export(redis_url, out)
    found = task_ids(out)
    assert len(found) == num_entries
    assert len(set(found)) == num_entries
    assert stored.xlen(STREAM) == 0


def test_parquet_is_whole_or_not_there(
    redis_url: str,
    stored: "sync_redis.Redis[bytes]",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    fill(redis_url, 2_500)
    out = tmp_path / "usage.parquet"
    for owner, name in ((ParquetFile, "__exit__"), (Source, "acknowledge")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, lambda *_: (_ for _ in ()).throw(Cut))
            with pytest.raises(Cut):
                export(redis_url, out)
    fill(redis_url, 10, 2_500)
    assert export(redis_url, out).num_entries == 0  # it was whole; only the end was missing
    table = parquet.read_table(out)
    assert table.column("task_id").to_pylist() == [f"resp_{number}" for number in range(2_500)]
    assert table.column("cost_units").to_pylist()[0] == 7
    with pytest.raises(ExportError, match=r"is complete, .*: name another file"):
        export(redis_url, out)
    assert export(redis_url, tmp_path / "more.parquet").num_entries == 10


def test_what_an_unfinished_export_holds_can_be_adopted(
    redis_url: str,
    stored: "sync_redis.Redis[bytes]",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fill(redis_url, 1_200)
    lost, fresh = tmp_path / "lost.csv", tmp_path / "fresh.csv"
    with monkeypatch.context() as patch:
        cut_once(patch, usage_export.os, "fsync", after=False)
        with pytest.raises(Cut):
            export(redis_url, lost)
    fill(redis_url, 100, 1_200)
    (name,) = export(redis_url, fresh).elsewhere
    assert str(lost) in name
    assert not export(redis_url, fresh, adopt=name).elsewhere
    assert sorted(task_ids(fresh)) == sorted(f"resp_{number}" for number in range(1_300))


def test_an_export_may_adopt_what_is_its_own(
    redis_url: str,
    stored: "sync_redis.Redis[bytes]",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fill(redis_url, 20)
    out = tmp_path / "usage.csv"
    with monkeypatch.context() as patch:
        cut_once(patch, usage_export.os, "fsync", after=False)
        with pytest.raises(Cut):
            export(redis_url, out)
    own = json.loads((tmp_path / "usage.csv.checkpoint").read_text())["consumer"]

    async def again() -> Summary:
        async with redis_client(redis_url, timeout_s=60) as client, asyncio.timeout(20):
            return await drain(client, out, adopt=own)

    assert asyncio.run(again()).num_entries == 20
    assert task_ids(out) == [f"resp_{number}" for number in range(20)]


def test_what_was_handed_out_and_lost_on_the_way_comes_again(
    redis_url: str, stored: "sync_redis.Redis[bytes]", tmp_path: Path
) -> None:
    out = tmp_path / "usage.csv"
    fill(redis_url, 5)
    export(redis_url, out)
    fill(redis_url, 20, 5)
    consumer = json.loads((tmp_path / "usage.csv.checkpoint").read_text())["consumer"]
    lost = stored.xreadgroup("export", consumer, {STREAM: ">"}, count=10)  # the answer got lost
    assert len(lost[0][1]) == 10
    assert export(redis_url, out).num_entries == 20
    assert task_ids(out) == [f"resp_{number}" for number in range(25)]


def test_a_file_that_was_moved_away_begins_anew(
    redis_url: str, stored: "sync_redis.Redis[bytes]", tmp_path: Path
) -> None:
    out = tmp_path / "usage.csv"
    fill(redis_url, 5)
    export(redis_url, out)
    out.rename(tmp_path / "usage.1.csv")
    fill(redis_url, 5, 5)
    export(redis_url, out)
    assert task_ids(out) == [f"resp_{number}" for number in range(5, 10)]
    out.write_text("shorter")
    with pytest.raises(ExportError, match="were exported into it"):
        export(redis_url, out)
    with pytest.raises(ExportError, match=r"\.csv or \.parquet"):
        export(redis_url, tmp_path / "usage.txt")
    with pytest.raises(ExportError, match="there is no folder"):
        export(redis_url, tmp_path / "none" / "usage.csv")


# -- on a Cluster --------------------------------------------------------------------------------


def test_keys_and_the_ledger_on_a_cluster(tmp_path_factory: pytest.TempPathFactory) -> None:
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    out = tmp_path_factory.mktemp("out") / "usage.csv"
    with running(*cluster.servers):
        cluster.form()
        fill(cluster.url, 1_500)
        assert export(cluster.url, out).num_entries == 1_500
        asyncio.run(write_and_hear(cluster.url))


async def write_and_hear(url: str) -> None:
    """Checks that a change that one gateway makes reaches another."""
    async with AsyncExitStack() as stack:
        heard = asyncio.Event()
        rosters = (TenantsView(), TenantsView())
        clients = [redis_client(url, timeout_s=60) for _ in rosters]
        for client in clients:
            stack.push_async_callback(client.aclose)
        writer, reader = (
            TenantStore(client, tenant_view, max_stale_s=60, on_change=heard.set)
            for client, tenant_view in zip(clients, rosters, strict=True)
        )
        follow = asyncio.create_task(reader.follow())
        audit = AuditEntry(author="ada", action="tenants.create", subject="a")
        await writer.write([Change("tenant:a", b"", b'{"id": "a", "tier": "pro"}')], audit)
        await reader.note_used({"k": 5})
        while "a" not in rosters[1].tenants:
            heard.clear()
            await asyncio.wait_for(heard.wait(), 60)
        follow.cancel()
        await asyncio.gather(follow, return_exceptions=True)
        assert await writer.last_used_s(["k"]) == {}, "of no key that there is"
        assert len(await writer.audit(5)) == 1
