"""The search finds what simulating every fleet finds, by a tenth of the simulations."""

from collections.abc import Sequence

from router.planning.advice import advise, plan_text
from router.planning.cells import CellResult, run_cell
from router.planning.search import Searcher
from router.planning.terms import Cell, Counts, Material, PlanSlo, all_counts
from tests.unit.router.planning.scenes import material, server, traffic

SEEDS = (0, 1, 2)


class Simulator:
    """Simulates each cell once, whoever asks."""

    def __init__(self, terms: Material) -> None:
        self._terms = terms
        self.known: dict[Cell, CellResult] = {}

    def __call__(self, cells: Sequence[Cell]) -> list[CellResult]:
        for cell in cells:
            if cell not in self.known:
                self.known[cell] = run_cell(self._terms, cell)
        return [self.known[cell] for cell in cells]


def reduced(counts: Counts) -> list[Counts]:
    """A fleet without one server, of each kind."""
    return [
        (*counts[:at], number - 1, *counts[at + 1 :]) for at, number in enumerate(counts) if number
    ]


def test_a_search_finds_what_all_simulations_find() -> None:
    num_simulated = num_fleets = 0
    for seed in SEEDS:
        terms = material(seed)
        simulate = Simulator(terms)
        plan = Searcher(terms, 1.0, simulate).plan()
        num_simulated += plan.num_simulated
        num_fleets += plan.num_fleets
        fleets = all_counts(terms.kinds)
        results = simulate([Cell("default", 1.0, one) for one in fleets])
        every = dict(zip(fleets, results, strict=True))
        passing = [
            result
            for counts, result in every.items()
            if result.meets
            and (
                not terms.slo.spare_failures
                or all(any(less) and every[less].meets for less in reduced(counts))
            )
        ]
        assert passing, f"seed {seed}"
        assert plan.cheapest is not None
        assert plan.frugal is not None
        assert plan.cheapest.money == min(one.money for one in passing), f"seed {seed}"
        assert plan.frugal.energy_kwh == min(one.energy_kwh for one in passing), f"seed {seed}"
        assert plan.cheapest in plan.front or plan.cheapest.money == plan.front[0].money
    assert num_simulated <= 0.1 * num_fleets, f"{num_simulated} of {num_fleets}"


def test_a_spare_is_a_server_more() -> None:
    kinds = (server("gpu", "deep", 1.0, 4.0, most=6),)
    found = []
    for spare in (0, 1):
        terms = material(kinds=kinds, slo=PlanSlo(latency_p95_ms=3_000, spare_failures=spare))
        plan = Searcher(terms, 1.0, Simulator(terms)).plan()
        assert plan.cheapest is not None
        found.append(plan.cheapest.cell.counts[0])
    assert found[1] == found[0] + 1


def test_what_nothing_meets_says_what_is_nearest() -> None:
    terms = material(slo=PlanSlo(latency_p95_ms=1.0))
    simulate = Simulator(terms)
    plan = Searcher(terms, 1.0, simulate).plan()
    assert plan.cheapest is None
    assert plan.best_failing is not None
    assert "latency_p95_ms" in plan.best_failing.broken
    assert "no fleet of these kinds meets the objectives" in plan_text(terms, plan, [])


def test_advice_says_what_breaks_first_and_what_a_failure_does() -> None:
    kinds = (server("gpu", "deep", 1.0, 4.0, most=6),)
    terms = material(kinds=kinds, slo=PlanSlo(latency_p95_ms=3_000, spare_failures=0))
    simulate = Simulator(terms)
    plan = Searcher(terms, 1.0, simulate).plan()
    assert plan.cheapest is not None
    advice = advise(terms, plan.cheapest, simulate)
    (failure,) = advice.failures
    assert not failure.result.meets, "one server less does not meet it"
    text = plan_text(terms, plan, [advice])
    assert "without one gpu: breaks latency_p95_ms" in text
    assert advice.breaks is not None
    assert f"at {advice.breaks.cell.scale:g} times breaks" in text


def test_an_idle_server_costs_what_it_draws() -> None:
    kinds = tuple(
        server("gpu", "deep", 1.0, 4.0, idle_power_w=idle_w, busy_share=share)
        for idle_w, share in ((100.0, 1.0), (300.0, 1.0), (100.0, 0.6))
    )
    usual, idling, part = (
        run_cell(
            material(kinds=(kind,), arrivals=traffic(1, 20)), Cell("default", 1.0, (3,))
        ).energy_kwh
        for kind in kinds
    )
    assert part < usual < idling
