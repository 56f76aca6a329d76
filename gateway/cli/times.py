"""Reads and writes times as a person does: `15m`, `2026-11-23T08:00`, UTC."""

import argparse
import re
from datetime import UTC, datetime

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def duration_s(text: str) -> int:
    """Parses `90s`, `15m`, `12h` or `30d`, into seconds."""
    found = re.fullmatch(r"(\d{1,9})([smhd])", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a time such as 90s, 15m, 12h or 30d")
    return int(found[1]) * _UNITS_S[found[2]]


def instant(text: str) -> datetime | int:
    """Parses an instant; a duration means so long ago, and stays a number of seconds."""
    if re.fullmatch(r"\d+[smhd]", text):
        return duration_s(text)
    try:
        given = datetime.fromisoformat(text)
    except ValueError:
        expected = "how long ago, such as 2h, or an instant like 2026-11-23T08:00"
        raise argparse.ArgumentTypeError(f"{text!r}: expected {expected}") from None
    return given if given.tzinfo is not None else given.replace(tzinfo=UTC)


def unix_s(when: datetime | int, now_s: float) -> float:
    """Returns the Unix time of what `instant` parsed."""
    return now_s - when if isinstance(when, int) else when.timestamp()


def time_text(unix_s: float | None) -> str:
    """Writes a Unix time as text; a dash for none."""
    if unix_s is None:
        return "-"
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
