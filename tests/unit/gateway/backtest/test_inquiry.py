"""Tests inquiries: which lines of a log they read, and how its engines were configured."""

from pathlib import Path

import msgspec

from gateway.backtest.inquiry import Inquiry, answer, question_of
from router.policy.policy import DEFAULT_POLICY, parse_policy
from tests.unit.gateway.log_lines import WAFER, line


def test_the_last_part_of_a_log_has_its_engines_from_the_whole_of_it(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_bytes(b"".join([line(0, (WAFER,)), *(line(n) for n in range(1, 20))]))
    bases = {DEFAULT_POLICY.version: DEFAULT_POLICY}
    asked = question_of(Inquiry(paths=(path,), since_s=1_015.0, bases=bases))
    assert [each.id for each in asked.logged.arrivals] == [f"resp_{n}" for n in range(15, 20)]
    assert [machine.info.name for machine in asked.fleet.machines] == ["wafer"]


def test_a_stored_policys_document_is_known_by_the_number_that_the_log_has(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_bytes(line(0, (WAFER,), "v7") + line(1, (), "v7") + line(2, (), "v6"))
    bases = {"mine.toml": parse_policy(b'version = "studio-fast"', "mine.toml")}
    asked = Inquiry(paths=(path,), bases=bases, base="mine.toml")
    assert question_of(asked).base.version == "v7"
    report = answer(asked)
    assert report.first_line.startswith("Replay under 'v7', which made 66.7% of the log: ")
    assert any("v6 (1)" in note for note in report.notes)


def test_what_a_version_of_an_emptied_store_decided_is_not_the_present_ones(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_bytes(b"".join([line(0, (WAFER,), "v1"), *(line(n, (), "v1") for n in range(1, 3))]))
    bases = {"v1": parse_policy(b'version = "v1"')}
    report = answer(Inquiry(paths=(path,), bases=bases, stored_s={"v1": 1_000.5}))
    assert report.first_line.startswith("Replay under 'v1', which made 66.7% of the log: ")
    assert any("an earlier v1 (1)" in note for note in report.notes)


def test_two_documents_of_one_version_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    one, two = (parse_policy(f'version = "{name}"'.encode()) for name in ("one", "two"))
    first = [line(0, (WAFER,), "v1"), line(1, (), "v1", policy_digest=one.digest)]
    path.write_bytes(
        b"".join([*first, *(line(n, (), "v1", policy_digest=two.digest) for n in range(2, 5))])
    )
    asked = Inquiry(paths=(path,), bases={"v1": two.named("v1")})
    report = answer(asked)
    assert report.first_line.startswith("Replay under 'v1', which made 80.0% of the log: ")
    earlier = f"an earlier v1 ({one.digest})"
    assert any(f"{earlier} (1)" in note for note in report.notes)
    assert question_of(asked).redecided.num_tasks == 0, "lines of these tests lack what it sees"

    # A base is known by its document, whatever is named like it and has most tasks.
    assert question_of(msgspec.structs.replace(asked, bases={"f": one}, base="f")).base == (
        one.named(earlier)
    )
    # Whose v1 is the present one, only a gateway knows.
    known = msgspec.structs.replace(
        asked, bases={"f": two}, base="f", digests={"v1": one.digest or ""}
    )
    assert question_of(known).versions == {"v1": 2, f"an earlier v1 ({two.digest})": 3}


def test_tasks_that_no_policy_decided_are_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    over = line(1, policy=None, outcome="rate_limited", error="budget_exceeded")
    wrong = line(2, policy=None, outcome="invalid", error="insufficient_permissions")
    path.write_bytes(line(0, (WAFER,)) + over + wrong)
    report = answer(Inquiry(paths=(path,), bases={DEFAULT_POLICY.version: DEFAULT_POLICY}))
    assert report.num_tasks == 1
    assert any(note.startswith("Left out: 2 tasks") for note in report.notes)
    assert report.first_line.startswith("Replay under 'default', which made the log: ")
