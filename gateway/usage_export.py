"""Drains the usage ledger into a file, each entry exactly once, whatever happens in between.

A consumer group hands every entry to one file: the file's consumer. What was handed out and is not
acknowledged yet is handed to the same file again, never to another. Beside the file a checkpoint
says how far it is good: the consumer's name, the last entry in it, and its size. A batch goes like
this, and may be cut anywhere:

1. Redis hands out entries (they are pending for this file now);
2. their rows are appended and flushed to the disk;
3. the checkpoint is replaced by one that counts them, in one rename;
4. Redis acknowledges and deletes them.

Cut before 3, the file is truncated to its checkpoint and the pending entries come again; cut after
3, those that the checkpoint counts are only acknowledged. Parquet cannot be appended to: there the
whole file is written under another name, and its rename is step 3.
"""

import contextlib
import csv
import fcntl
import io
import os
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from redis import Redis
from redis.exceptions import ResponseError

from gateway.ledger import STREAM
from gateway.ledger_entry import COLUMNS, LedgerEntry, rows_of
from gateway.parquet import ParquetFile

GROUP = "export"
BATCH = 1_000

Row = dict[str, str | int | bool]


class ExportError(Exception):
    """Why nothing can be exported, and what to do."""


class Checkpoint(msgspec.Struct, frozen=True):
    """How far a file is good."""

    consumer: str
    last_id: str = "0-0"
    size_bytes: int = 0


class Summary(msgspec.Struct):
    """What an export did."""

    num_entries: int = 0
    num_rows: int = 0
    num_dropped: int = 0  # handed out, but gone from the stream before they were read
    num_elsewhere: int = 0  # pending for other files
    elsewhere: list[str] = []


class Batch(msgspec.Struct, frozen=True):
    """Entries as the group hands them out; `ids` are all that are to be acknowledged."""

    ids: list[bytes]
    rows: list[Row]
    num_entries: int
    is_new: bool  # handed out for the first time

    @property
    def last_id(self) -> str:
        """The newest entry."""
        return self.ids[-1].decode()


class Source:
    """The ledger as one consumer sees it."""

    def __init__(self, redis: Redis, consumer: str) -> None:
        self._redis = redis
        self.consumer = consumer
        try:
            redis.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
        except ResponseError as error:
            if "BUSYGROUP" not in str(error):  # it is there
                raise

    def batches(self, last_id: str, summary: Summary) -> Iterator[Batch]:
        """What is pending for this consumer, then what is new; the file ends with `last_id`."""
        yield from self.pending(last_id, summary)
        yield from self._batches(">", (0, 0), summary)

    def pending(self, last_id: str, summary: Summary) -> Iterator[Batch]:
        """What was handed out before; what the file has already, up to `last_id`, has no rows."""
        yield from self._batches("0", place(last_id), summary)

    def _batches(self, start: str, done: tuple[int, int], summary: Summary) -> Iterator[Batch]:
        is_new = start == ">"
        while True:
            found: Any = self._redis.xreadgroup(GROUP, self.consumer, {STREAM: start}, count=BATCH)
            handed = found[0][1] if found else []
            if not handed:
                return
            rows: list[Row] = []
            num_entries = 0
            for entry_id, fields in handed:
                if place(entry_id.decode()) <= done:
                    continue  # in the file already
                if not fields:
                    summary.num_dropped += 1
                    continue
                entry = msgspec.json.decode(fields[b"e"], type=LedgerEntry)
                rows += rows_of(entry)
                num_entries += 1
            yield Batch([entry_id for entry_id, _ in handed], rows, num_entries, is_new)
            if not is_new:
                start = handed[-1][0].decode()

    def acknowledge(self, ids: list[bytes]) -> None:
        """These are in the file for good: forget them."""
        pipe = self._redis.pipeline(transaction=True)
        for start in range(0, len(ids), BATCH):
            pipe.xack(STREAM, GROUP, *ids[start : start + BATCH])
            pipe.xdel(STREAM, *ids[start : start + BATCH])
        pipe.execute()

    def adopt(self, other: str) -> int:
        """Take what is pending for another file, which may have some of it: how many."""
        num = 0
        while True:
            found: Any = self._redis.xpending_range(
                STREAM, GROUP, min="-", max="+", count=BATCH, consumername=other
            )
            ids = [entry["message_id"] for entry in found]
            if not ids:
                return num
            self._redis.xclaim(STREAM, GROUP, self.consumer, 0, ids, justid=True)
            num += len(ids)

    def finish(self, summary: Summary) -> None:
        """Leave the group if nothing is pending here; note what is for others."""
        consumers: Any = self._redis.xinfo_consumers(STREAM, GROUP)
        for consumer in consumers:
            name = consumer["name"].decode()
            if name == self.consumer:
                if consumer["pending"] == 0:
                    self._redis.xgroup_delconsumer(STREAM, GROUP, self.consumer)
            elif consumer["pending"]:
                summary.num_elsewhere += consumer["pending"]
                summary.elsewhere.append(name)


