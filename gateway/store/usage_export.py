"""Drains the usage ledger into a file, each entry exactly once, even if an export is interrupted.

Each file is a consumer of a Redis consumer group, so that an entry goes to one file only. Beside
the file is a checkpoint with the consumer's name, the last batch's ids and the file's size. A batch
takes four steps:

1. Redis delivers entries (they are pending for this file now);
2. their rows are appended and flushed to the disk;
3. the checkpoint is replaced by one that includes them, in one rename;
4. the entries are acknowledged and deleted in Redis.

After a crash before 3, the file is truncated to its checkpoint and the pending entries come again;
after 3, those in the checkpoint are only acknowledged. Parquet cannot be appended to: there the
whole file is written under another name, and its rename is step 3. This is an edge.
"""

import contextlib
import csv
import fcntl
import io
import os
import secrets
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from gateway.store.ledger import STREAM
from gateway.store.ledger_entry import COLUMNS, LedgerEntry, rows_of
from gateway.store.parquet import ParquetFile

GROUP = "export"
BATCH = 1_000
NEW = ">"  # to Redis: entries that no consumer has

Row = dict[str, str | int | bool]
Batch = dict[str, LedgerEntry | None]  # by ids in the stream; None: dropped from it


class ExportError(Exception):
    """The file cannot be used; the message says why, and what to do."""


class Checkpoint(msgspec.Struct, frozen=True):
    """Says which part of a file is complete."""

    consumer: str
    ids: frozenset[str] = frozenset()  # of the last batch, which may still be pending
    size_bytes: int = 0


class Summary(msgspec.Struct):
    """Says what an export came to."""

    num_entries: int = 0
    num_rows: int = 0
    num_dropped: int = 0  # dropped from the stream before they were read
    num_elsewhere: int = 0  # pending for other files
    elsewhere: list[str] = []


class Source:
    """Reads the ledger as one consumer of its group."""

    def __init__(self, redis: Redis, consumer: str) -> None:
        self._redis = redis
        self.consumer = consumer

    async def join(self) -> None:
        """Creates the consumer group if there is none."""
        try:
            await self._redis.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
        except ResponseError as error:
            if "BUSYGROUP" not in str(error):  # it exists
                raise

    async def batches(self, *, with_new: bool = True) -> AsyncIterator[Batch]:
        """Yields batches of entries pending for this consumer, then of new ones."""
        after = "0"
        while True:
            found: Any = await self._redis.xreadgroup(
                GROUP, self.consumer, {STREAM: after}, count=BATCH
            )
            handed = found[0][1] if found else []
            if handed:
                yield {name.decode(): _entry(fields) for name, fields in handed}
            elif after == NEW or not with_new:
                return
            if after != NEW:
                after = handed[-1][0].decode() if handed else NEW

    async def acknowledge(self, ids: list[str]) -> None:
        """Acknowledges and deletes entries that are safely in the file."""
        pipe = self._redis.pipeline(transaction=True)
        for start in range(0, len(ids), BATCH):
            pipe.xack(STREAM, GROUP, *ids[start : start + BATCH])
            pipe.xdel(STREAM, *ids[start : start + BATCH])
        await pipe.execute()

    async def adopt(self, other: str) -> None:
        """Claims the entries pending for another file, which may already hold some of them."""
        while other != self.consumer:  # what is its own comes anyway, and would never be less
            found: Any = await self._redis.xpending_range(
                STREAM, GROUP, min="-", max="+", count=BATCH, consumername=other
            )
            ids = [entry["message_id"] for entry in found]
            if not ids:
                return
            await self._redis.xclaim(STREAM, GROUP, self.consumer, 0, ids, justid=True)

    async def finish(self, summary: Summary) -> None:
        """Leaves the group if nothing is pending here; notes entries pending for other files."""
        consumers: Any = await self._redis.xinfo_consumers(STREAM, GROUP)
        for consumer in consumers:
            name = consumer["name"].decode()
            if name == self.consumer:
                if consumer["pending"] == 0:
                    await self._redis.xgroup_delconsumer(STREAM, GROUP, self.consumer)
            elif consumer["pending"]:
                summary.num_elsewhere += consumer["pending"]
                summary.elsewhere.append(name)


def _entry(fields: dict[bytes, bytes] | None) -> LedgerEntry | None:
    return msgspec.json.decode(fields[b"e"], type=LedgerEntry) if fields else None


