"""Sums up results: latencies, refusals, costs; and how sure a difference between two is.

A difference has a 90 % interval: both tables are drawn anew, whole blocks of time with all their
tasks (neighbours in time share their queues), and what a replay of the log itself was off by is
added. Where the interval holds 0, no difference was seen.
"""

import math
from collections.abc import Iterator, Mapping
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
SHARES = ("slo_met", "refused", "waited")  # of the figures; none is above 1, and none below 0
Numbers = NDArray[np.int16]  # of blocks, by task
Chosen = NDArray[np.bool_] | NDArray[np.int64]


class Slo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Says what a task must keep to; one that is refused or fails does not."""

    ttft_ms: float | None = 2_000.0
    tpot_ms: float | None = None
    latency_ms: float | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            bound = getattr(self, name)
            if bound is not None and not 0 <= bound < math.inf:
                raise ValueError(f"{name} {bound:g}: expected a number from 0")

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
    slo_met: float | None  # share of those that were not cancelled by their clients
    waited: float | None  # share, for a pool
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
    money_usd: float | None


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
        slo_met=_share(columns.meets[chosen][counted]) if counted.any() else None,
        waited=_share(columns.waited[chosen]),
        latency_ms_mean=float(latency.mean()) if len(latency) else None,
        weighted_tokens=float(columns.cost[chosen].sum()),
        output_tokens=float(columns.output[chosen].sum()),
        money_usd=float(columns.money_usd[chosen].sum()),
        **times,
    )


def _share(found: NDArray[np.bool_]) -> float:
    return float(found.mean()) if len(found) else 0.0


class _Redrawn:
    """Draws a table anew, in whole blocks of time: a draw only says how often each block comes."""

    def __init__(self, table: ResultTable, slo: Slo, block_of: Numbers) -> None:
        columns = _Columns(table, slo)
        self.whole = _summary(columns, np.ones(len(table), dtype=bool))
        num_blocks = int(block_of.max()) + 1
        counted = ~columns.is_cancelled
        added = {
            "tasks": np.ones(len(table), dtype=bool),
            "counted": counted,
            "met": columns.meets & counted,
            "refused": columns.is_refused,
            "waited": columns.waited,
            "weighted_tokens": columns.cost,
            "output_tokens": columns.output,
            "money_usd": columns.money_usd,
        }
        self._sums = {
            name: np.bincount(block_of, values, num_blocks) for name, values in added.items()
        }
        self._sorted: dict[str, tuple[Column, Numbers]] = {}
        times = {"ttft": columns.ttft_ms, "tpot": columns.tpot_ms, "latency": columns.latency_ms}
        for name, values in times.items():
            known = np.flatnonzero(columns.is_answered & ~np.isnan(values))
            known = known[np.argsort(values[known], kind="stable")]
            self._sorted[name] = values[known], block_of[known]

    def figures(self, counts: NDArray[np.int64]) -> dict[str, float | None]:
        """Returns the `FIGURES`, and the tokens of a task, of a draw with so many of each block."""
        sums = {name: float(counts @ values) for name, values in self._sums.items()}
        num_tasks, num_counted = sums["tasks"], sums["counted"]
        found: dict[str, float | None] = {
            "slo_met": sums["met"] / num_counted if num_counted else None,
            "refused": sums["refused"] / num_tasks,
            "waited": sums["waited"] / num_tasks,
            "tokens_per_task": sums["weighted_tokens"] / num_tasks,
        }
        for name in ("weighted_tokens", "output_tokens", "money_usd"):
            found[name] = sums[name]
        for name, (values, block_of) in self._sorted.items():
            up_to = np.cumsum(counts[block_of])
            for quantile in QUANTILES:
                found[f"{name}_ms_p{quantile}"] = _percentile(values, up_to, quantile)
        return found


def _percentile(values: Column, up_to: NDArray[np.int64], quantile: float) -> float | None:
    """Returns a percentile of sorted values that come several times, as `np.percentile` would.

    `up_to` counts each value with all those before it.
    """
    if not len(up_to) or not up_to[-1]:
        return None
    place = (int(up_to[-1]) - 1) * (quantile / 100)
    first = math.floor(place)
    low, high = (
        float(values[np.searchsorted(up_to, at, side="right")])
        for at in (first, min(first + 1, int(up_to[-1]) - 1))
    )
    share = place - first
    return low + (high - low) * share if share < 0.5 else high - (high - low) * (1 - share)


def _draws(num_blocks: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Yields how often each block comes in each draw."""
    chance = np.random.default_rng(seed)
    for _ in range(NUM_DRAWS):
        yield np.bincount(chance.integers(0, num_blocks, num_blocks), minlength=num_blocks)


def differences(
    before: ResultTable, after: ResultTable, slo: Slo, off_by: Mapping[str, float], seed: int = 0
) -> list[Difference]:
    """Compares the figures of two policies over the same tasks.

    `off_by` says by how much a replay of the log missed each figure, as a share of it; that is
    added to the interval in quadrature.
    """
    block_of = _blocks(before)
    redrawn = [_Redrawn(each, slo, block_of) for each in (before, after)]
    changes: dict[str, list[float]] = {name: [] for name in FIGURES}
    for counts in _draws(int(block_of.max()) + 1, seed):
        old, new = (each.figures(counts) for each in redrawn)
        for name, values in changes.items():
            was, now = old[name], new[name]
            if was is not None and now is not None:
                values.append(now - was)
    found = []
    for name, values in changes.items():
        was, now = (getattr(each.whole, name) for each in redrawn)
        if was is None or now is None or not values:
            continue
        low, high = np.percentile(values, (LOW, HIGH))
        more = abs(off_by.get(name, 0.0) * (now - was))
        change = now - was
        low = change - math.hypot(change - low, more)
        high = change + math.hypot(high - change, more)
        low = max(float(low), -was)  # what is left is not below 0
        high = min(float(high), 1.0 - was) if name in SHARES else float(high)
        found.append(
            Difference(
                figure=name,
                before=was,
                after=now,
                low=low,
                high=high,
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
    block_of = _blocks(table)
    redrawn = _Redrawn(table, slo, block_of)
    drawn: dict[str, list[float]] = {}
    for counts in _draws(int(block_of.max()) + 1, seed):
        figures = redrawn.figures(counts)
        for name in (*FIGURES, "tokens_per_task"):
            value = figures[name]
            if value is not None:
                drawn.setdefault(name, []).append(value)
    found: dict[str, tuple[float, float]] = {}
    for name, values in drawn.items():
        low, high = (float(value) for value in np.percentile(values, (LOW, HIGH)))
        middle = getattr(redrawn.whole, name, None)
        if middle is not None:
            off = abs(off_by.get(name, 0.0) * middle)
            own = own_ms if name.startswith(("ttft", "latency")) else 0.0
            low = middle - math.hypot(max(0.0, middle - low), off, own)
            high = middle + math.hypot(max(0.0, high - middle), off, own)
        found[name] = max(0.0, low), min(1.0, high) if name in SHARES else high
    return found


def _blocks(table: ResultTable) -> Numbers:
    """Cuts tasks into blocks of time, without empty ones; returns each task's."""
    at_us = table.column("at_us")
    first, last = float(at_us.min()), float(at_us.max())
    length_us = max(MIN_BLOCK_US, (last - first) / NUM_BLOCKS + 1)
    numbers = ((at_us - first) // length_us).astype(np.int16)
    return np.unique(numbers, return_inverse=True)[1].astype(np.int16)
