"""Keeps the last quarter of an hour of the charts, so that they never begin empty."""

from collections import Counter, deque
from collections.abc import Iterable, Iterator

from gateway.live.sample import Point
from router.record.recording import DecisionRecord

KEPT_S = 900.0
POINT_S = 1.0  # between two points while somebody watches
RECORDED_S = 5.0  # of those made from the decision log, of which each task is one instant


class History:
    """Points in order of time, none older than `KEPT_S` before the newest."""

    def __init__(self) -> None:
        self._points: deque[Point] = deque(maxlen=int(KEPT_S / POINT_S))

    def __iter__(self) -> Iterator[Point]:
        return iter(self._points)

    def begin(self, records: Iterable[DecisionRecord], now_s: float) -> None:
        """Fills the time in which nobody watched from what was recorded of tasks."""
        since_s = max(now_s - KEPT_S, self._points[-1].at if self._points else 0.0)
        for point in recorded_points(records, since_s, now_s):
            self.add(point)

    def add(self, point: Point) -> None:
        """Adds a point, later than all others."""
        while self._points and self._points[0].at < point.at - KEPT_S:
            self._points.popleft()
        self._points.append(point)


def recorded_points(
    records: Iterable[DecisionRecord], since_s: float, until_s: float
) -> Iterator[Point]:
    """Makes points of the tasks that ended in a time, each counted whole where it ended."""
    tasks: dict[int, Counter[str]] = {}
    tokens: dict[int, Counter[str]] = {}
    for record in records:
        ended_s = record.at + record.duration_ms / 1e3
        if not since_s < ended_s <= until_s:
            continue
        slot = int((ended_s - since_s) / RECORDED_S)
        tasks.setdefault(slot, Counter())[record.route or "none"] += 1
        for usage in record.usage:
            tokens.setdefault(slot, Counter())[usage.backend] += usage.output_tokens
    for slot in range(int((until_s - since_s) / RECORDED_S)):
        ended, generated = tasks.get(slot, Counter()), tokens.get(slot, Counter())
        yield Point(
            at=since_s + (slot + 1) * RECORDED_S,
            tokens_per_s={name: round(each / RECORDED_S) for name, each in generated.items()},
            tasks_per_s={route: round(each / RECORDED_S, 2) for route, each in ended.items()},
            running=0,
        )
