"""Loops are seen within two calls, and clean runs are left alone; on runs drawn from a seed."""

from functools import cache

from backends.contract import BackendGroup
from tests.unit.router.agent_runs.planted_runs import CLEAN, planted_runs
from tests.unit.router.agent_runs.replaying import Replayed, replayed
from tests.unit.router.tasks import of_class

SEED = 20_261_122
NUM_EACH = 40
MAX_DELAY = 2  # calls after it was stuck
MAX_FALSE = 0.05  # of clean runs that go up at all


@cache
def _replayed(holder: BackendGroup = "fast") -> list[Replayed]:
    asked = of_class("deep") if holder == "deep" else None
    runs = planted_runs(SEED, NUM_EACH)
    return [replayed(run, SEED, asked=asked, holder=holder) for run in runs]


def test_a_stuck_run_goes_up_within_two_calls() -> None:
    late = [
        (found.run.kind, found.delay)
        for found in _replayed()
        if found.run.stuck_at is not None and (found.delay is None or found.delay > MAX_DELAY)
    ]
    assert not late, f"seed {SEED}"


def test_clean_runs_are_not_sent_up() -> None:
    clean = [found for found in _replayed() if found.run.stuck_at is None]
    assert len(clean) == NUM_EACH * len(CLEAN)
    wrong = [found.run.kind for found in clean if found.num_early]
    assert len(wrong) <= MAX_FALSE * len(clean), f"seed {SEED}: {wrong}"


def test_a_deep_task_that_goes_well_comes_down_and_stays_there() -> None:
    """It comes down where it has edited and its tests pass; who only reads stays."""
    found = [each for each in _replayed("deep") if each.run.stuck_at is None]
    came_down = [each for each in found if "interactive" in each.labels]
    assert {each.run.kind for each in came_down} >= {"writes", "fixes"}
    assert not [each for each in came_down if each.run.kind == "explores"], f"seed {SEED}"
    assert all(each.labels[0] == "deep" for each in found)


def test_no_run_flaps() -> None:
    for holder in ("fast", "deep"):
        for found in _replayed(holder):  # type: ignore[arg-type]
            assert found.num_moves <= 4, f"seed {SEED}: {found.run.kind} {found.labels}"
