"""Nothing that a client sends ends in a 5xx, a traceback, silence, or words of the insides.

A sample of the hostile kinds and of their mutations; `make accept` sends all of them.
"""

import itertools
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.gateway_process import GatewayProcess, wait_until_at_rest
from tests.hostile.client import Target
from tests.hostile.gateway import serving
from tests.hostile.kinds import Kind, faults_of, kinds
from tests.hostile.mutations import mutations

NUM_KINDS = 240
NUM_MUTATIONS = 400
AT_ONCE = 4
HEAVY = " MB"  # in the names of those that send megabytes: for `make accept`


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[GatewayProcess, Target]]:
    with tempfile.TemporaryDirectory(prefix="lw-hostile-") as name, serving(Path(name)) as both:
        yield both


def sampled(chance: random.Random) -> list[Kind]:
    """Returns some of each way to send, so that the many bodies do not crowd out the few others."""
    by_way: dict[str, list[Kind]] = {}
    for kind in kinds():
        if HEAVY not in kind.name:
            by_way.setdefault(kind.name.partition(",")[0], []).append(kind)
    each = NUM_KINDS // len(by_way)
    return [kind for some in by_way.values() for kind in chance.sample(some, min(each, len(some)))]


async def test_hostile_kinds_and_mutations_end_well(
    served: tuple[GatewayProcess, Target],
) -> None:
    gateway, target = served
    seed = random.SystemRandom().randrange(1 << 32)
    asked = sampled(random.Random(seed)) + list(itertools.islice(mutations(seed), NUM_MUTATIONS))
    faults = [f"{kind.name}: {fault}" async for kind, fault in faults_of(target, asked, AT_ONCE)]
    assert not faults, f"seed {seed}:\n" + "\n".join(faults)
    wait_until_at_rest(gateway)
    assert "Traceback" not in gateway.log, f"seed {seed}:\n{gateway.log[-6000:]}"
