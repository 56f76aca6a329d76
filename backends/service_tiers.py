"""Decides which service tier is asked of an upstream, and which one an answer is billed as.

The two may differ without an error: OpenAI serves "priority" as "default" while traffic ramps.
"""

from typing import Any

import msgspec

# Each name of a tier leads to the name that responses have for it (OpenAI, 2026-11).
_SERVED = {
    "default": "default",
    "flex": "flex",
    "scale": "scale",
    "priority": "priority",
    "fast": "priority",  # the same one, by its newer name
    "ultrafast": "ultrafast",
    "batch": "batch",
}


def as_served(name: Any) -> str:
    """Returns how responses name a tier; "" if it is none that is known, or only "auto"."""
    return _SERVED.get(name, "") if isinstance(name, str) else ""


def passed_on(asked: str | None, sold: tuple[str, ...]) -> str | None:
    """Returns what an upstream that sells these tiers is asked for, as it names that."""
    if asked is None or not sold:  # as nearly always
        return None
    return next((name for name in sold if as_served(name) == as_served(asked)), None)


class TierRead(msgspec.Struct):
    """Holds the tier of one answer, as far as its upstream has said."""

    asked: str = ""  # billed where the upstream says nothing, or a name that is not known
    billed: str = ""
    unknown: str | None = None  # the latest such name

    def take(self, said: Any) -> None:
        """Takes what an event says; "auto" is said before the tier is decided."""
        if isinstance(said, str) and said != "auto":
            served = as_served(said)
            self.billed = served or self.asked
            self.unknown = None if served else said[:64]


def asked_tier(name: Any) -> TierRead:
    """Returns the tier of an answer before its upstream has said anything."""
    served = as_served(name)
    return TierRead(served, served)
