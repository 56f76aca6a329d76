"""Plans: a search finds what simulating every fleet finds, by a fraction of the simulations.

Twelve seeded traces of 215 fleets each, and four kinds of objectives with and without a spare
server.
"""

import random

import msgspec

from router.planning.terms import Objective, PlanSlo
from tests.unit.router.planning.scenes import JudgingSimulator, material, traffic, verdict

LIMIT_S = 900
SEEDS = range(12)
NUM_TASKS = 40
MOST = 0.1  # of all fleets that a search may simulate


def objectives(seed: int, spare: int) -> dict[str, PlanSlo]:
    """Returns objectives of each kind, drawn so wide that some fleets meet most of them."""
    chance = random.Random(100 + seed)
    latency_ms, ttft_ms = chance.uniform(1_500, 4_000), chance.uniform(60, 400)
    deep = Objective(tpot_p95_ms=chance.uniform(15, 40))
    return {
        "latency": PlanSlo(latency_p95_ms=latency_ms, spare_failures=spare),
        "TTFT": PlanSlo(ttft_p95_ms=ttft_ms, spare_failures=spare),
        "deep TPOT": PlanSlo(deep=deep, spare_failures=spare),
        "TTFT and deep TPOT": PlanSlo(ttft_p95_ms=ttft_ms, deep=deep, spare_failures=spare),
    }


def main() -> bool:
    """Plans for every seed and objective; shows what was simulated beside how many there are."""
    num_simulated = num_fleets = 0
    found_all = True
    for seed in SEEDS:
        terms = material(seed, arrivals=traffic(seed, NUM_TASKS))
        simulate = JudgingSimulator(terms)
        for spare in (0, 1):
            for name, slo in objectives(seed, spare).items():
                found = verdict(msgspec.structs.replace(terms, slo=slo), simulate)
                if found is None:
                    print(f"seed {seed}, {name}, spare {spare}: no fleet meets it")
                    continue
                is_same = found.found_cheapest and found.found_frugal
                found_all &= is_same
                num_simulated += found.num_simulated
                num_fleets += found.num_fleets
                told = "found" if is_same else "MISSED"
                counted = f"{found.num_simulated} of {found.num_fleets}"
                print(f"seed {seed}, {name}, spare {spare}: {told} by {counted}")
    share = num_simulated / num_fleets
    print(f"simulated {share:.1%} of all fleets (at most {MOST:.0%})")
    return found_all and share <= MOST
