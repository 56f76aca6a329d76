"""10,000 simulated histories break no invariant, and planted bugs are found within 1,000.

`SEED` takes the seed that a failed run printed; `NUM` plays as many histories.
"""

import os
import random
import time

from router.pools.memory_pools import MemoryPools
from tests.sim.histories import LEASE_US
from tests.sim.planted import PLANTED
from tests.sim.searching import FoundError, search

LIMIT_S = 3_600
NUM, NUM_TO_FIND = 10_000, 1_000


def main() -> bool:
    """Prints what it found; returns whether all held."""
    seed = int(os.environ.get("SEED", random.SystemRandom().randrange(1 << 32)))
    number = int(os.environ.get("NUM", NUM))
    print(f"seed {seed}", flush=True)
    held = True
    for planted in PLANTED:
        found = searched(NUM_TO_FIND, seed, planted)
        held = held and found is not None
        told = "not found" if found is None else f"found in history {found.number}: {found.events}"
        print(f"{planted.__name__}: {told}", flush=True)
    began_s = time.monotonic()
    broken = searched(number, seed)
    print(f"{number} histories in {time.monotonic() - began_s:.0f} s; {broken or 'none broke'}")
    return held and broken is None


def searched(number: int, seed: int, planted: type[MemoryPools] | None = None) -> FoundError | None:
    """Returns what a search on pools with a planted bug, or without one, finds."""
    try:
        search(number, seed, lambda: None if planted is None else planted(LEASE_US))
    except FoundError as found:
        return found
    return None
