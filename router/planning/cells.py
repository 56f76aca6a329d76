"""Simulates one fleet under one policy and traffic, and judges it by the objectives."""

from collections.abc import Sequence
from itertools import repeat

import msgspec
import numpy as np

from router.backtest.arrivals import Arrival
from router.backtest.fleet import EngineFleet
from router.backtest.lengths import learn_lengths
from router.backtest.results import TaskResult, Totals
from router.backtest.simulation import Scenario, simulate
from router.planning.terms import Cell, Counts, Material, Objective, ServerKind

PERCENTILES = (50, 95, 99)
ANSWERED = ("ok", "cancelled")
_DIGITS = 6  # of a figure: the same bytes on every machine that computes the same


class CellResult(msgspec.Struct, frozen=True, kw_only=True):
    """Says what a fleet came to. Times are in milliseconds."""

    cell: Cell
    meets: bool
    broken: dict[str, float] = {}  # bound -> times over it; refusals by their share over it
    figures: dict[str, float] = {}  # ttft_p95_ms, deep.ttft_p95_ms...
    refused: float = 0.0  # share of tasks
    num_tasks: int = 0
    output_tokens: int = 0
    hours: float = 0.0  # that were simulated
    busy: dict[str, float] = {}  # kind of server -> mean share of the time that it computed
    energy_kwh: float = 0.0  # per hour, idle and busy
    money: float = 0.0  # per hour, energy included


def run_cell(material: Material, cell: Cell) -> CellResult:
    """Simulates a cell. The same cell gives the same result, in any process."""
    names, fleet = _fleet(material.kinds, cell.counts)
    arrivals = scaled(material.arrivals, cell.scale)
    scenario = Scenario(
        policy=material.policies[cell.policy],
        fleet=fleet,
        tenants=material.tenants(),
        lengths=learn_lengths(material.arrivals),
        seed=cell.seed,
    )
    results: list[TaskResult] = []
    totals = simulate(arrivals, scenario, results.append)
    return _judged(material, cell, names, results, totals)


def scaled(arrivals: Sequence[Arrival], scale: float) -> Sequence[Arrival]:
    """Returns the same tasks so many times as fast; users think as much faster between turns."""
    if scale == 1.0 or not arrivals:
        return arrivals
    first_us = arrivals[0].at_us
    return [
        msgspec.structs.replace(
            one,
            at_us=first_us + round((one.at_us - first_us) / scale),
            think_us=round(one.think_us / scale) if one.think_us > 0 else one.think_us,
        )
        for one in arrivals
    ]


def _fleet(kinds: Sequence[ServerKind], counts: Counts) -> tuple[dict[str, str], EngineFleet]:
    """Makes the engines, and says of which kind each is."""
    names: dict[str, str] = {}
    machines = []
    for kind, count in zip(kinds, counts, strict=True):
        for number, machine in enumerate(repeat(kind.machine, count), start=1):
            name = f"{kind.name}-{number}"
            names[name] = kind.name
            info = msgspec.structs.replace(machine.info, name=name)
            machines.append(msgspec.structs.replace(machine, info=info))
    return names, EngineFleet(tuple(machines))


def _judged(
    material: Material,
    cell: Cell,
    names: dict[str, str],
    results: Sequence[TaskResult],
    totals: Totals,
) -> CellResult:
    seconds = max(1e-6, (totals.last_us - totals.first_us) / 1e6)
    figures, refused = _figures(results)
    broken = _broken(material, figures, refused, results)
    busy_s: dict[str, float] = {}
    for engine in totals.engines:
        name = names[engine.name]
        busy_s[name] = busy_s.get(name, 0.0) + engine.busy_us / 1e6
    joules = price = 0.0
    for kind, count in zip(material.kinds, cell.counts, strict=True):
        worked_s = min(busy_s.get(kind.name, 0.0), count * seconds)
        joules += worked_s * kind.busy_power_w + (count * seconds - worked_s) * kind.idle_power_w
        price += count * kind.per_hour
    kwh_per_hour = joules / seconds / 1e3
    return CellResult(
        cell=cell,
        meets=not broken,
        broken=broken,
        figures={name: _rounded(value) for name, value in figures.items()},
        refused=_rounded(refused),
        num_tasks=len(results),
        output_tokens=sum(result.output_tokens for result in results),
        hours=_rounded(seconds / 3600),
        busy={
            kind.name: _rounded(busy_s.get(kind.name, 0.0) / seconds / count)
            for kind, count in zip(material.kinds, cell.counts, strict=True)
            if count
        },
        energy_kwh=_rounded(kwh_per_hour),
        money=_rounded(price + kwh_per_hour * material.energy_per_kwh),
    )


def _figures(results: Sequence[TaskResult]) -> tuple[dict[str, float], float]:
    """Returns percentiles of all tasks and of each route's, and the share without an answer."""
    parts: dict[str, list[TaskResult]] = {"": []}
    for result in results:
        if result.outcome not in ANSWERED:
            continue
        parts[""].append(result)
        if result.route is not None:
            parts.setdefault(f"{result.route}.", []).append(result)
    figures: dict[str, float] = {}
    for prefix, members in parts.items():
        columns = {
            "ttft": [one.ttft_us for one in members if one.ttft_us is not None],
            "tpot": [one.tpot_us for one in members if one.tpot_us is not None],
            "latency": [one.duration_us for one in members],
        }
        for name, values in columns.items():
            if values:
                found = np.percentile(np.array(values, dtype=float), PERCENTILES) / 1e3
                for percentile, value in zip(PERCENTILES, found, strict=True):
                    figures[f"{prefix}{name}_p{percentile}_ms"] = float(value)
    return figures, 1.0 - len(parts[""]) / max(1, len(results))


def _broken(
    material: Material,
    figures: dict[str, float],
    refused: float,
    results: Sequence[TaskResult],
) -> dict[str, float]:
    slo = material.slo
    broken = {
        name: _rounded(figures[name] / max(bound, 1e-9))
        for name, bound in slo.bounds().items()
        if name in figures and figures[name] > bound
    }
    if refused > slo.max_refused:
        broken["refused"] = _rounded(refused)
    groups: dict[str, Objective | None] = {"fast": slo.fast, "deep": slo.deep}
    for group, objective in groups.items():
        members = [result for result in results if result.route == group]
        lost = sum(result.outcome not in ANSWERED for result in members)
        if objective is not None and members and lost > objective.max_refused * len(members):
            broken[f"{group}.refused"] = _rounded(lost / len(members))
    return broken


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
