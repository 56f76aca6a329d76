"""Tests what `counts.py` makes of its counts: medians, slopes, what has risen, the table."""

import pytest

from tests.bench import counts
from tests.bench.counts_peer import Series


def a_table(calls: float, turns: float = 50) -> counts.Table:
    each = {"tasks": 2.0, "Python calls": calls, "loop turns": turns}
    return {"by socket": {"task": each, "token": {name: n / 100 for name, n in each.items()}}}


def test_a_task_is_the_median_and_a_token_the_slope_between_short_and_long_tasks() -> None:
    found = [
        (Series("mode", path.model, tokens, 0, [], 1, path.together), kind, made)
        for path in counts.PATHS
        for tokens in (counts.FEW_TOKENS, counts.MANY_TOKENS)
        for kind, made in (
            ("plain", {"tasks": 3}),
            ("calls", {"Python calls": 10 * tokens}),
            ("calls", {"Python calls": 10 * tokens + 2}),
            ("calls", {"Python calls": 90_000}),
        )
    ]
    table = counts.table_of(counts.PATHS, found)
    assert list(table) == [path.name for path in counts.PATHS]
    for both in table.values():
        assert both["task"] == {"tasks": 3, "Python calls": 202}
        assert both["token"] == {"tasks": 0, "Python calls": 10}


@pytest.mark.parametrize(
    ("calls", "turns", "num_risen"),
    [(1000, 50, 0), (1030, 50, 0), (900, 500, 0), (1031, 50, 2), (1100, 500, 2)],
)
def test_only_a_guarded_count_that_is_well_above_its_base_has_risen(
    calls: float, turns: float, num_risen: int
) -> None:
    rises = counts.risen(a_table(calls, turns), a_table(1000))
    assert len(rises) == num_risen
    assert all("Python calls" in rise for rise in rises)


def test_what_was_nought_may_not_become_one() -> None:
    base = a_table(0)
    assert counts.risen(base, base) == []
    assert len(counts.risen(a_table(1), base)) == 2


def test_the_table_has_what_is_not_guarded_at_its_end_and_says_so() -> None:
    lines = counts.text_of(a_table(1030), a_table(1000)).splitlines()
    assert lines[0].split() == ["by", "socket", "a", "task", "a", "token"]
    assert lines[2].split() == ["Python", "calls", "1,030", "+3.0%", "10.30", "+3.0%"]
    assert lines[-1].split() == ["loop", "turns", "(beside)", "50", "+0.0%", "0.50", "+0.0%"]


def test_a_base_of_other_versions_is_named() -> None:
    ours = {"machine": {"python": "3.11.7"}, "packages": {"msgspec": "0.22", "redis": "8.1"}}
    base = {"machine": {"python": "3.12.1"}, "packages": {"msgspec": "0.22", "redis": "8.0"}}
    assert counts.differing(ours, ours) == []
    assert counts.differing(ours, base) == [
        "Python 3.11.7, but the base's is 3.12.1",
        "redis 8.1, but the base's is 8.0",
    ]


def test_the_gateway_counted_has_a_backend_for_every_path() -> None:
    text = counts.config_of("http://127.0.0.1:1/v1")
    assert text.count("[[backends]]") == len({path.model for path in counts.PATHS})
    assert {path.model for path in counts.PATHS} == {
        s.model for s in counts.orders_of(counts.PATHS, 3).series
    }
