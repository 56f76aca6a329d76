"""Sums up results: latencies, refusals, costs; and how sure a difference between two is.

A difference has a 90 % interval: both tables are drawn anew, whole blocks of time with all their
tasks (neighbours in time share their queues), and what a replay of the log itself was off by is
added. Where the interval holds 0, no difference was seen.
"""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

import msgspec
import numpy as np
from numpy.typing import NDArray

from router.comparison.table import Column, ResultTable

NUM_DRAWS = 200
NUM_BLOCKS = 40  # of time; at least `MIN_BLOCK_US` each
MIN_BLOCK_US = 10_000_000
LOW, HIGH = 5.0, 95.0  # percentiles of the interval
QUANTILES = (50, 95, 99)
REFUSALS = ("rate_limited", "shed")
Chosen = NDArray[np.bool_] | NDArray[np.int64]


class Slo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Says what a task must keep to; one that is refused or fails does not."""

    ttft_ms: float | None = 2_000.0
    tpot_ms: float | None = None
    latency_ms: float | None = None

    @property
    def text(self) -> str:
        """Describes it."""
        bounds = {"TTFT": self.ttft_ms, "TPOT": self.tpot_ms, "latency": self.latency_ms}
        given = [f"{name} within {ms:g} ms" for name, ms in bounds.items() if ms is not None]
        return " and ".join(["answered", *given])


class TaskSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Sums up some tasks. Times in milliseconds; None where there is nothing to go by."""

    num_tasks: int
    answered: float  # share
    refused: float  # share, by pools or by capacity
    failed: float  # share
    slo_met: float  # share of those that were not cancelled by their clients
    waited: float  # share, for a pool
    ttft_ms_p50: float | None
    ttft_ms_p95: float | None
    ttft_ms_p99: float | None
    tpot_ms_p50: float | None
    tpot_ms_p95: float | None
    tpot_ms_p99: float | None
    latency_ms_mean: float | None
    latency_ms_p50: float | None
    latency_ms_p95: float | None
    latency_ms_p99: float | None
    weighted_tokens: float
    output_tokens: float
    money_usd: float


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Compares one figure of two policies, with the interval of the change."""

    figure: str
    before: float
    after: float
    low: float  # of after less before
    high: float
    seen: bool  # whether the interval leaves 0 out

    @property
    def change(self) -> float:
        """Returns after less before."""
        return self.after - self.before


# The figures that are compared, in order.
FIGURES: tuple[str, ...] = (
    "ttft_ms_p50",
    "ttft_ms_p95",
    "ttft_ms_p99",
    "tpot_ms_p50",
    "latency_ms_p50",
    "latency_ms_p95",
    "latency_ms_p99",
    "slo_met",
    "refused",
    "waited",
    "weighted_tokens",
    "output_tokens",
    "money_usd",
)


class _Columns:
    """Holds a table's columns, made once for all draws."""

    def __init__(self, table: ResultTable, slo: Slo) -> None:
        self.at_us = table.column("at_us")
        self.is_answered = table.is_answered
        self.is_cancelled = table.having("outcome", "cancelled")
        self.is_refused = table.having("outcome", REFUSALS[0]) | table.having(
            "outcome", REFUSALS[1]
        )
        self.ttft_ms = table.column("ttft_us") / 1e3
        self.tpot_ms = table.column("tpot_us") / 1e3
        self.latency_ms = table.column("duration_us") / 1e3
        self.waited = np.frombuffer(table.waited_for, dtype=np.int32) >= 0
        self.cost = table.column("cost")
        self.output = table.column("output_tokens")
        self.money_usd = table.column("money_nusd") / 1e9
        self.meets = self.is_answered.copy()
        for bound, values in (
            (slo.ttft_ms, self.ttft_ms),
            (slo.tpot_ms, self.tpot_ms),
            (slo.latency_ms, self.latency_ms),
        ):
            if bound is not None:
                with np.errstate(invalid="ignore"):
                    self.meets &= np.isnan(values) | (values <= bound)


def summarise(table: ResultTable, slo: Slo, chosen: Chosen | None = None) -> TaskSummary:
    """Sums up a table, or the tasks of it that are chosen."""
    columns = _Columns(table, slo)
    return _summary(columns, np.ones(len(table), dtype=bool) if chosen is None else chosen)


