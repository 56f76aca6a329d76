"""Builds small traffic, servers and objectives for plans."""

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from backends.contract import BackendGroup, BackendInfo
from router.backtest.arrivals import AnswerLength, Arrival
from router.backtest.fleet import EngineMachine
from router.planning.capacity import capacity_of
from router.planning.cells import CellResult, run_cell
from router.planning.search import Searcher
from router.planning.terms import (
    PLAN_TENANT,
    Cell,
    Counts,
    Material,
    PlanSlo,
    ServerKind,
    all_counts,
)
from router.policy.policy import DEFAULT_POLICY
from tests.unit.wafer_engine.affine_cost import AffineCost


def costs(slowness: float) -> dict[str, Any]:
    """Returns an engine so many times as slow, of few sequences."""
    return {
        "fixed_us": 8_000 * slowness,
        "seq_us": 200 * slowness,
        "prefill_us": 20 * slowness,
        "max_num_seqs": 4,
        "max_num_batched_tokens": 2_048,
        "kv_capacity_tokens": 200_000,
    }


def traffic(seed: int, number: int = 60, per_s: float = 12.0) -> list[Arrival]:
    """Returns tasks of both classes at a steady pace."""
    chance, at_s = random.Random(seed), 0.0
    found = []
    for index in range(number):
        at_s += chance.expovariate(per_s)
        length = AnswerLength(chance.randint(20, 200))
        found.append(
            Arrival(
                id=f"task-{index}",
                at_us=round(at_s * 1e6),
                tenant=PLAN_TENANT,
                prompt_tokens=chance.randint(10, 800),
                expected_output_tokens=length.output_tokens,
                p_deep=chance.random(),
                lengths=(("fast", length), ("deep", length)),
            )
        )
    return found


def server(
    name: str, group: BackendGroup, slowness: float, per_hour: float, **more: Any
) -> ServerKind:
    """Returns a kind of server whose capacity follows from its speed."""
    info = BackendInfo(
        name=name,
        model=f"lanewise-{group}",
        group=group,
        window_tokens=32_768,
        max_output_tokens=8_192,
    )
    machine = EngineMachine(info=info, cost=AffineCost(**costs(slowness)), power_w=1_000.0)
    given: dict[str, Any] = {"idle_power_w": 150.0, "most": 5}
    return ServerKind(
        name=name,
        machine=machine,
        per_hour=per_hour,
        capacity=capacity_of(machine, traffic(0)),
        **given | more,
    )


class JudgingSimulator:
    """Simulates each fleet once, and judges it by whatever objectives are asked for."""

    def __init__(self, terms: Material) -> None:
        self._terms = terms
        self._known: dict[Cell, CellResult] = {}

    def __call__(self, slo: PlanSlo, cells: Sequence[Cell]) -> list[CellResult]:
        return [self._judged(slo, cell) for cell in cells]

    def _judged(self, slo: PlanSlo, cell: Cell) -> CellResult:
        if cell not in self._known:
            self._known[cell] = run_cell(self._terms, cell)
        result = self._known[cell]
        figures = result.figures
        broken = {
            name: figures[name] / bound
            for name, bound in slo.bounds().items()
            if figures.get(name, 0.0) > bound
        }
        if result.refused > slo.max_refused:
            broken["refused"] = result.refused
        return msgspec.structs.replace(result, meets=not broken, broken=broken)


class Verdict(NamedTuple):
    """Says what a search found beside what all simulations find."""

    num_simulated: int
    num_fleets: int
    found_cheapest: bool
    found_frugal: bool


def verdict(terms: Material, simulate: JudgingSimulator) -> Verdict | None:
    """Searches, and simulates every fleet; None if none meets the objectives."""
    slo = terms.slo
    plan = Searcher(terms, 1.0, lambda cells: simulate(slo, cells)).plan()
    fleets = all_counts(terms.kinds)
    results = simulate(slo, [Cell("default", 1.0, one) for one in fleets])
    every = dict(zip(fleets, results, strict=True))
    passing = [
        result
        for counts, result in every.items()
        if result.meets
        and (
            not slo.spare_failures
            or all(any(less) and every[less].meets for less in reduced(counts))
        )
    ]
    if not passing:
        return None
    cheapest, frugal = plan.cheapest, plan.frugal
    return Verdict(
        plan.num_simulated,
        plan.num_fleets,
        cheapest is not None and cheapest.money == min(one.money for one in passing),
        frugal is not None and frugal.energy_kwh == min(one.energy_kwh for one in passing),
    )


def reduced(counts: Counts) -> list[Counts]:
    """Returns a fleet without one server, of each kind."""
    return [
        (*counts[:at], number - 1, *counts[at + 1 :]) for at, number in enumerate(counts) if number
    ]


def material(seed: int = 1, **more: Any) -> Material:
    """Returns three kinds of servers, 215 fleets."""
    chance = random.Random(seed)
    kinds = (
        server("wafer", "fast", chance.uniform(0.5, 1.5), chance.uniform(5, 12)),
        server("big", "deep", chance.uniform(1.0, 2.0), chance.uniform(4, 8)),
        server("small", "deep", chance.uniform(2.0, 4.0), chance.uniform(1.5, 4)),
    )
    given: dict[str, Any] = {
        "arrivals": traffic(seed),
        "kinds": kinds,
        "policies": {"default": DEFAULT_POLICY},
        "slo": PlanSlo(latency_p95_ms=chance.uniform(1_500, 4_000), spare_failures=seed % 2),
        "energy_per_kwh": 0.2,
        "tenant_tiers": {PLAN_TENANT: "standard"},
    }
    return Material(**given | more)
