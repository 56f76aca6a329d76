"""Tests the decision log's writer: rotation, bounds, and disks that are slow, full or shared."""

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from gateway.store import batch_thread
from gateway.store import decision_log as module
from gateway.store.decision_log import LogInUse, Recorder, unwritable
from router.record.recording import DecisionRecord, decode_line

RECORD = DecisionRecord(
    id="resp_0", at=1.0, tenant="acme", tier="pro", model="auto", outcome="ok", duration_ms=1.0
)


class Log:
    """Holds a recorder on a file, with what it counts."""

    def __init__(
        self, path: Path, max_bytes: int = 1 << 20, keep: int = 2, *, waits: bool = False
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.path = path
        self.recorder = Recorder(
            path, max_bytes=max_bytes, keep=keep, on_recorded=self._count, waits=waits
        )

    def _count(self, result: str, count: int) -> None:
        self.counts[result] += count

    def write(self, first: int, last: int) -> None:
        for n in range(first, last):
            self.recorder.record(msgspec.structs.replace(RECORD, id=f"resp_{n}"))

    def lines(self) -> list[str]:
        """Returns the ids of all lines in all files, the oldest first."""
        numbered = sorted(self.path.parent.glob(f"{self.path.name}.[0-9]*"), reverse=True)
        files = [path for path in [*numbered, self.path] if path.exists()]
        return [
            decode_line(line).id for path in files for line in path.read_bytes().splitlines(True)
        ]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "decisions.jsonl"


@pytest.fixture
def closing() -> Iterator[Callable[[Log], Log]]:
    made: list[Log] = []

    def close_later(log: Log) -> Log:
        made.append(log)
        return log

    yield close_later
    for log in made:
        log.recorder.close()


def test_every_line_is_written_in_order(path: Path) -> None:
    log = Log(path)
    log.write(0, 1_000)
    log.recorder.close()
    assert log.lines() == [f"resp_{n}" for n in range(1_000)]
    assert log.counts == {"written": 1_000}
    again = Log(path)
    again.write(1_000, 1_001)
    again.recorder.close()
    assert len(log.lines()) == 1_001, "it goes on where it ended"


def test_files_are_rotated_and_the_oldest_goes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_thread, "MAX_BATCH", 1)
    log = Log(path, max_bytes=4_000, keep=2)
    log.write(0, 100)
    log.recorder.close()
    sizes = {file.name: file.stat().st_size for file in path.parent.glob("*.jsonl*")}
    assert set(sizes) == {path.name, f"{path.name}.1", f"{path.name}.2", f"{path.name}.lock"}
    one_line = path.read_bytes().index(b"\n") + 1
    assert max(sizes.values()) < 4_000 + one_line
    left = log.lines()
    assert left == [f"resp_{n}" for n in range(100 - len(left), 100)], "the latest, none in two"


def test_a_disk_that_is_too_slow_loses_lines_and_stops_nobody(
    path: Path, monkeypatch: pytest.MonkeyPatch, closing: Callable[[Log], Log]
) -> None:
    monkeypatch.setattr(module, "MAX_QUEUED", 10)
    log = closing(Log(path))
    blocked, go = threading.Event(), threading.Event()
    append = log.recorder._append

    def wait_first(content: bytes) -> None:
        blocked.set()
        go.wait()
        append(content)

    monkeypatch.setattr(log.recorder, "_append", wait_first)
    log.write(0, 1)
    blocked.wait()
    log.write(1, 31)
    assert log.counts == {"dropped": 20}
    go.set()
    log.recorder.close()
    assert log.lines() == [f"resp_{n}" for n in range(11)]
    assert log.counts == {"dropped": 20, "written": 11}