def _summary(columns: _Columns, chosen: Chosen) -> TaskSummary:
    answered = columns.is_answered[chosen]
    num_tasks = len(answered)
    counted = ~columns.is_cancelled[chosen]
    refused = columns.is_refused[chosen]
    ttft = columns.ttft_ms[chosen][answered]
    tpot = columns.tpot_ms[chosen][answered]
    latency = columns.latency_ms[chosen][answered]
    times: dict[str, float | None] = {}
    for name, values in (("ttft", ttft), ("tpot", tpot), ("latency", latency)):
        known = values[~np.isnan(values)]
        found = np.percentile(known, QUANTILES) if len(known) else (None,) * len(QUANTILES)
        for quantile, value in zip(QUANTILES, found, strict=True):
            times[f"{name}_ms_p{quantile}"] = None if value is None else float(value)
    return TaskSummary(
        num_tasks=num_tasks,
        answered=_share(answered),
        refused=_share(refused),
        failed=_share(~answered & ~refused & counted),
        slo_met=_share(columns.meets[chosen][counted]),
        waited=_share(columns.waited[chosen]),
        latency_ms_mean=float(latency.mean()) if len(latency) else None,
        weighted_tokens=float(columns.cost[chosen].sum()),
        output_tokens=float(columns.output[chosen].sum()),
        money_usd=float(columns.money_usd[chosen].sum()),
        **times,
    )


def _share(found: NDArray[np.bool_]) -> float:
    return float(found.mean()) if len(found) else 0.0


def differences(
    before: ResultTable,
    after: ResultTable,
    slo: Slo,
    off_by: Mapping[str, float],
    seed: int = 0,
    on_draw: Callable[[], None] | None = None,
) -> list[Difference]:
    """Compares the figures of two policies over the same tasks.

    `off_by` says by how much a replay of the log missed each figure, as a share of it; that is
    added to the interval in quadrature. `on_draw` may let others run.
    """
    columns = _Columns(before, slo), _Columns(after, slo)
    blocks = _blocks(columns[0].at_us)
    chance = np.random.default_rng(seed)
    draws: dict[str, list[float]] = {name: [] for name in FIGURES}
    for _ in range(NUM_DRAWS):
        picked = chance.integers(0, len(blocks), len(blocks))
        rows = np.concatenate([blocks[number] for number in picked])
        summaries = [_summary(each, rows) for each in columns]
        for name, values in draws.items():
            old, new = (getattr(each, name) for each in summaries)
            if old is not None and new is not None:
                values.append(new - old)
        if on_draw is not None:
            on_draw()
    everything = np.arange(len(before))
    old, new = (_summary(each, everything) for each in columns)
    found = []
    for name, values in draws.items():
        was, now = getattr(old, name), getattr(new, name)
        if was is None or now is None or not values:
            continue
        low, high = np.percentile(values, (LOW, HIGH))
        more = abs(off_by.get(name, 0.0) * (now - was))
        change = now - was
        low = change - math.hypot(change - low, more)
        high = change + math.hypot(high - change, more)
        found.append(
            Difference(
                figure=name,
                before=was,
                after=now,
                low=float(low),
                high=float(high),
                seen=bool(low > 0 or high < 0),
            )
        )
    return found


def intervals(
    table: ResultTable,
    slo: Slo,
    seed: int = 0,
    off_by: Mapping[str, float] = MappingProxyType({}),
    own_ms: float = 0.0,
) -> dict[str, tuple[float, float]]:
    """Returns the 90 % interval of each figure, and of the tokens of a task.

    What a replay of the log missed a figure by, as a share of it, is added in quadrature; and to
    times to the first or last token how far the gateway's own time is from its median, since a
    simulation gives every task the median.
    """
    columns = _Columns(table, slo)
    blocks = _blocks(columns.at_us)
    chance = np.random.default_rng(seed)
    draws: dict[str, list[float]] = {}
    for _ in range(NUM_DRAWS):
        rows = np.concatenate([blocks[n] for n in chance.integers(0, len(blocks), len(blocks))])
        summary = _summary(columns, rows)
        for name in FIGURES:
            value = getattr(summary, name)
            if value is not None:
                draws.setdefault(name, []).append(value)
        per_task = summary.weighted_tokens / max(1, summary.num_tasks)
        draws.setdefault("tokens_per_task", []).append(per_task)
    whole = _summary(columns, np.arange(len(table)))
    found: dict[str, tuple[float, float]] = {}
    for name, values in draws.items():
        low, high = (float(value) for value in np.percentile(values, (LOW, HIGH)))
        middle = getattr(whole, name, None)
        if middle is not None:
            off = abs(off_by.get(name, 0.0) * middle)
            own = own_ms if name.startswith(("ttft", "latency")) else 0.0
            low = middle - math.hypot(max(0.0, middle - low), off, own)
            high = middle + math.hypot(max(0.0, high - middle), off, own)
        found[name] = low, high
    return found


def _blocks(at_us: Column) -> list[NDArray[np.int64]]:
    """Cuts tasks into blocks of time, without empty ones."""
    first, last = float(at_us.min()), float(at_us.max())
    length_us = max(MIN_BLOCK_US, (last - first) / NUM_BLOCKS + 1)
    numbers = ((at_us - first) // length_us).astype(np.int64)
    order = np.argsort(numbers, kind="stable")
    cuts = np.flatnonzero(np.diff(numbers[order])) + 1
    return list(np.split(order, cuts))
