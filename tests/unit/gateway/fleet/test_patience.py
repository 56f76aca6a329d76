"""Tests when a process that does not answer is given up: a busy machine alone is no reason."""

import pytest

from gateway.fleet.patience import HUNG_CPU_S, MISSED_BEATS, SILENT_S, Patience


@pytest.mark.parametrize(
    ("beats", "is_given_up"),
    [
        ([(4, 4), (8, 8), (12, 12)], True),  # its loop is held
        ([(100, 100)], False),  # one answer is missing, however late: we may have been late
        ([(4, 11), (5, 12)], False),
        ([(4, 0.1), (8, 0.2), (12, 0.3), (29, 1)], False),  # starved by other processes
        ([(10, 0), (20, 0), (30, 0)], True),  # stopped, or blocked
    ],
)
def test_a_process_is_given_up_for_its_own_fault(
    beats: list[tuple[float, float]], is_given_up: bool
) -> None:
    patience = Patience(0.0, 0.0)
    said = [patience.missed(now_s, cpu_s) for now_s, cpu_s in beats]
    assert said[:-1] == [None] * (len(beats) - 1)
    assert (said[-1] is not None) is is_given_up


def test_an_answer_begins_anew() -> None:
    patience = Patience(0.0, 100.0)
    for turn in range(1, 10):
        for _ in range(MISSED_BEATS - 1):
            assert patience.missed(turn * SILENT_S, 100.0 + turn * HUNG_CPU_S) is None
        patience.answered(turn * SILENT_S, 100.0 + turn * HUNG_CPU_S)