async def export(redis: Redis, out: Path, *, adopt: str | None = None) -> Summary:
    """Drains the ledger into `out`, a `.csv` that is appended to or a new `.parquet`.

    Raises `ExportError` if the file cannot be used. After an `OSError` or `RedisError`, which
    interrupt the export, run it again for the same file.
    """
    if out.suffix not in (".csv", ".parquet"):
        raise ExportError(f"--out {out}: expected a file ending in .csv or .parquet")
    if not out.parent.is_dir():
        raise ExportError(f"--out {out}: there is no folder {out.parent}")
    with _locked(out):
        checkpoint = _begin(out, may_go_on=adopt is None or out.suffix == ".csv")
        source, summary = Source(redis, checkpoint.consumer), Summary()
        await source.join()
        if adopt is not None:
            await source.adopt(adopt)
        if out.suffix == ".csv":
            await _export_csv(source, out, checkpoint, summary)
        else:
            await _export_parquet(source, out, summary)
            _checkpoint_path(out).unlink()
        await source.finish(summary)
    return summary


def _begin(out: Path, *, may_go_on: bool) -> Checkpoint:
    """Reads the file's checkpoint, or writes its first."""
    path = _checkpoint_path(out)
    with contextlib.suppress(FileNotFoundError):
        content = path.read_bytes()
        if not may_go_on:
            raise ExportError(f"--adopt: needs a new file, and {out} was begun before")
        try:
            return msgspec.json.decode(content, type=Checkpoint)
        except msgspec.DecodeError as error:
            raise ExportError(f"{path} is no checkpoint: {error}") from error
    if out.exists() and out.suffix == ".parquet":  # its checkpoint ended with it
        raise ExportError(
            f"--out {out} is complete, and nothing is added to a Parquet file: name another file"
        )
    if out.exists():
        raise ExportError(
            f"--out {out} is there, but not its checkpoint {path.name}: name another file, or "
            "bring the checkpoint back"
        )
    checkpoint = Checkpoint(f"{socket.gethostname()}:{out.resolve()}:{secrets.token_hex(4)}")
    _write_checkpoint(path, checkpoint)
    return checkpoint


async def _export_csv(source: Source, out: Path, checkpoint: Checkpoint, summary: Summary) -> None:
    with out.open("ab") as file:
        size_bytes = file.tell()
        if size_bytes == 0:  # new, or moved away by log rotation
            checkpoint = msgspec.structs.replace(checkpoint, size_bytes=0)
        if size_bytes < checkpoint.size_bytes:
            raise ExportError(
                f"--out {out} has {size_bytes} bytes, but {checkpoint.size_bytes} were exported "
                "into it: move both it and its checkpoint away to begin a new one"
            )
        file.truncate(checkpoint.size_bytes)
        file.seek(0, os.SEEK_END)
        if checkpoint.size_bytes == 0:
            file.write(_csv_lines([dict(zip(COLUMNS, COLUMNS, strict=True))]))
        known = checkpoint.ids
        async for batch in source.batches():
            rows = _take(batch, known, summary)
            file.write(_csv_lines(rows))
            file.flush()
            os.fsync(file.fileno())
            if rows:
                fresh = Checkpoint(source.consumer, frozenset(batch), file.tell())
                _write_checkpoint(_checkpoint_path(out), fresh)
            await source.acknowledge(list(batch))


async def _export_parquet(source: Source, out: Path, summary: Summary) -> None:
    ids: list[str] = []
    written = ParquetFile.column(out, "task_id")
    if written is None:
        partial = out.with_name(f"{out.name}.partial")
        with ParquetFile(partial, COLUMNS) as file:
            async for batch in source.batches():
                ids += batch
                file.write(_take(batch, frozenset(), summary))
        _sync(partial)
        partial.replace(out)
        _sync(out.parent)
    else:  # interrupted after the rename: acknowledge the pending entries that it holds
        tasks = set(written)
        async for batch in source.batches(with_new=False):
            ids += [name for name, e in batch.items() if e is None or e.task_id in tasks]
    await source.acknowledge(ids)


def _take(batch: Batch, known: frozenset[str], summary: Summary) -> list[Row]:
    entries = [e for name, e in batch.items() if e is not None and name not in known]
    rows = [row for entry in entries for row in rows_of(entry)]
    summary.num_entries += len(entries)
    summary.num_rows += len(rows)
    summary.num_dropped += sum(entry is None for entry in batch.values())
    return rows


def _checkpoint_path(out: Path) -> Path:
    return out.with_name(f"{out.name}.checkpoint")


def _csv_lines(rows: list[Row]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    spelled = {True: "true", False: "false"}
    for row in rows:
        values = (row[name] for name in COLUMNS)
        writer.writerow(spelled[v] if isinstance(v, bool) else v for v in values)
    return text.getvalue().encode()


def _write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Replaces the checkpoint atomically, even if the power fails."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_bytes(msgspec.json.encode(checkpoint))
    _sync(fresh)
    fresh.replace(path)
    _sync(path.parent)


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


@contextlib.contextmanager
def _locked(out: Path) -> Iterator[None]:
    """Allows one export per file at a time; the kernel releases it if the process dies."""
    path = out.with_name(f".{out.name}.lock")
    with path.open("wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ExportError(f"--out {out}: another export is writing it") from None
        yield
