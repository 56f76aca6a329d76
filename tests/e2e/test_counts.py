"""The counts of `tests/bench/counts.py` are those of a gateway that serves."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.counts import ROOT, differing, kept, risen

TABLE = ROOT / "tests/bench/counts.json"
PATH = "JSON, upstream over Responses"
GUARDED: tuple[str, ...] = (
    "tasks",
    "futures",
    "Redis commands",
    "JSON encoded",
    "JSON decoded",
    "bytecodes",
)
GUARDED += ("Python calls", "C calls")


def test_a_task_is_counted_call_by_call_and_a_rise_is_told(tmp_path: Path) -> None:
    base, file = tmp_path / "base.json", tmp_path / "counts.json"
    task = dict.fromkeys(GUARDED, 1e6) | {"bytecodes": 1.0, "loop turns": 1.0, "socket calls": 1.0}
    base.write_text(json.dumps(kept({PATH: {"task": task, "token": {**task, "bytecodes": 1e6}}})))
    command = [sys.executable, "tests/bench/counts.py", "--only", PATH, "--repeat", "1"]
    command += ["--json", str(file), "--against", str(base)]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 1, found.stderr
    rises = [line for line in found.stdout.splitlines() if line.startswith("risen:")]
    assert len(rises) == 1
    assert "task: bytecodes" in rises[0]

    counts = json.loads(file.read_bytes())["counts"][PATH]
    task, token = counts["task"], counts["token"]
    assert task["Redis commands"] == 2  # what it reserves, and what it settles
    assert task["JSON decoded"] >= 20  # an event for each token, at least
    assert token["JSON decoded"] == 1
    assert token["Redis commands"] == token["tasks"] == token["futures"] == 0
    assert 0 < token["Python calls"] < token["bytecodes"] < task["bytecodes"]


@pytest.mark.patience(300)
def test_no_count_has_risen(tmp_path: Path) -> None:
    """A task and a token cost no more than in `tests/bench/counts.json`, which says of what.

    Where a rise is worth it, make the table anew: `counts.py --json tests/bench/counts.json`.
    """
    base = json.loads(TABLE.read_bytes())
    if other := differing(kept({}), base):
        pytest.skip(f"the table is of other versions: {', '.join(other)}")
    found: list[set[str]] = []
    # What runs now and then may fall into a task by chance, but not into several.
    for repeat in ("1", "3", "3"):
        file = tmp_path / "counts.json"
        command = [sys.executable, "tests/bench/counts.py", "--repeat", repeat, "--json", str(file)]
        told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert told.returncode == 0, told.stderr
        rises = risen(json.loads(file.read_bytes())["counts"], base["counts"])
        found.append({rise.rpartition(" -> ")[0] for rise in rises})
        if not rises:
            return
    assert set.intersection(*found) == set(), "make a task cheaper again, or the table anew"
