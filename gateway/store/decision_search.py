"""Searches decisions: those in memory, and the files of the decision log from their ends backwards.

This is an edge.
"""

import codecs
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from router.record.recording import DecisionRecord, decode_line

MAX_FOUND = 1_000
_BLOCK_BYTES = 1 << 20
_MAX_LINE_BYTES = 1 << 20  # a longer one is none of ours
_ROTATED = re.compile(r"(\.worker-\d+)?(?:\.(\d+))?")


class DecisionQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Says what a decision must be to be found; None: anything."""

    limit: int
    id: str | None = None
    tenant: str | None = None
    rule: str | None = None
    outcome: str | None = None
    since: float | None = None  # Unix time of arrival
    before: float | None = None

    def takes(self, record: DecisionRecord) -> bool:
        """Says whether a record is one of those asked for."""
        return (
            all(
                wanted is None or wanted == getattr(record, name)
                for name, wanted in self._exact().items()
            )
            and (self.since is None or record.at >= self.since)
            and (self.before is None or record.at < self.before)
        )

    def _exact(self) -> dict[str, str | None]:
        return {name: getattr(self, name) for name in ("id", "tenant", "rule", "outcome")}

    def marks(self) -> list[bytes]:
        """Returns what each line that fits holds, as it is written."""
        given = ((name, value) for name, value in self._exact().items() if value is not None)
        return [b'"%b":%b' % (name.encode(), msgspec.json.encode(value)) for name, value in given]


def found_in_memory(
    records: Iterable[DecisionRecord], query: DecisionQuery
) -> list[DecisionRecord]:
    """Returns the latest of the records that a query takes, the latest first."""
    found = sorted(filter(query.takes, records), key=lambda record: record.at, reverse=True)
    return found[: query.limit]


def found_in_files(path: Path, query: DecisionQuery) -> list[DecisionRecord]:
    """Returns the latest of what a query takes in a log, and in those of other workers beside it.

    Reads all of the files if it has to, which takes a second for each GiB; not for an event loop.
    """
    found: list[DecisionRecord] = []
    for files in _logs(path):
        of_log = (record for file in files for record in _read(file, query))
        for number, record in enumerate(of_log, start=1):
            found.append(record)
            if number == query.limit:
                break
    return found_in_memory(found, query)


def _logs(path: Path) -> list[list[Path]]:
    """Returns each worker's files, the newest of each first."""
    name = re.sub(r"\.worker-\d+$", "", path.name)
    logs: dict[str, list[tuple[int, Path]]] = {}
    for file in path.parent.iterdir():
        if file.name.startswith(name):
            rotated = _ROTATED.fullmatch(file.name, len(name))
            if rotated is not None:
                logs.setdefault(rotated[1] or "", []).append((int(rotated[2] or 0), file))
    return [[file for _, file in sorted(files)] for files in logs.values()]


def _read(file: Path, query: DecisionQuery) -> Iterator[DecisionRecord]:
    marks = query.marks()
    for line in lines_backwards(file):
        if not all(mark in line for mark in marks):
            continue
        try:
            record = decode_line(line)
        except ValueError:
            continue
        if query.since is not None and record.at + record.duration_ms / 1e3 < query.since:
            return  # lines are in the order in which tasks ended
        if query.takes(record):
            yield record


def lines_backwards(path: Path) -> Iterator[bytes]:
    """Yields a file's lines, the last first; none if it was just rotated away.

    It ends at a line that is too long for a log.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        at, rest = file.seek(0, 2), b""
        while at > 0 and len(rest) < _MAX_LINE_BYTES:
            size = min(_BLOCK_BYTES, at)
            at -= size
            file.seek(at)
            first, *lines = (file.read(size) + rest).split(b"\n")
            yield from reversed(lines)
            rest = first
        if at == 0:
            yield rest.removeprefix(codecs.BOM_UTF8)
