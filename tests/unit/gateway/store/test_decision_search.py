"""Tests finding decisions in memory and in the log's files."""

from pathlib import Path

import pytest

from gateway.store import decision_search
from gateway.store.decision_search import DecisionQuery, found_in_files, found_in_memory
from router.record.recording import DecisionRecord, encode_line


def record(number: int, **fields: object) -> DecisionRecord:
    given = {"tenant": "acme", "outcome": "ok", **fields}
    return DecisionRecord(
        id=f"resp_{number}", at=float(number), tier="pro", model="auto", duration_ms=500.0, **given
    )  # type: ignore[arg-type]


RECORDS = [
    record(1, rule="a"),
    record(2, tenant="beta"),
    record(3, outcome="error"),
    record(4, rule='ö "b"'),
    record(5, tenant="beta", outcome="error"),
]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({}, [5, 4, 3, 2, 1]),
        ({"limit": 2}, [5, 4]),
        ({"limit": 0}, []),
        ({"id": "resp_3"}, [3]),
        ({"id": "resp_"}, []),
        ({"tenant": "beta"}, [5, 2]),
        ({"tenant": "beta", "outcome": "ok"}, [2]),
        ({"rule": 'ö "b"'}, [4]),
        ({"since": 3.0}, [5, 4, 3]),
        ({"since": 2.0, "before": 4.0}, [3, 2]),
    ],
)
@pytest.mark.parametrize("block_bytes", [1 << 20, 100])
def test_search(
    query: dict[str, object],
    found: list[int],
    block_bytes: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decision_search, "_BLOCK_BYTES", block_bytes)
    asked = DecisionQuery(**{"limit": 50, **query})  # type: ignore[arg-type]
    ids = [f"resp_{number}" for number in found]
    assert [each.id for each in found_in_memory(RECORDS, asked)] == ids
    # Two workers' logs, one of them rotated, beside a file of somebody else's.
    lines = [encode_line(each) for each in RECORDS]
    (tmp_path / "log.jsonl.worker-1.1").write_bytes(lines[0])
    (tmp_path / "log.jsonl.worker-1").write_bytes(b"not a record\n" + lines[2])
    (tmp_path / "log.jsonl.worker-2").write_bytes(b"".join((lines[1], lines[3], lines[4])))
    (tmp_path / "log.jsonl.worker-2.lock").write_bytes(lines[4])
    (tmp_path / "log.jsonl.bak").write_bytes(lines[4])
    for name in ("log.jsonl", "log.jsonl.worker-1"):
        assert [each.id for each in found_in_files(tmp_path / name, asked)] == ids
