"""Tests when what is done from time to time comes together."""

import pytest

from backends.drive.beats import EARLY_S, until_beat_s


@pytest.mark.parametrize(
    ("period_s", "now_s", "left_s"),
    [
        (1.0, 100.0, 0.3),  # the phase is 0.3
        (1.0, 100.2, 0.1),
        (1.0, 100.3, 1.0),
        (1.0, 100.299, 1.001),  # the loop woke a moment early: this beat has been
        (0.25, 100.3, 0.25),
        (0.5, 100.4, 0.4),
        (0.001, 100.3, 0.001),
    ],
)
def test_the_next_multiple_is_waited_for(period_s: float, now_s: float, left_s: float) -> None:
    assert until_beat_s(period_s, now_s, 0.3) == pytest.approx(left_s, abs=1e-9)


def test_every_beat_comes_once() -> None:
    now_s, period_s = 50.0, 0.25
    came = []
    for late_s in (0.0, 0.1, -0.001, 0.0, 0.2, -0.0015, 0.003):
        now_s += until_beat_s(period_s, now_s, 0.07) + late_s
        came.append(int((now_s - 0.07 + EARLY_S) / period_s))
    assert came == sorted(set(came)), "none comes twice"
    assert came[-1] - came[0] == len(came) - 1, "and none is left out, though some were late"
