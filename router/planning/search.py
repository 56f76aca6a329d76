"""Searches the fleets that meet the objectives for the cheapest, by few simulations.

Among fleets of the same kinds of servers more do no harm (a further kind may: a slow one): one that
fails rules out every one that does no better in any group (`dominance.py`), unless it failed by so
little that chance may have done it; one that passes makes every dearer one pointless, of whatever
kinds. What a fleet costs is known before a simulation from below: its price, the energy of standing
idle, and most of the least that working took so far. The next fleet to simulate is the one that is
expected to rule most others out for what it takes. Nothing passes by a guess: a fleet that is
offered was simulated, and so was, or contains, every fleet that is left when a server of it fails.
"""

from collections.abc import Callable, Sequence
from math import inf, sqrt

import msgspec

from router.planning.cells import CellResult
from router.planning.dominance import Dominance, same_kinds, within
from router.planning.terms import Cell, Counts, Material, all_counts

Simulate = Callable[[Sequence[Cell]], Sequence[CellResult]]

MONEY = "money"
ENERGY = "energy"
# Times over a bound, or over the share that may be refused: a fleet that breaks one by less rules
# out no other, as of two such the smaller one may just meet it. Assumed; with 1.0 five more of 312
# objectives of 40 seeded traces were missed (2026-11).
CLEARLY_BROKEN = 1.03
# No fleet works with less than the first share of the least energy of working seen, nor with less
# than the second of what a smaller one of the same kinds does, as on more servers fewer tasks share
# a batch. Assumed: of 498 objectives of 64 seeded traces the search missed two, both the least
# energy on one trace (2026-11).
LEAST_WORK, LEAST_OF_PART = 0.95, 0.85
_SURE = 1e-9  # relative: a bound that reaches the best so far cannot beat it


class FleetPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what a search found."""

    cheapest: CellResult | None  # in money; None: no fleet of these kinds meets the objectives
    frugal: CellResult | None  # in energy
    front: tuple[CellResult, ...]  # those that no other beats in both, by money
    num_fleets: int  # that there are, over all policies
    num_simulated: int
    best_failing: CellResult | None = None  # where none meets: the one that comes nearest


class Searcher:
    """Keeps what was simulated, and what follows from it."""

    def __init__(self, material: Material, scale: float, simulate: Simulate, seed: int = 0) -> None:
        self._material = material
        self._scale = scale
        self._seed = seed
        self._simulate = simulate
        self._fleets = all_counts(material.kinds)
        self._spare = material.slo.spare_failures
        self.known: dict[Cell, CellResult] = {}
        self._dominance = Dominance(material.kinds)

    def plan(self) -> FleetPlan:
        """Searches under every policy for the cheapest in money and in energy.

        What one search has found may lower the bounds that another one rested on, so they go on
        until none finds anything more to simulate.
        """
        num_known = -1
        while num_known < len(self.known):
            num_known = len(self.known)
            for measure in (MONEY, ENERGY):
                for policy in self._material.policies:
                    self._search(policy, measure)
        best = {measure: self._best(measure) for measure in (MONEY, ENERGY)}
        passing = [one for one in self.known.values() if self._passes(one.cell) is True]
        failing = [one for one in self.known.values() if not one.meets]
        nearest = min(failing, key=lambda one: sum(one.broken.values()), default=None)
        return FleetPlan(
            cheapest=best[MONEY],
            frugal=best[ENERGY],
            front=_front(passing),
            num_fleets=len(self._fleets) * len(self._material.policies),
            num_simulated=len(self.known),
            best_failing=None if best[MONEY] else nearest,
        )

    def _best(self, measure: str) -> CellResult | None:
        return min(
            (one for one in self.known.values() if self._passes(one.cell) is True),
            key=lambda one: (_value(one, measure), one.cell),
            default=None,
        )

    def _search(self, policy: str, measure: str) -> None:
        """Simulates one policy's fleets until none is left that may beat the best."""
        while True:
            best = self._best(measure)
            best_value = inf if best is None else _value(best, measure)
            bounds = {counts: self.lower_bound(counts, measure) for counts in self._fleets}
            left = [
                counts
                for counts in self._fleets
                if bounds[counts] < best_value * (1 - _SURE)
                and self._is_open(self._cell(policy, counts))
            ]
            if not left:
                return
            self._try(policy, self._choose(policy, measure, left, bounds, best_value))

    def _choose(
        self,
        policy: str,
        measure: str,
        left: Sequence[Counts],
        bounds: dict[Counts, float],
        best_value: float,
    ) -> Counts:
        """Returns the fleet that is expected to rule most others out for what it takes."""
        is_less = self._dominance.is_less

        def worth(counts: Counts) -> tuple[float, float]:
            cost = self._cost(counts, measure)
            num_dearer = sum(bounds[other] >= cost for other in left) if cost < best_value else 0
            took = sqrt(self._num_missing(policy, counts))
            if self._passes(self._cell(policy, counts)) is True:  # only what it costs is not known
                return (num_dearer + 1) / took, -bounds[counts]
            # The more of those left do no better, and the fewer no worse, the likelier it passes.
            num_less = sum(is_less(other, counts) for other in left)
            num_more = sum(is_less(counts, other) for other in left)
            p_passes = num_less / (num_less + num_more)
            ruled_out = p_passes * max(num_dearer, 1) + (1 - p_passes) * num_less
            return ruled_out / took, -bounds[counts]

        return max(left, key=worth)

    def _num_missing(self, policy: str, counts: Counts) -> int:
        """Counts the simulations that it takes at most to know of a fleet whether it passes."""
        reduced = self._reduced(counts) if self._spare else []
        unknown = sum(self._meets(self._cell(policy, each)) is None for each in reduced)
        return unknown + (self._cell(policy, counts) not in self.known)

    def _try(self, policy: str, counts: Counts) -> None:
        """Simulates a fleet without one server of each kind, and whole if it may pass."""
        cell = self._cell(policy, counts)
        # That with the least left in a group is the likeliest to fail, which ends it.
        for reduced in sorted(self._reduced(counts), key=self._dominance.least_capacity):
            part = self._cell(policy, reduced)
            if self._meets(part) is None:
                self._run(part)
            if not self._meets(part):
                return
        if cell not in self.known:
            self._run(cell)

    def _run(self, cell: Cell) -> None:
        (self.known[cell],) = self._simulate([cell])

    def _cell(self, policy: str, counts: Counts) -> Cell:
        return Cell(policy, self._scale, counts, self._seed)

    def _reduced(self, counts: Counts) -> list[Counts]:
        """Returns the fleet without one server, of each kind; the fleet itself if none may fail."""
        if not self._spare:
            return [counts]
        return [
            (*counts[:at], number - 1, *counts[at + 1 :])
            for at, number in enumerate(counts)
            if number
        ]

    def _passes(self, cell: Cell) -> bool | None:
        """Returns whether a fleet meets the objectives, and without a server too; None: unknown."""
        verdicts = [
            self._meets(msgspec.structs.replace(cell, counts=reduced))
            for reduced in self._reduced(cell.counts)
        ]
        if self._meets(cell) is False or False in verdicts:
            return False
        return None if None in verdicts else True

    def _is_open(self, cell: Cell) -> bool:
        """Returns whether a fleet may pass, and what it costs then is not known."""
        passes = self._passes(cell)
        return passes is None or (passes and cell not in self.known)

    def _meets(self, cell: Cell) -> bool | None:
        """Returns what is known of a fleet, by its simulation or by those it contains or is in."""
        if not any(cell.counts):
            return False
        if cell in self.known:
            return self.known[cell].meets
        for other, result in self.known.items():
            if other.policy != cell.policy:
                continue
            if (
                result.meets
                and same_kinds(other.counts, cell.counts)
                and within(other.counts, cell.counts)
            ):
                return True
            if self._fails_clearly(result) and self._dominance.is_less(cell.counts, other.counts):
                return False
        return None

    def _fails_clearly(self, result: CellResult) -> bool:
        return any(
            share >= CLEARLY_BROKEN * self._most(name) for name, share in result.broken.items()
        )

    def _most(self, name: str) -> float:
        """Returns what `CellResult.broken` may say of a bound at most, were it not broken."""
        slo = self._material.slo
        if not name.endswith("refused"):
            return 1.0  # its times are times over the bound
        objectives = {"fast.refused": slo.fast, "deep.refused": slo.deep}
        return (objectives.get(name) or slo).max_refused

    def lower_bound(self, counts: Counts, measure: str) -> float:
        """Returns the least that a fleet can cost."""
        return self._cost(counts, measure, LEAST_WORK, LEAST_OF_PART)

    def _cost(
        self, counts: Counts, measure: str, of_least: float = 1.0, of_part: float = 1.0
    ) -> float:
        """Estimates what a fleet costs by the least that working took, and by what it contains."""
        work_kwh = min(
            (
                one.energy_kwh - self._idle_kwh(one.cell.counts)
                for one in self.known.values()
                if one.meets
            ),
            default=0.0,
        )
        part_kwh = of_part * self._part_kwh(counts)
        all_kwh = self._idle_kwh(counts) + max(of_least * work_kwh, part_kwh)
        if measure == ENERGY:
            return all_kwh
        kinds = self._material.kinds
        price = sum(number * kind.per_hour for kind, number in zip(kinds, counts, strict=True))
        return price + all_kwh * self._material.energy_per_kwh

    def _part_kwh(self, counts: Counts) -> float:
        """Returns the most that a simulated fleet works with which this one contains."""
        parts = (
            one.energy_kwh - self._idle_kwh(one.cell.counts)
            for one in self.known.values()
            if same_kinds(one.cell.counts, counts) and within(one.cell.counts, counts)
        )
        return max(parts, default=0.0)

    def _idle_kwh(self, counts: Counts) -> float:
        kinds = self._material.kinds
        watts = sum(number * kind.idle_power_w for kind, number in zip(kinds, counts, strict=True))
        return watts / 1e3


def _value(result: CellResult, measure: str) -> float:
    return result.money if measure == MONEY else result.energy_kwh


def _front(passing: Sequence[CellResult]) -> tuple[CellResult, ...]:
    found: list[CellResult] = []
    for one in sorted(passing, key=lambda one: (one.money, one.energy_kwh, one.cell)):
        if not found or one.energy_kwh < found[-1].energy_kwh:
            found.append(one)
    return tuple(found)
