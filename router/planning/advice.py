"""Says what a plan leaves room for: how much growth, what breaks first, and what a failure does."""

from collections.abc import Sequence

import msgspec

from router.planning.cells import CellResult
from router.planning.search import FleetPlan, Simulate
from router.planning.terms import Cell, Counts, Material

_STEPS = (1.1, 1.25, 1.5, 2.0, 3.0)  # times the planned traffic, until one breaks an objective


class LostServer(msgspec.Struct, frozen=True):
    """Says what comes of a fleet with one server of a kind less."""

    kind: str
    result: CellResult


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """Says how a fleet fares beyond what was planned."""

    fleet: CellResult
    holds: float  # times the planned traffic, at the most of those tried
    breaks: CellResult | None  # the next one tried; None: it held them all
    failures: tuple[LostServer, ...]


def advise(material: Material, chosen: CellResult, simulate: Simulate) -> Advice:
    """Simulates more traffic, and one server of each kind less."""
    cell = chosen.cell
    holds, breaks = 1.0, None
    for step in _STEPS:
        (result,) = simulate([msgspec.structs.replace(cell, scale=cell.scale * step)])
        if not result.meets:
            breaks = result
            break
        holds = step
    reduced: list[tuple[str, Counts]] = [
        (kind.name, (*cell.counts[:at], number - 1, *cell.counts[at + 1 :]))
        for at, (kind, number) in enumerate(zip(material.kinds, cell.counts, strict=True))
        if number and sum(cell.counts) > 1
    ]
    results = simulate([msgspec.structs.replace(cell, counts=counts) for _, counts in reduced])
    failures = [
        LostServer(kind, result) for (kind, _), result in zip(reduced, results, strict=True)
    ]
    return Advice(fleet=chosen, holds=holds, breaks=breaks, failures=tuple(failures))


def plan_text(material: Material, plan: FleetPlan, advice: Sequence[Advice]) -> str:
    """Writes a plan for people."""
    lines = [
        f"{plan.num_fleets} fleets, {plan.num_simulated} simulated, "
        f"{len(material.arrivals):,} tasks at {material.slo.growth:g} times their pace",
        *material.untestable,
    ]
    if plan.cheapest is None or plan.frugal is None:
        spare = ", with one server out" if material.slo.spare_failures else ""
        lines.append(f"no fleet of these kinds meets the objectives{spare}")
        if plan.best_failing is not None:
            lines += [
                f"nearest: {fleet_text(material, plan.best_failing.cell)}",
                f"  breaks {_broken(plan.best_failing)}",
            ]
        return "\n".join(lines)
    lines.append(f"{'':10} {'fleet':34} {'policy':16} {'per hour':>10} {'kWh/h':>8}  busy")
    named = [("cheapest", plan.cheapest), ("least energy", plan.frugal)]
    named += [("front", one) for one in plan.front if one not in (plan.cheapest, plan.frugal)]
    lines += [_line(material, title, one) for title, one in named]
    for one in advice:
        lines += ["", f"{fleet_text(material, one.fleet.cell)}, {one.fleet.cell.policy}:"]
        lines.append(f"  {_figures(material, one.fleet)}")
        if one.breaks is None:
            lines.append(f"  holds {one.holds:g} times the planned traffic and more")
        else:
            at = one.breaks.cell.scale / one.fleet.cell.scale
            lines.append(
                f"  holds {one.holds:g} times the planned traffic; at {at:g} times breaks "
                f"{_broken(one.breaks)}, {_busiest(one.breaks)}"
            )
        for failure in one.failures:
            broken = _broken(failure.result)
            said = "still meets all" if failure.result.meets else f"breaks {broken}"
            lines.append(f"  without one {failure.kind}: {said}")
    return "\n".join(lines)


def fleet_text(material: Material, cell: Cell) -> str:
    """Names a fleet: 1 x wafer + 3 x h100."""
    parts = zip(material.kinds, cell.counts, strict=True)
    return " + ".join(f"{number} x {kind.name}" for kind, number in parts if number)


def _line(material: Material, title: str, one: CellResult) -> str:
    busy = ", ".join(f"{kind} {share:.0%}" for kind, share in one.busy.items())
    return (
        f"{title:12} {fleet_text(material, one.cell):32} {one.cell.policy:16} "
        f"{one.money:10,.2f} {one.energy_kwh:8.2f}  {busy}"
    )


def _figures(material: Material, one: CellResult) -> str:
    bounds = material.slo.bounds()
    found = [
        f"{name} {one.figures[name]:,.0f} of {bound:,.0f}"
        for name, bound in bounds.items()
        if name in one.figures
    ]
    return ", ".join([*found, f"refused {one.refused:.1%}"])


def _broken(one: CellResult) -> str:
    worst = sorted(one.broken.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(
        f"{name} ({share:.1%})" if name.endswith("refused") else f"{name} ({share:.2g} times)"
        for name, share in worst[:3]
    )


def _busiest(one: CellResult) -> str:
    if not one.busy:
        return "with no server"
    kind = max(one.busy, key=lambda name: one.busy[name])
    return f"with {kind} busy {one.busy[kind]:.0%} of the time"