def test_a_full_disk_is_counted_and_leaves_no_half_line(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = Log(path)
    write = os.write

    class FullDisk:
        """Takes half of the first write, then nothing, then everything."""

        closed = False
        calls = 0

        def __init__(self) -> None:
            self.real = path.open("ab", buffering=0)

        def tell(self) -> int:
            return self.real.tell()

        def seek(self, offset: int, whence: int) -> int:
            return self.real.seek(offset, whence)

        def truncate(self, size: int) -> int:
            return self.real.truncate(size)

        def close(self) -> None:
            self.real.close()

        def write(self, content: memoryview) -> int:
            self.calls += 1
            if self.calls == 1:
                return write(self.real.fileno(), content[: len(content) // 2])
            if self.calls == 2:
                raise OSError(28, "No space left on device")
            return write(self.real.fileno(), content)

    log.recorder._file.close()
    log.recorder._file = FullDisk()  # type: ignore[assignment]
    done = threading.Event()
    count = log._count
    monkeypatch.setattr(
        log.recorder, "_on_recorded", lambda result, n: (count(result, n), done.set())
    )
    log.write(0, 1)
    done.wait()
    log.write(1, 2)
    log.recorder.close()
    assert log.counts == {"failed": 1, "written": 1}
    assert log.lines() == ["resp_1"]
    assert "No space left" in caplog.text


def test_two_processes_never_share_a_file(path: Path, closing: Callable[[Log], Log]) -> None:
    closing(Log(path))
    with pytest.raises(LogInUse, match="each its own"):
        Log(path)


def test_one_that_waits_writes_once_the_other_has_ended(
    path: Path, closing: Callable[[Log], Log]
) -> None:
    before, after = Log(path), closing(Log(path, waits=True))
    after.write(1, 3)
    before.write(0, 1)
    before.recorder.close()
    after.recorder.close()
    assert after.lines() == ["resp_0", "resp_1", "resp_2"]
    assert after.counts == {"written": 2}


def test_a_path_that_cannot_be_written_is_told_at_once(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "decisions.jsonl"
    with pytest.raises(OSError, match="missing") as raised:
        Log(path)
    assert unwritable(path, raised.value) == (
        f"recording.path '{path}' cannot be written: No such file or directory ({path.parent})"
    )


def test_a_lock_that_cannot_be_written_is_told_as_such(path: Path) -> None:
    lock = path.with_name(f"{path.name}.lock")
    lock.mkdir()
    with pytest.raises(OSError, match="lock") as raised:
        Log(path)
    assert unwritable(path, raised.value) == (
        f"recording.path '{path}' cannot be written: Is a directory ({lock})"
    )


def test_a_folder_in_its_place_is_told(path: Path) -> None:
    path.mkdir()
    with pytest.raises(OSError, match="directory") as raised:
        Log(path)
    assert unwritable(path, raised.value) == (
        f"recording.path '{path}' cannot be written: Is a directory"
    )


def test_without_a_path_the_latest_are_kept() -> None:
    recorder = Recorder(None, max_bytes=1, keep=1, on_recorded=lambda *_: None)
    for n in range(300):
        recorder.record(msgspec.structs.replace(RECORD, id=f"resp_{n}"))
    assert [record.id for record in recorder.recent] == [f"resp_{n}" for n in range(100, 300)]
    assert not recorder.is_writing
    recorder.close()


def test_without_a_path_no_more_are_taken_in_a_second_than_are_kept(
    path: Path, closing: Callable[[Log], Log]
) -> None:
    recorder = Recorder(None, max_bytes=1, keep=1, on_recorded=lambda *_: None)
    wanted = [recorder.wants(number * 2_000) for number in range(1_000)]  # 500 a second
    assert [sum(wanted[start : start + 500]) for start in (0, 500)] == [200, 200]
    assert all(wanted[:200]), "the first of a second"
    assert all(recorder.wants(10_000_000 + number * 10_000) for number in range(300)), "fewer"
    writing = closing(Log(path)).recorder
    assert all(writing.wants(0) for _ in range(1_000)), "a file has every task"
