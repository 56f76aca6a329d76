"""Counts what was used on each UTC day, by tenant, key, model, route and served tier.

No export consumes these counters: each day is one hash in Redis, whose fields name what they count.
The script that appends a batch of ledger entries adds their counters, too, so that both have each
task exactly once.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from gateway.store.ledger_entry import DAY_S, SUMMED, LedgerEntry, LedgerLine, sums_of

Dimension = Literal["tenant", "key", "model", "route", "service_tier"]
DIMENSIONS: tuple[Dimension, ...] = ("tenant", "key", "model", "route", "service_tier")
_BEFORE_TIERS = 4  # dimensions of counters that an older release wrote
KINDS = ("tasks", *SUMMED)
_CONVERTED = ("cost_nusd", "energy_uj")  # whole numbers in Redis alone
OTHER = "other"  # in place of all five, once a day has `MAX_FIELDS`
MAX_FIELDS = 200_000  # of a day
NUM_DAYS = 40  # that are kept
TTL_S = NUM_DAYS * DAY_S
_BETWEEN = "\x1f"


class UsageRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Counts what was used on a day; a dimension that was not asked for is missing."""

    day: str | None = None  # YYYY-MM-DD, UTC
    tenant: str | None = None
    key: str | None = None  # its id
    model: str | None = None
    route: str | None = None
    service_tier: str | None = None  # that an upstream says it served; "" where there are none
    tasks: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0  # of the input
    output_tokens: int = 0
    cache_write_tokens: int = 0  # of the input
    reasoning_tokens: int = 0  # of the output
    cost_units: int = 0  # weighted tokens, as the pools charged them
    cost_usd: float = 0.0  # by the prices; models without one count nothing
    energy_joules: float = 0.0  # of engines whose power is known


def usage_key(unix_s: int) -> str:
    """Returns the Redis key of the counters of a UTC day; it shares the ledger's hash slot."""
    return f"lw1:{{ledger}}:usage:{unix_s // DAY_S}"


def counters_of(entries: Iterable[LedgerEntry]) -> dict[str, Counter[str]]:
    """Returns what entries add: a day's key -> field -> amount. A task counts at its first line."""
    places: dict[tuple[str, ...], list[LedgerLine]] = {}
    num_tasks: Counter[tuple[str, ...]] = Counter()
    place: tuple[str, ...]
    for entry in entries:
        own = (usage_key(entry.ended_s), entry.tenant_id, entry.key_id)
        for number, line in enumerate(entry.lines):
            place = (*own, line.model, entry.route, line.service_tier)
            places.setdefault(place, []).append(line)
            num_tasks[place] += number == 0
    days: dict[str, Counter[str]] = {}
    for place, lines in places.items():
        counters, named = days.setdefault(place[0], Counter()), _BETWEEN.join(place[1:])
        counters[f"{named}{_BETWEEN}tasks"] = num_tasks[place]
        for kind, amount in sums_of(lines).items():
            if amount:
                counters[f"{named}{_BETWEEN}{kind}"] = amount
    return days


def rows_of_days(
    days: Mapping[str, Mapping[str, int]],
    by: Iterable[Dimension | Literal["day"]],
    tenant_id: str | None = None,
) -> list[UsageRow]:
    """Sums days' counters by some dimensions, of one tenant or of all; the first day comes first.

    `days`: day -> field -> amount.
    """
    wanted = tuple(dict.fromkeys(by))
    sums: dict[tuple[str, ...], Counter[str]] = {}
    for day, counters in days.items():
        for field, amount in counters.items():
            *names, kind = field.split(_BETWEEN)
            if len(names) == 1:
                names = [OTHER] * len(DIMENSIONS)  # what did not fit
            if len(names) == _BEFORE_TIERS:
                names.append("")
            if kind not in KINDS or len(names) != len(DIMENSIONS):
                continue  # of another release
            known = dict(zip(DIMENSIONS, names, strict=True))
            if tenant_id is None or known["tenant"] == tenant_id:
                place = tuple(day if each == "day" else known[each] for each in wanted)
                sums.setdefault(place, Counter())[kind] += amount
    return [_row(dict(zip(wanted, place, strict=True)), sums[place]) for place in sorted(sums)]


def _row(named: Mapping[str, Any], sums: Counter[str]) -> UsageRow:
    counted: dict[str, Any] = {kind: sums[kind] for kind in KINDS if kind not in _CONVERTED}
    return UsageRow(
        **named,
        **counted,
        cost_usd=sums["cost_nusd"] / 1e9,
        energy_joules=sums["energy_uj"] / 1e6,
    )
