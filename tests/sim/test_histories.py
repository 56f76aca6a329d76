"""Tests histories of gateways that share pools: no invariant breaks, and planted bugs are found."""

import random

import pytest

from router.pools.memory_pools import MemoryPools
from tests.sim.histories import LEASE_US, Arrive, Break, Crash, Step, Wait, played
from tests.sim.planted import PLANTED
from tests.sim.searching import FoundError, search

NUM_HERE = 100  # `make accept ARGS="--only histories"` plays 10,000
NUM_TO_FIND = 1_000
SEEDS = range(20, 32)


def test_no_history_breaks_an_invariant() -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print("seed", seed)
    search(NUM_HERE, seed)


@pytest.mark.parametrize("planted", PLANTED)
def test_what_is_planted_is_found_and_made_short(planted: type[MemoryPools]) -> None:
    """Hypothesis also draws constants of what modules are loaded, so that a seed is not all of it:
    now and then it gets stuck at a longer history, and another seed gets on."""
    founds = []
    for seed in SEEDS:
        with pytest.raises(FoundError) as found:
            search(NUM_TO_FIND, seed, lambda: planted(LEASE_US))
        assert found.value.number <= NUM_TO_FIND
        founds.append(found.value)
        if len(found.value.events) <= 3:
            return
    pytest.fail("\n".join(map(str, founds)))


def test_a_history_ends_as_it_should() -> None:
    """There is one row for each way that a task ends."""
    task = Arrive(gateway=0, tenant=0, route=2, tokens=100, used=900, lasts_ms=5_000)
    world = played([task, Wait(1_000), task, task, task])  # the fourth waits for a place
    assert world.ended == {"done": 4}
    assert world.charged == {("one", "fast"): 3_600, ("one", "deep"): 3_600}
    assert played([task, Crash(0)]).ended == {"crashed": 1}
    assert played([Break("reply lost", 1), task]).ended == {"unavailable": 1}
    long = task._replace(lasts_ms=60_000)
    assert played([long, long, long, task, Wait(30_000)]).ended == {"done": 3, "refused": 1}
    assert played([long, Step(60_000), Wait(15_000)]).num_anew == 1
