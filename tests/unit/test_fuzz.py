"""Tests what `make fuzz` runs: each target holds for its seeds, and for some cut off."""

import pytest

from tests.fuzz.targets import TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_have_no_finding(name: str) -> None:
    target = TARGETS[name]
    assert target.seeds
    for seed in target.seeds:
        target.run(seed)
        target.run(seed[: len(seed) // 2])
