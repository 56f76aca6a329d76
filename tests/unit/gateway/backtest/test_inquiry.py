"""Inquiries: which lines of a log they read, and how its engines were configured."""

from pathlib import Path

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


def test_tasks_that_no_policy_decided_are_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    over = line(1, policy=None, outcome="rate_limited", error="budget_exceeded")
    wrong = line(2, policy=None, outcome="invalid", error="insufficient_permissions")
    path.write_bytes(line(0, (WAFER,)) + over + wrong)
    report = answer(Inquiry(paths=(path,), bases={DEFAULT_POLICY.version: DEFAULT_POLICY}))
    assert report.num_tasks == 1
    assert any(note.startswith("Left out: 2 tasks") for note in report.notes)
    assert report.first_line.startswith("Replay under 'default', which made the log: ")
