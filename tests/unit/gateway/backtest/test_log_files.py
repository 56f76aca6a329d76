"""Tests decision logs as files: rotated, gzipped, cut amid a line, and read from their end."""

import gzip
from pathlib import Path

import pytest

from gateway.backtest.inquiry import seconds_of
from gateway.backtest.log_files import (
    TOLD_EVERY,
    LogFileError,
    last_end_s,
    last_lines,
    read_lines,
    records_in,
    records_of,
    with_rotated,
)
from router.record.recording import DecisionRecord, decode_line, encode_line


def line(number: int, at_s: float) -> bytes:
    record = DecisionRecord(
        id=f"resp_{number}",
        at=at_s,
        tenant="studio",
        tier="x",
        model="auto",
        outcome="ok",
        duration_ms=500.0,
    )
    return encode_line(record)


def test_rotated_files_and_workers_come_in_order(tmp_path: Path) -> None:
    names = ["d.jsonl", "d.jsonl.1", "d.jsonl.10", "d.jsonl.worker-1", "d.jsonl.worker-1.1"]
    for name in [*names, "d.jsonl.lock", "d.jsonl.worker-1.lock"]:
        (tmp_path / name).write_bytes(b"")
    found = [path.name for path in with_rotated(tmp_path / "d.jsonl")]
    assert found == [names[2], names[1], names[0], names[4], names[3]]
    assert with_rotated(tmp_path / "other.jsonl") == []


def test_a_line_that_was_cut_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl.gz"
    path.write_bytes(gzip.compress(line(0, 1.0) + line(1, 2.0)[:40] + b"\n" + line(2, 3.0)))
    records = records_of(read_lines([path]), decode_line)
    assert [record.id for record in records] == ["resp_0", "resp_2"]


@pytest.mark.parametrize("name", ["d.jsonl", "d.jsonl.gz"])
def test_a_mark_before_the_first_line_is_passed_over(name: str, tmp_path: Path) -> None:
    content = b"\xef\xbb\xbf" + line(0, 1.0) + line(1, 2.0)
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    for lines in (read_lines([path]), last_lines([path], 0.0)):
        assert [record.id for record in records_of(lines, decode_line)] == ["resp_0", "resp_1"]


def test_how_far_it_has_read_is_told_across_files(tmp_path: Path) -> None:
    paths = [tmp_path / "d.jsonl.1", tmp_path / "d.jsonl"]
    for path in paths:
        path.write_bytes(b"".join(line(n, 1_000.0 + n) for n in range(1_000)))
    told: list[int] = []
    assert sum(1 for _ in read_lines(paths, told.append)) == 2_000
    assert len(told) == 2_000 // TOLD_EVERY
    assert told == sorted(set(told)), "it only grows"
    assert told[-1] == sum(path.stat().st_size for path in paths)
    told_by_line: list[int] = []
    assert sum(1 for _ in records_in(paths, decode_line, on_bytes=told_by_line.append)) == 2_000
    assert told_by_line == told


def test_what_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(LogFileError, match="none of its 2 lines"):
        list(records_of([b"hello\n", b"{}\n"], decode_line))
    with pytest.raises(LogFileError, match="schema 9"):
        list(records_of([line(0, 1.0).replace(b'"schema":2', b'"schema":9')], decode_line))
    with pytest.raises(LogFileError, match="missing"):
        list(read_lines([tmp_path / "missing"]))


@pytest.mark.parametrize("since_s", [None, 0.0])
def test_a_file_that_is_no_log_is_named_beside_one_that_is(
    since_s: float | None, tmp_path: Path
) -> None:
    log, other = tmp_path / "d.jsonl", tmp_path / "policy.toml"
    log.write_bytes(line(0, 1.0))
    other.write_bytes(b'{"at": 1}\n{"at": 2}\n')
    with pytest.raises(LogFileError, match=r"policy\.toml: none of its 2 lines"):
        list(records_in([log, other], decode_line, since_s=since_s))
    other.write_bytes(line(1, 2.0)[:40])  # what is being written is cut, and no fault of the log
    assert len(list(records_in([log, other], decode_line, since_s=since_s))) == 1
    with pytest.raises(LogFileError, match=f"^{tmp_path}: Is a directory$"):
        list(records_in([tmp_path], decode_line, since_s=since_s))


def test_the_last_part_is_read_from_the_end(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_bytes(b"".join(line(n, 1_000.0 + n) for n in range(5_000)))
    found = last_lines([path], 5_990.0)
    ids = [record.id for record in records_of(found, decode_line)]
    assert ids == [f"resp_{n}" for n in range(4_990, 5_000)]
    assert len(last_lines([path], 0.0)) == 5_000


def test_a_clock_that_was_set_back_for_a_moment_ends_no_last_part(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    times = [*range(5_000, 6_000), *range(1_000, 1_020), *range(6_000, 6_020)]
    path.write_bytes(b"".join(line(n, float(at_s)) for n, at_s in enumerate(times)))
    ids = [record.id for record in records_of(last_lines([path], 5_990.0), decode_line)]
    assert ids == [f"resp_{n}" for n in [*range(990, 1_000), *range(1_020, 1_040)]]


def test_the_last_part_of_a_packed_log_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl.gz"
    path.write_bytes(gzip.compress(b"".join(line(n, 1_000.0 + n) for n in range(50)) + b"{cut"))
    ids = [record.id for record in records_of(last_lines([path], 1_048.0), decode_line)]
    assert ids == ["resp_48", "resp_49"]
    assert last_end_s([path]) == 1_049.5


def test_a_log_ends_with_its_last_task_not_when_it_was_copied(tmp_path: Path) -> None:
    old, new, later = tmp_path / "d.jsonl.1", tmp_path / "d.jsonl", tmp_path / "l.jsonl"
    old.write_bytes(line(0, 1_000.0))
    new.write_bytes(line(1, 2_000.0) + line(2, 3_000.0) + b'{"schema":2,"id":"resp_3","at":40')
    assert last_end_s([old, new]) == 3_000.5
    later.write_bytes(line(3, 9e9))
    assert last_end_s([later]) == later.stat().st_mtime, "a wrong clock does not count for more"
    later.write_bytes(b"")
    assert last_end_s([later]) == 0.0


@pytest.mark.parametrize(("text", "seconds"), [("15m", 900), ("1.5h", 5_400), ("2d", 172_800)])
def test_durations(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


def test_what_is_no_duration() -> None:
    with pytest.raises(ValueError, match="expected a number and s, m, h or d"):
        seconds_of("15 minutes")
