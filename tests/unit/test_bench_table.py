"""Tests the frame of `make bench`: goals, medians, scripts that fail or hang, the document."""

import json
from pathlib import Path

import msgspec
import pytest

from tests.bench import rows as shape
from tests.bench import table
from tests.bench.rows import Goal, Row

SCRIPT = """
import argparse, sys
sys.path.insert(0, {root!r})
from tests.bench import rows
parser = argparse.ArgumentParser()
rows.add_argument(parser)
parser.add_argument("--value", type=float)
asked = parser.parse_args()
rows.publish([rows.Row(name="one", unit="ms", values=[asked.value], baseline="old",
                       baseline_values=[10.0], goal=rows.less_by(80, aim=90))], asked)
"""


@pytest.mark.parametrize(
    ("goal", "values", "baseline", "met", "aim_met"),
    [
        (shape.at_most(1.0, "us", aim=0.5), [0.4, 0.9, 7.0], [], True, False),
        (shape.at_most(1.0, "us"), [1.1], [], False, False),
        (shape.at_least(100.0), [100.0], [], True, True),
        (shape.at_least(100.0), [99.0], [], False, False),
        (shape.less_by(80, aim=90), [1.9], [10.0], True, False),
        (shape.less_by(80, aim=90), [1.0], [10.0], True, True),
        (shape.less_by(80), [1.0], [], False, False),
        (shape.ahead(), [10.0], [10.0], True, True),
        (shape.ahead(0.5), [6.0], [10.0], False, False),
        (shape.at_most(1.0), [], [], False, False),
    ],
)
def test_a_goal_is_of_the_medians(
    goal: Goal, values: list[float], baseline: list[float], met: bool, aim_met: bool
) -> None:
    row = Row(name="r", unit="ms", values=values, baseline_values=baseline, goal=goal)
    assert row.met is met
    assert goal.aim_met(row) is aim_met


def run_of(tmp_path: Path, text: str, *arguments: str, limit_s: int = 60) -> table.Outcome:
    script = tmp_path / "made.py"
    script.write_text(text)
    return table.run(table.Script("made", "Made", arguments, limit_s, str(script)), tmp_path)


def test_runs_of_a_script_are_joined_and_written_into_the_document(tmp_path: Path) -> None:
    text = SCRIPT.format(root=str(table.ROOT))
    outcomes = [run_of(tmp_path, text, "--value", value) for value in ("1", "4", "1.5")]
    (joined,) = table.joined(outcomes)
    (row,) = joined.rows
    assert (row.value, row.ratio, row.met) == (1.5, 0.15, True)
    kept = {
        "machine": table.machine(),
        "scripts": [{**msgspec.to_builtins(joined), "rows": [row.as_json()]}],
    }
    kept = json.loads(json.dumps(kept))
    assert kept["scripts"][0]["rows"][0]["met"] is True
    old = f"# Speed\n{table.BEGIN}\nold\n{table.END}\nMethod.\n"
    new = table.written_into(old, table.markdown(kept))
    assert "| one | 1.5 ms | 10 (old) | 0.15 (-85%) | -80 % or more; aim -90% | yes |" in new
    assert new.startswith("# Speed\n")
    assert new.endswith("\nMethod.\n")
    assert "\nold\n" not in new
    assert "1 of 1 goals met" in table.report(kept)


def test_a_script_that_fails_or_hangs_is_told_with_its_last_words(tmp_path: Path) -> None:
    failed = run_of(tmp_path, "print('cannot')\nraise SystemExit(3)")
    assert failed.failure.startswith("ended with 3:")
    assert "cannot" in failed.failure
    hung = run_of(tmp_path, "import time\ntime.sleep(60)", limit_s=1)
    assert hung.failure.startswith("was not done after 1 s")
    assert hung.wall_s < 60


def test_every_registered_script_exists_and_takes_rows() -> None:
    names = [script.name for script in table.SCRIPTS]
    assert len(set(names)) == len(names)
    for script in table.SCRIPTS:
        path = table.FOLDER / (script.file or f"{script.name}.py")
        assert "publish(" in path.read_text(), f"{path.name} publishes no rows"
