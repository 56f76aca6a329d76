"""Keeps what the events of `/admin/events` tell: a snapshot, then what changes."""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

MAX_POINTS = 900  # a quarter of an hour, as the gateway keeps
MAX_DECISIONS = 100

Sections = dict[str, Any]


class Picture:
    """Holds the gateway as it was last told."""

    def __init__(self) -> None:
        self.gateway: Sections = {}
        self.backends: list[Sections] = []
        self.pools: list[Sections] = []
        self.problems: list[Sections] = []
        self.decisions: list[Sections] = []  # the latest first
        self.points: deque[Sections] = deque(maxlen=MAX_POINTS)
        self.at = 0.0  # Unix time of what was told last; 0: nothing yet

    def take(self, name: str, sections: Sections) -> None:
        """Takes an event."""
        if name == "snapshot":
            self.__init__()  # type: ignore[misc]  # all begins anew
            self.points.extend(sections.get("history", ()))
        self.at = sections.get("at", self.at)
        for section in ("gateway", "backends", "pools", "problems"):
            if section in sections:
                setattr(self, section, sections[section])
        if fresh := sections.get("decisions"):
            known = {record["id"] for record in self.decisions}
            new = [record for record in fresh if record["id"] not in known]
            latest = sorted([*new, *self.decisions], key=lambda record: -record["at"])
            self.decisions = latest[:MAX_DECISIONS]
        if point := sections.get("point"):
            self.points.append(point)

    def tokens_per_s(self, backend: str | None = None) -> list[float]:
        """Returns the rates at which a backend, or all together, generated, the latest last."""
        rates = (point["tokens_per_s"] for point in self.points)
        if backend is None:
            return [sum(each.values()) for each in rates]
        return [each.get(backend, 0) for each in rates]

    def tasks_per_s(self) -> list[float]:
        """Returns the rates at which tasks ended, the latest last."""
        return [sum(point["tasks_per_s"].values()) for point in self.points]


def events(lines: Iterable[bytes]) -> Iterator[tuple[str, Sections]]:
    """Parses server-sent events as the gateway writes them: a name, and one line of JSON."""
    name = ""
    for line in lines:
        field, _, value = line.rstrip(b"\r\n").partition(b": ")
        if field == b"event":
            name = value.decode()
        elif field == b"data":
            yield name, msgspec.json.decode(value)
