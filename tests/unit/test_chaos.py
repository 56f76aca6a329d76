"""Tests the table of loads and faults: whole, and what it calls is there."""

from pathlib import Path

from tests.accept.__main__ import scripts
from tests.chaos.__main__ import Verdict, commands_of, written
from tests.chaos.table import SCENARIOS

ROOT = Path(__file__).resolve().parents[2]


def test_all_loads_and_faults_are_there() -> None:
    wanted = [f"L{number}" for number in range(1, 8)] + [f"F{number}" for number in range(1, 21)]
    assert [scenario.name for scenario in SCENARIOS] == wanted
    for scenario in SCENARIOS:
        assert scenario.scene or scenario.tests or scenario.accept, scenario.name
        assert scenario.seconds <= scenario.full_s
        assert "|" not in scenario.title + scenario.passes_if, "it stands in a table"


def test_what_it_calls_is_there() -> None:
    names = {script.name for script in scripts()} | {"autobahn"}
    for scenario in SCENARIOS:
        assert {*scenario.accept, *scenario.full_accept} <= names
        for test in scenario.tests:
            path, _, function = test.partition("::")
            assert f"def {function}" in (ROOT / path).read_text(), test


def test_with_time_more_is_called() -> None:
    (clients,) = (scenario for scenario in SCENARIOS if scenario.name == "F10")
    assert len(commands_of(clients, is_full=True)) == len(commands_of(clients, is_full=False)) + 1


def test_verdicts_stand_in_the_page() -> None:
    rows = [Verdict(SCENARIOS[0], (), 9.6, 0.5), Verdict(SCENARIOS[1], ("late: 3 | 4",), 20.0, 2.0)]
    page = written("before\n<!-- chaos -->\nold\n<!-- /chaos -->\nafter\n", rows, 7, is_full=False)
    assert page.startswith("before\n<!-- chaos -->\n")
    assert page.endswith("<!-- /chaos -->\nafter\n")
    assert "seed 7: 1 of 2 held" in page
    assert "| held | 10 | 0.5 |" in page
    assert "| failed: late: 3 / 4 | 20 | 2.0 |" in page
    assert "old" not in page
    assert written(page, rows, 7, is_full=False) == page