def place(entry_id: str) -> tuple[int, int]:
    """An entry's id in the stream's order."""
    ms, _, number = entry_id.partition("-")
    return int(ms), int(number or 0)


def export(redis: Redis, out: Path, *, adopt: str | None = None) -> Summary:
    """Drain the ledger into `out`, a `.csv` that is appended to or a `.parquet` that is new.

    Raises:
        ExportError: The file cannot be used, and why.
        OSError, RedisError: It was cut; run it again for the same file.
    """
    if out.suffix not in (".csv", ".parquet"):
        raise ExportError(f"--out {out}: expected a file ending in .csv or .parquet")
    with _locked(out):
        checkpoint_path = out.with_name(f"{out.name}.checkpoint")
        checkpoint = _read_checkpoint(checkpoint_path)
        if adopt is not None and checkpoint is not None:
            raise ExportError(f"--adopt: needs a new file, and {out} was begun before")
        if checkpoint is None:
            if out.exists():
                raise ExportError(
                    f"--out {out} is there, but not its checkpoint {checkpoint_path.name}: "
                    "name another file, or bring the checkpoint back"
                )
            name = f"{socket.gethostname()}:{out.resolve()}:{secrets.token_hex(4)}"
            checkpoint = Checkpoint(name)
            _write_checkpoint(checkpoint_path, checkpoint)
        source, summary = Source(redis, checkpoint.consumer), Summary()
        if adopt is not None:
            source.adopt(adopt)
        if out.suffix == ".csv":
            _export_csv(source, out, checkpoint_path, checkpoint, summary)
        else:
            _export_parquet(source, out, checkpoint, summary)
            checkpoint_path.unlink()
        source.finish(summary)
    return summary


def _export_csv(
    source: Source,
    out: Path,
    checkpoint_path: Path,
    checkpoint: Checkpoint,
    summary: Summary,
) -> None:
    with out.open("ab") as file:
        size_bytes = file.tell()
        if size_bytes == 0:  # new, or moved away by who rotates it
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
        for batch in source.batches(checkpoint.last_id, summary):
            if batch.rows:
                file.write(_csv_lines(batch.rows))
            file.flush()
            os.fsync(file.fileno())
            if batch.is_new or place(batch.last_id) > place(checkpoint.last_id):
                checkpoint = Checkpoint(source.consumer, batch.last_id, file.tell())
                _write_checkpoint(checkpoint_path, checkpoint)
            source.acknowledge(batch.ids)
            summary.num_entries += batch.num_entries
            summary.num_rows += len(batch.rows)


def _export_parquet(source: Source, out: Path, checkpoint: Checkpoint, summary: Summary) -> None:
    last_id = ParquetFile.last_id(out) if out.exists() else None
    ids: list[bytes] = []
    if last_id is None:
        partial = out.with_name(f"{out.name}.partial")
        with ParquetFile(partial, COLUMNS) as file:
            for batch in source.batches(checkpoint.last_id, summary):
                ids += batch.ids
                file.write(batch.rows)
                summary.num_entries += batch.num_entries
                summary.num_rows += len(batch.rows)
            file.finish(ids[-1].decode() if ids else "0-0")
        _sync(partial)
        partial.replace(out)
        _sync(out.parent)
    else:  # cut between the rename and the acknowledgements: everything pending is in the file
        for batch in source.pending(last_id, summary):
            ids += batch.ids
    source.acknowledge(ids)


def _csv_lines(rows: list[Row]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([_cell(row[name]) for name in COLUMNS] for row in rows)
    return text.getvalue().encode()


def _cell(value: str | int | bool) -> str | int:
    return ("true" if value else "false") if isinstance(value, bool) else value


def _read_checkpoint(path: Path) -> Checkpoint | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Checkpoint)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise ExportError(f"{path} is no checkpoint: {error}") from error


def _write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Replace it whole: a reader finds the old one or the new one, also after a power cut."""
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
    """One export per file at a time; the kernel frees it when the process ends."""
    path = out.with_name(f".{out.name}.lock")
    with path.open("wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ExportError(f"--out {out}: another export is writing it") from None
        yield
