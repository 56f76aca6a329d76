"""Writes the decision log in a thread of its own, so that a slow disk never blocks a stream.

Lines wait in a bounded queue; when it is full, lines are dropped and counted. Files are rotated by
size: `decisions.jsonl` is the newest, `decisions.jsonl.1` the one before. This is an edge.
"""

import errno
import fcntl
import io
import logging
import os
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from gateway.store.batch_thread import BatchThread
from gateway.store.reports import Recorded
from router.record.recording import DecisionRecord, EngineSettings, encode_line

logger = logging.getLogger("lanewise")

MAX_RECENT = 200  # records kept in memory for the admin API; without a file, taken in a second
MAX_QUEUED = 10_000  # lines; about 20 MB at most
SETTINGS_EVERY = 500  # lines, one of which has the engines' settings
CLOSE_TIMEOUT_S = 5.0  # for what is queued when the gateway stops


class LogInUse(Exception):  # noqa: N818 - says what is the case
    """Another process writes to the path."""


class Recorder:
    """Writes decision records to a file, if it has a path, and keeps the latest in memory."""

    def __init__(
        self,
        path: Path | None,
        *,
        max_bytes: int,
        keep: int,
        on_recorded: Callable[[Recorded, int], None],
        engine_settings: Callable[[], tuple[EngineSettings, ...]] = tuple,
        waits: bool = False,
    ) -> None:
        """Opens the log: files of `max_bytes`, of which `keep` stay besides the newest.

        `on_recorded` counts lines, and is called from the thread, too. Some lines have the
        `engine_settings` of that moment, so that a back-test finds them in any file. Raises
        `LogInUse` if another process writes to the path, and `OSError` if it cannot be written.
        With `waits` neither is so: lines are queued until that process has ended.
        """
        self.recent: deque[DecisionRecord] = deque(maxlen=MAX_RECENT)
        self._max_bytes = max_bytes
        self._keep = keep
        self._on_recorded = on_recorded
        self._engine_settings = engine_settings
        self._num_recorded = 0
        self._second_us = self._num_in_second = 0
        self._thread: BatchThread[bytes] | None = None
        self.is_writing = path is not None  # records, to a file
        if path is not None:
            self._path = path
            self._complained = False
            self._is_waiting = waits
            if not waits:
                self._open()
            self._thread = BatchThread("decision-log", self._write, MAX_QUEUED)

    @property
    def path(self) -> Path | None:
        """Returns the newest file, if records are written to one."""
        return self._path if self._thread is not None else None

    def wants(self, now_us: int) -> bool:
        """Says whether to make the record of a task that ends at this monotonic time.

        A file has every task. Without one as many a second are taken as are kept: what is beyond
        that would be gone before anybody could look at it.
        """
        if self._thread is not None:
            return True
        if now_us - self._second_us >= 1_000_000:
            self._second_us, self._num_in_second = now_us, 0
        self._num_in_second += 1
        return self._num_in_second <= MAX_RECENT

    def record(self, record: DecisionRecord) -> None:
        """Takes a record, without waiting for the disk."""
        self.recent.append(record)
        if self._thread is None:
            return
        if self._num_recorded % SETTINGS_EVERY == 0:
            record = msgspec.structs.replace(record, engine_settings=self._engine_settings())
        self._num_recorded += 1
        if not self._thread.put(encode_line(record)):
            self._on_recorded("dropped", 1)

    def erase(self, tenant_id: str) -> None:
        """Drops a tenant's records from memory; the files stay as they are."""
        kept = [record for record in self.recent if record.tenant != tenant_id]
        self.recent.clear()
        self.recent.extend(kept)

    def close(self) -> None:
        """Writes what is queued and stops; lines left after `CLOSE_TIMEOUT_S` are lost."""
        if self._thread is None:
            return
        if not self._thread.close(CLOSE_TIMEOUT_S):
            logger.warning("the decision log's disk does not take its last lines")
            return
        self._thread, self.is_writing = None, False
        if not self._is_waiting:
            self._file.close()
            self._lock.close()

    def _open(self) -> None:
        held = _lock(self._path, waits=self._is_waiting)
        try:
            self._file = _opened(self._path)
        except OSError:
            held.close()
            raise
        self._lock, self._is_waiting = held, False

    def _write(self, lines: list[bytes]) -> None:
        try:
            if self._is_waiting:
                self._open()
            if self._file.closed:  # reopening it failed the last time
                self._file = _opened(self._path)
            if self._file.tell() >= self._max_bytes:
                self._rotate()
            self._append(b"".join(lines))
        except OSError as error:
            self._on_recorded("failed", len(lines))
            if not self._complained:
                self._complained = True
                logger.warning("recording.path %s: lines are lost: %s", self._path, error)
        else:
            self._complained = False
            self._on_recorded("written", len(lines))

    def _append(self, content: bytes) -> None:
        """Writes all of it, or truncates the file to where it was: no line is left half written."""
        start = self._file.seek(0, io.SEEK_END)
        rest = memoryview(content)
        try:
            while rest:
                rest = rest[self._file.write(rest) or 0 :]
        except OSError:
            self._file.truncate(start)
            raise

    def _rotate(self) -> None:
        self._file.close()
        for number in range(self._keep, 0, -1):
            older = _numbered(self._path, number - 1)
            if older.exists():
                older.replace(_numbered(self._path, number))
        if self._keep == 0:
            self._path.unlink()
        self._file = _opened(self._path)


def check_writable(path: Path) -> None:
    """Raises `OSError` if a log could not be written there; unlike opening it, this makes no file.

    A gateway of another user may be able to, or not.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path.parent))
    for each in (path, _lock_path(path)):
        if not os.access(each if each.exists() else path.parent, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(each))


def unwritable(path: Path, error: OSError) -> str:
    """Says why a log cannot be written to the path, which may lie with its folder or its lock."""
    place = "" if error.filename in (None, str(path)) else f" ({error.filename})"
    return f"recording.path {str(path)!r} cannot be written: {error.strerror or error}{place}"


def _opened(path: Path) -> io.FileIO:
    """Opens a file to append, readable by this user alone, since it may hold prompts."""
    return open(path, "ab", buffering=0, opener=partial(os.open, mode=0o600))


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}") if number else path


def _lock_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


def _lock(path: Path, *, waits: bool) -> io.BufferedWriter:
    """Locks the path, because two processes would rotate each other's files away."""
    lock = _lock_path(path)
    try:
        held = lock.open("wb")
    except OSError as error:
        if not lock.exists():  # nobody has heard of it: it is the folder that takes no files
            error.filename = str(path.parent)
        raise
    try:
        fcntl.flock(held, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
    except OSError as error:
        held.close()
        raise LogInUse(
            f"recording.path {str(path)!r}: another process writes to it; give each its own"
        ) from error
    return held
