"""Tests the table of what strategies give: its rows, its quality, and that the document has it."""

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from router.strategies.table import STRATEGIES
from tests.bench.strategies import BEGIN, DOCUMENT, END, Outcomes, quality_of, read_outcomes
from tests.sim.timed import Answered

OUTCOMES = Outcomes(num_records=10, fast=0.5, deep=0.75)


def run(answered_by: str, *generations: tuple[str, str]) -> Answered:
    rows = [{"backend": backend, "part": part} for backend, part in generations]
    routing: dict[str, Any] = {"answered_by": answered_by, "generations": rows or None}
    return Answered({"routing": routing}, 0, 0)


def test_the_document_has_a_row_for_each_strategy() -> None:
    _, _, rest = DOCUMENT.read_text().partition(BEGIN)
    table, _, _ = rest.partition(END)
    for how in ("fast alone", "deep alone", *(f"`{name}`" for name in STRATEGIES)):
        assert f"| {how} |" in table, f"make strategies DATA=... ({how})"


@pytest.mark.parametrize(
    ("how", "runs", "expected"),
    [
        ("fast alone", [run("wafer")], "0.500"),
        ("draft", [run("gpu", ("wafer", "draft"), ("gpu", "answer"))], "0.750"),
        ("hedge", [run("gpu", ("gpu", "answer")), run("wafer", ("wafer", "answer"))], "0.625"),
        ("verify", [run("gpu", ("gpu", "answer")), run("wafer", ("wafer", "answer"))], "-"),
        ("delegate", [run("wafer", ("wafer", "converse"))], "0.500"),
        (
            "advise",
            [run("wafer", ("wafer", "converse"), ("gpu", "advice"), ("wafer", "converse"))],
            "-",
        ),
        ("breadth", [run("gpu", ("wafer", "vary"), ("gpu", "judge"))], "-"),
    ],
)
def test_quality_is_recorded_where_nothing_was_chosen_by_its_words(
    how: str, runs: list[Answered], expected: str
) -> None:
    assert quality_of(runs, how, OUTCOMES) == expected
    assert quality_of(runs, how, None) == "-"


def test_what_is_chosen_by_its_words_has_the_quality_of_the_choice() -> None:
    known = msgspec.structs.replace(OUTCOMES, chosen={"verify": "0.700"})
    runs = [run("gpu", ("gpu", "answer")), run("wafer", ("wafer", "answer"))]
    assert quality_of(runs, "verify", known) == "0.700"
    assert quality_of(runs, "hedge", known) == "0.625"


def test_a_check_finds_the_right_one_of_five_more_often_than_one_answer_is_right(
    tmp_path: Path,
) -> None:
    """`verify` is left out where there are too few records to learn from."""
    with gzip.open(tmp_path / "quality.jsonl.gz", "wt") as file:
        for number in range(60):
            labels = {"small_ok": number % 2, "small_rate": 0.5, "large_ok": 1}
            file.write(json.dumps({"text": f"Question {number}?", "labels": labels}) + "\n")
    found = read_outcomes(tmp_path).chosen["breadth"]
    assert found.endswith(" (fast 0.500, deep 1.000)")
    assert 0.6 < float(found.split()[0]) <= 1.0


def test_outcomes_are_means_over_the_records(tmp_path: Path) -> None:
    records = [{"text": "Why?", "labels": {"small_ok": n % 2, "large_ok": 1}} for n in range(4)]
    (tmp_path / "dev").mkdir()
    with gzip.open(tmp_path / "dev" / "quality.jsonl.gz", "wt") as file:
        file.writelines(
            json.dumps(record) + "\n" for record in [*records, {"text": "Why?", "labels": {}}]
        )
    assert read_outcomes(tmp_path) == Outcomes(4, 0.5, 1.0)
    with pytest.raises(SystemExit, match="small_ok and large_ok"):
        read_outcomes(tmp_path / "none")
