"""Samples the pools of a simulation, minute by minute."""

from collections.abc import Mapping

from backends.contract import BackendGroup
from router.backtest.results import PoolSample

_MINUTE_US = 60_000_000
MAX_MINUTES = 20_160  # two weeks; what comes later is not sampled


class PoolSamples:
    """Keeps, for each minute and group, the least that was left and the most that waited."""

    def __init__(self) -> None:
        self._rows: dict[tuple[int, BackendGroup], list[float]] = {}  # left, waiting, refused

    def note_shares(self, shares_left: Mapping[BackendGroup, float], now_us: int) -> None:
        """Notes the share left in each group's tightest pool, as one decision left it."""
        minute = now_us // _MINUTE_US
        for group, share in shares_left.items():
            row = self._rows.get((minute, group)) or self._row(group, now_us)
            if row is not None and share < row[0]:
                row[0] = share

    def note_waiting(self, group: BackendGroup, num_waiting: int, now_us: int) -> None:
        """Notes the length of a group's queue."""
        row = self._row(group, now_us)
        if row is not None and num_waiting > row[1]:
            row[1] = num_waiting

    def note_refusal(self, group: BackendGroup, now_us: int) -> None:
        """Counts a refusal by a group's pools."""
        row = self._row(group, now_us)
        if row is not None:
            row[2] += 1

    def rows(self) -> tuple[PoolSample, ...]:
        """Returns the samples in order of time."""
        return tuple(
            PoolSample(minute, group, left, int(waiting), int(refused))
            for (minute, group), (left, waiting, refused) in sorted(self._rows.items())
        )

    def _row(self, group: BackendGroup, now_us: int) -> list[float] | None:
        key = now_us // _MINUTE_US, group
        row = self._rows.get(key)
        if row is None and len(self._rows) < 2 * MAX_MINUTES:
            row = self._rows[key] = [1.0, 0, 0]
        return row
