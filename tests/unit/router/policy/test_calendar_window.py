"""Tests windows of time: hours, nights, days, zones with summer time, first and last instants."""

import datetime
from typing import Any

import pytest

from router.policy.calendar_window import Window, zone_of


def unix(text: str, zone: str = "UTC") -> float:
    return datetime.datetime.fromisoformat(text).replace(tzinfo=zone_of(zone)).timestamp()


OFFICE = {"zone": "Europe/Berlin", "days": ("mon", "fri"), "from_": "09:00", "until": "17:00"}
NIGHT = {"days": ("fri",), "from_": "22:00", "until": "06:00"}
SINCE = datetime.datetime(2026, 1, 16, tzinfo=datetime.UTC)

# window, local time (2026-01-16 is a Friday), zone, inside
CASES: list[tuple[dict[str, Any], str, str, bool]] = [
    ({}, "2026-01-16T00:00", "UTC", True),
    (OFFICE, "2026-01-16T09:00", "Europe/Berlin", True),
    (OFFICE, "2026-01-16T08:59:59", "Europe/Berlin", False),
    (OFFICE, "2026-01-16T16:59", "Europe/Berlin", True),
    (OFFICE, "2026-01-16T17:00", "Europe/Berlin", False),
    (OFFICE, "2026-01-15T12:00", "Europe/Berlin", False),
    (OFFICE, "2026-01-16T08:30", "UTC", True),
    (OFFICE, "2026-07-17T07:30", "UTC", True),  # summer: 09:30 in Berlin
    (OFFICE, "2026-07-17T15:30", "UTC", False),
    (NIGHT, "2026-01-16T21:59", "UTC", False),
    (NIGHT, "2026-01-16T22:00", "UTC", True),
    (NIGHT, "2026-01-17T05:59", "UTC", True),  # Friday's night
    (NIGHT, "2026-01-17T06:00", "UTC", False),
    (NIGHT, "2026-01-16T05:00", "UTC", False),  # Thursday's
    (NIGHT, "2026-01-17T22:30", "UTC", False),
    ({"from_": "08:00", "until": "08:00"}, "2026-01-16T03:00", "UTC", True),
    ({"from_": "08:00", "days": ("fri",)}, "2026-01-16T23:59", "UTC", True),
    ({"from_": "08:00", "days": ("fri",)}, "2026-01-17T00:00", "UTC", False),
    ({"from_": "08:00", "days": ("fri",)}, "2026-01-16T07:59", "UTC", False),
    ({"since": SINCE}, "2026-01-16T00:00", "UTC", True),
    ({"since": SINCE}, "2026-01-15T23:59:59", "UTC", False),
    ({"before": SINCE}, "2026-01-15T23:59:59", "UTC", True),
    ({"before": SINCE}, "2026-01-16T00:00", "UTC", False),
]


@pytest.mark.parametrize(("fields", "local", "zone", "inside"), CASES)
def test_windows(fields: dict[str, Any], local: str, zone: str, inside: bool) -> None:
    assert Window(**fields).holds(unix(local, zone)) is inside


@pytest.mark.parametrize("name", ["Europe/Berln", "../../etc/passwd", "", "/etc/localtime"])
def test_there_is_no_such_zone(name: str) -> None:
    with pytest.raises(ValueError, match="no time zone"):
        zone_of(name)
