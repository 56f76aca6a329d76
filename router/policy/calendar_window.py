"""Defines a policy's time windows: days and hours in a zone, and a first and last instant."""

import datetime
import functools
import zoneinfo
from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta

Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
DAYS: tuple[Day, ...] = get_args(Day)  # in `datetime`'s order
DAY_MIN = 24 * 60

Clock = Annotated[
    str, Meta(pattern=r"^([01]\d|2[0-3]):[0-5]\d$", description='a time of day like "09:00"')
]
Instant = Annotated[
    datetime.datetime,
    Meta(tz=True, description="an instant with its zone, like 2026-01-15T09:00:00Z"),
]


class Window(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"from_": "from"}):
    """Limits a rule to times for which all given conditions hold.

    Hours may cross midnight and then belong to the day on which they began: with `days = ["fri"]`,
    `from = "22:00"` and `until = "06:00"`, Saturday at 5 is inside.
    """

    zone: str = "UTC"  # a name of the IANA time zone database
    days: tuple[Day, ...] | None = None
    from_: Clock = "00:00"
    until: Clock = "00:00"  # the same as `from`: all day
    since: Instant | None = None  # from this instant on
    before: Instant | None = None  # up to, but not including, this instant

    def holds(self, unix_s: float) -> bool:
        """Returns whether an instant is inside."""
        now = datetime.datetime.fromtimestamp(unix_s, zone_of(self.zone))
        is_early = self.since is not None and now < self.since
        if is_early or (self.before is not None and now >= self.before):
            return False
        start_min, end_min = _minutes(self.from_), _minutes(self.until)
        now_min = now.hour * 60 + now.minute
        if end_min <= start_min:
            end_min += DAY_MIN
        day = now.weekday()
        if not start_min <= now_min < end_min:
            if now_min + DAY_MIN >= end_min:
                return False
            day -= 1  # of the night that began yesterday
        return self.days is None or DAYS[day] in self.days  # -1 is a Sunday


@functools.lru_cache(maxsize=64)
def zone_of(name: str) -> zoneinfo.ZoneInfo:
    """Returns a time zone by its IANA name; `ValueError` if this machine has none of that name."""
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"no time zone {name!r}") from error


def _minutes(clock: str) -> int:
    hours, _, minutes = clock.partition(":")
    return int(hours) * 60 + int(minutes)
