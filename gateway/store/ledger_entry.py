"""Defines the usage ledger's entries: one per settled task, a line per backend and served tier."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from operator import attrgetter

import msgspec

from backends.contract import NO_USAGE, BackendGroup, BackendInfo, Usage
from router.classify.task import Tenant
from router.decide.decision import RankedRoute
from router.money.cost import EVEN, Weights, cost_tokens
from router.money.prices import Bill, Billed

DAY_S = 86_400


class LedgerLine(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Counts a task's usage of one backend, in one tier that it served."""

    backend: str
    group: BackendGroup
    model: str
    input_tokens: int
    cached_tokens: int  # of the input
    output_tokens: int
    reasoning_tokens: int  # of the output
    exact: bool  # false: an upstream was cut before it reported
    cost_units: int  # weighted tokens, as the pools charge them
    bounded: bool = False  # an engine reported more than can be; this is its bound
    cost_nusd: int = 0  # in nano-dollars, by the price of its day; 0 without a price
    energy_uj: int = 0  # in micro-joules; 0 where the engine's power is not known
    cache_write_tokens: int = 0  # of the input
    service_tier: str = ""  # that an upstream says it served; "" where there are none


class LedgerEntry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Holds the usage of a settled task; entries with the same id are the same."""

    task_id: str
    tenant_id: str
    key_id: str
    tier: str
    route: str
    outcome: str
    ended_s: int  # Unix time
    duration_ms: int  # from its arrival
    lines: tuple[LedgerLine, ...]
    version: int = 1


def entry_of(
    task_id: str,
    tenant: Tenant,
    chosen: RankedRoute,
    bill: Bill,
    infos: Mapping[str, BackendInfo],
    weights: Weights,
    *,
    outcome: str,
    ended_s: int,
    duration_us: int,
) -> LedgerEntry:
    """Makes a task's entry; the route's backends that are not in the bill used nothing."""
    if len(bill) != 1 or chosen.backends != (bill[0].backend,):
        bill = _with_idle(bill, chosen.backends)
    lines: list[LedgerLine] = []
    for each in bill:
        name, info = each.backend, infos[each.backend]
        lines.append(line_of(name, info.group, info.model, each.usage, weights, each.nusd))
    return LedgerEntry(
        task_id=task_id,
        tenant_id=tenant.id,
        key_id=tenant.key_id,
        tier=tenant.tier,
        route=chosen.route,
        outcome=outcome,
        ended_s=ended_s,
        duration_ms=duration_us // 1_000,
        lines=tuple(lines),
    )


def _with_idle(bill: Bill, backends: tuple[str, ...]) -> Bill:
    """Adds the backends of a route that used nothing, and sorts a bill as the route names them."""
    worked = {billed.backend for billed in bill}
    idle = [Billed(name, NO_USAGE, None) for name in backends if name not in worked]
    order = {name: place for place, name in enumerate(backends)}
    return tuple(sorted((*idle, *bill), key=lambda each: order.get(each.backend, len(order))))


def line_of(
    backend: str,
    group: BackendGroup,
    model: str,
    usage: Usage,
    weights: Weights,
    nusd: int | None,
) -> LedgerLine:
    """Makes a task's line of a backend and tier, or of a relay; `nusd` is None without a price."""
    return LedgerLine(
        backend=backend,
        group=group,
        model=model,
        input_tokens=usage.num_input_tokens,
        cached_tokens=usage.num_cached_tokens,
        output_tokens=usage.num_output_tokens,
        reasoning_tokens=usage.num_reasoning_tokens,
        exact=usage.exact,
        bounded=usage.bounded,
        cost_units=cost_tokens(usage, weights.get(group, EVEN)),
        cost_nusd=nusd or 0,
        energy_uj=usage.energy_uj,
        cache_write_tokens=usage.num_cache_write_tokens,
        service_tier=usage.service_tier,
    )


SUMMED = (
    *("input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens"),
    *("cost_units", "cost_nusd", "energy_uj", "cache_write_tokens"),
)
_FIGURES: dict[str, Callable[[LedgerLine], int]] = {name: attrgetter(name) for name in SUMMED}
# An export's columns, in order; a task has a row per backend.
COLUMNS: dict[str, type] = {
    **dict.fromkeys(("task_id", "tenant_id", "key_id", "tier", "route", "outcome"), str),
    "ended_at": str,
    "duration_ms": int,
    **dict.fromkeys(("backend", "group", "model"), str),
    **dict.fromkeys(SUMMED[:4], int),
    "exact": bool,
    "cost_units": int,
    "bounded": bool,
    "cost_nusd": int,
    "energy_uj": int,
    "cache_write_tokens": int,
    "service_tier": str,
}


def rows_of(entry: LedgerEntry) -> list[dict[str, str | int | bool]]:
    """Returns an entry as rows of an export."""
    shared = msgspec.structs.asdict(entry)
    shared["ended_at"] = datetime.fromtimestamp(entry.ended_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    whole = (shared | msgspec.structs.asdict(line) for line in entry.lines)
    return [{name: row[name] for name in COLUMNS} for row in whole]


def sums_of(lines: Collection[LedgerLine]) -> dict[str, int]:
    """Returns the sum of every figure over these lines."""
    return {name: sum(map(figure, lines)) for name, figure in _FIGURES.items()}


def spent_of(entries: Collection[LedgerEntry]) -> Counter[str]:
    """Returns what entries add to their tenant's counters of the day."""
    lines = [line for entry in entries for line in entry.lines]
    spent: Counter[str] = Counter({"tasks": len(entries), **sums_of(lines)})
    for group in {line.group for line in lines}:
        sums = sums_of([line for line in lines if line.group == group])
        spent[f"{group}.cost_units"] = sums["cost_units"]
        spent[f"{group}.tokens"] = sums["input_tokens"] + sums["output_tokens"]
    return spent
