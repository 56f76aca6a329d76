"""Tests when the sockets that are open are frozen, and when all are thawed."""

import gc
import random
import weakref
from collections.abc import Iterator

import pytest

from gateway.transport.gc_freeze import (
    MIN_FREEZE,
    MIN_THAW,
    MIN_TRIM,
    SocketAges,
    note_opened,
    thaw_and_trim,
)


def test_a_growing_crowd_is_frozen_in_steps_and_thawed_when_most_of_it_is_gone() -> None:
    ages = SocketAges()
    first = [ages.opened() for _ in range(MIN_FREEZE - 1)]
    assert not ages.freeze_due()
    first.append(ages.opened())
    assert ages.freeze_due()
    assert not ages.freeze_due(), "what is taken is done"
    rest = [ages.opened() for _ in range(2 * MIN_THAW)]
    assert ages.freeze_due()
    live = first + rest
    for age in live[: MIN_THAW - 1]:
        ages.closed(age)
    assert not ages.thaw_due(), "too few are gone"
    assert (ages.num_frozen, ages.num_dead) == (len(live) - MIN_THAW + 1, MIN_THAW - 1)
    ages.closed(live[MIN_THAW - 1])
    assert not ages.thaw_due(), "more live than are gone"
    for age in live[MIN_THAW : MIN_THAW + MIN_FREEZE]:
        ages.closed(age)
    assert ages.num_dead >= ages.num_frozen
    assert ages.thaw_due()
    assert (ages.num_young, ages.num_dead) == (0, 0)


def test_sockets_that_come_and_go_are_never_frozen() -> None:
    ages = SocketAges()
    for _ in range(100):
        young = [ages.opened() for _ in range(MIN_FREEZE - 1)]
        assert not ages.freeze_due()
        for age in young:
            ages.closed(age)
    assert (ages.num_young, ages.num_frozen, ages.num_dead) == (0, 0, 0)


def test_the_counts_add_up_whatever_comes_and_goes() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chaos = random.Random(seed)
    ages, live, num_thaws = SocketAges(), list[int](), 0
    for _ in range(150):
        live += [ages.opened() for _ in range(chaos.randrange(800))]
        chaos.shuffle(live)
        for _ in range(chaos.randrange(800)):
            if live:
                ages.closed(live.pop())
        assert ages.num_young + ages.num_frozen == len(live)
        assert ages.num_young == sum(age == ages.age for age in live)
        ages.freeze_due()
        num_thaws += ages.thaw_due()
        assert ages.num_young < MIN_FREEZE
        assert ages.num_dead < max(MIN_THAW, ages.num_frozen + 1)
    assert num_thaws


async def test_memory_is_given_back_once_many_have_closed_and_not_again_until_many_more_have() -> (
    None
):
    ages = SocketAges()
    for _ in range(MIN_TRIM - 1):
        ages.closed(ages.opened())
    assert not ages.trim_due()
    ages.closed(ages.opened())
    await thaw_and_trim(ages)
    assert ages.num_closed == 0
    assert not ages.trim_due()


@pytest.fixture
def collector() -> Iterator[None]:
    """Leaves the collector as it was found."""
    yield
    gc.unfreeze()
    gc.collect()


class Cycle:
    """Is found by the collector alone."""

    def __init__(self) -> None:
        self.me = self


@pytest.mark.usefixtures("collector")
async def test_a_crowd_is_left_out_of_collections_until_it_is_gone() -> None:
    ages, cycle = SocketAges(), Cycle()
    watch = weakref.ref(cycle)
    for _ in range(MIN_FREEZE):
        note_opened(ages)
    del cycle
    gc.collect()
    await thaw_and_trim(ages)
    assert watch() is not None, "what is frozen is not searched"
    ages.num_dead = MIN_THAW
    await thaw_and_trim(ages)
    assert watch() is None
    assert ages.num_dead == 0
