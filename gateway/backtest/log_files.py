"""Reads decision logs from files, with those that were rotated away. This is an edge."""

import codecs
import gzip
import re
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from gateway.store.decision_search import lines_backwards

MAX_LINE_BYTES = 1 << 20
TOLD_EVERY = 200  # lines
MAX_SET_BACK_LINES = 100  # in a row, of a clock that was set back for a moment
MAX_BAD_LINES = 100  # a log that was cut amid a line has one

OnBytes = Callable[[int], None]
Record = TypeVar("Record")


class LogFileError(Exception):
    """A file is no decision log, or cannot be read."""


class _When(msgspec.Struct):
    at: float = 0.0
    duration_ms: float = 0.0


_WORKER = re.compile(r"\.worker-\d+")
_WHEN = msgspec.json.Decoder(_When)


def read_lines(paths: Iterable[Path], on_bytes: OnBytes | None = None) -> Iterator[bytes]:
    """Yields all lines of these files, plain or gzipped. Raises `LogFileError`.

    `on_bytes` hears now and then how many bytes of all files have been read.
    """
    num_before = 0
    for path in paths:
        try:
            with path.open("rb") as file:
                lines: Iterable[bytes] = (
                    gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file
                )
                for number, line in enumerate(lines, start=1):
                    # Some editors begin a file with a mark.
                    yield line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
                    if on_bytes is not None and number % TOLD_EVERY == 0:
                        on_bytes(num_before + file.tell())
                num_before += file.tell()
        except (OSError, EOFError, zlib.error) as error:
            raise LogFileError(_unread(path, error)) from error


def last_end_s(paths: Iterable[Path]) -> float:
    """Returns when the latest task in these files ended, as Unix time; 0: there is none.

    When a file was written does not say it: a copy is newer than its lines. But no line is newer
    than its file, so that one with a wrong clock does not count for more. Raises `LogFileError`.
    """
    latest_s = 0.0
    for path in paths:
        try:
            written_s = path.stat().st_mtime
            for line in _tail(path, 0.0, 1):
                when = _WHEN.decode(line)
                latest_s = max(latest_s, min(written_s, when.at + when.duration_ms / 1e3))
        except OSError as error:
            raise LogFileError(_unread(path, error)) from error
    return latest_s


def last_lines(paths: Iterable[Path], since_s: float) -> list[bytes]:
    """Returns the lines of tasks that arrived since a Unix time, from the files' ends.

    Raises `LogFileError` if a file cannot be read.
    """
    found: list[bytes] = []
    for path in paths:
        try:
            found += _tail(path, since_s)
        except OSError as error:
            raise LogFileError(_unread(path, error)) from error
    return found


def _unread(path: Path, error: Exception) -> str:
    return f"{path}: {getattr(error, 'strerror', None) or error}"


def _tail(path: Path, since_s: float, most: int | None = None) -> list[bytes]:
    """Reads backwards, until tasks have ended before the time, or there are as many as wanted."""
    if path.suffix == ".gz":  # which cannot be read backwards
        return _end_of_packed(path, since_s, most)
    found: list[bytes] = []
    num_before = 0  # lines in a row
    for line in lines_backwards(path):
        if not line.strip():
            continue
        try:
            when = _WHEN.decode(line)
        except msgspec.DecodeError:
            continue
        num_before = num_before + 1 if when.at + when.duration_ms / 1e3 < since_s else 0
        if num_before > MAX_SET_BACK_LINES:
            break
        if when.at >= since_s:
            found.append(line)
        if len(found) == most:
            break
    return found[::-1]


def _end_of_packed(path: Path, since_s: float, most: int | None) -> list[bytes]:
    found: deque[bytes] = deque(maxlen=most)
    for line in read_lines([path]):
        try:
            if _WHEN.decode(line).at >= since_s:
                found.append(line)
        except msgspec.DecodeError:
            continue
    return list(found)


def records_in(
    paths: Iterable[Path],
    decode: Callable[[bytes], Record],
    *,
    since_s: float | None = None,
    on_bytes: OnBytes | None = None,
) -> Iterator[Record]:
    """Decodes the lines of files, of which each is a decision log. Raises `LogFileError`.

    `since_s`, a Unix time, reads only tasks that arrived since. `on_bytes` is as `read_lines` has
    it, and hears nothing of such a part.
    """
    num_before = 0

    def told(num_bytes: int) -> None:
        if on_bytes is not None:
            on_bytes(num_before + num_bytes)

    for path in paths:
        lines = read_lines([path], told) if since_s is None else last_lines([path], since_s)
        yield from records_of(lines, decode, f"{path}: ")
        num_before += path.stat().st_size


def records_of(
    lines: Iterable[bytes], decode: Callable[[bytes], Record], where: str = ""
) -> Iterator[Record]:
    """Decodes lines; of those that are none, a few are passed over. Raises `LogFileError`.

    `where` begins its message, and says of which file the lines are.
    """
    num_bad, num_good, is_cut = 0, 0, False
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        if len(line) > MAX_LINE_BYTES:
            words = f"line {number} has {len(line):,} bytes: this is no decision log"
            raise LogFileError(where + words)
        try:
            record = decode(line)
        except (msgspec.DecodeError, ValueError) as error:
            num_bad += 1
            is_cut = not line.endswith(b"\n")  # as it is written, or where its gateway was killed
            if num_bad > MAX_BAD_LINES or "schema" in str(error):
                words = f"line {number} is no line of a decision log: {error}"
                raise LogFileError(where + words) from None
            continue
        num_good += 1
        yield record
    if num_bad > is_cut and not num_good:
        raise LogFileError(f"{where}none of its {num_bad} lines is one of a decision log")


def with_rotated(path: Path) -> list[Path]:
    """Returns a log's files, the oldest first: `x.9` ... `x.1`, `x`, and the workers' own."""
    own = path.parent.glob(f"{path.name}.worker-*")
    logs = [path, *sorted(each for each in own if _WORKER.fullmatch(each.suffix))]
    found: list[Path] = []
    for log in logs:
        rotated = [
            each
            for each in log.parent.glob(f"{log.name}.*")
            if each.suffix[1:].isdecimal() and each.with_suffix("") == log
        ]
        found += sorted(rotated, key=lambda each: -int(each.suffix[1:]))
        if log.exists():
            found.append(log)
    return found
