"""When the sockets that have settled are frozen, and when all are thawed."""

import random

from gateway.heap import MIN_FREEZE, MIN_THAW, SocketAges


def test_a_growing_crowd_is_frozen_in_steps_and_thawed_when_most_of_it_is_gone() -> None:
    ages = SocketAges()
    first = [ages.opened() for _ in range(MIN_FREEZE - 1)]
    assert ages.due() is None
    first.append(ages.opened())
    assert ages.due() == "freeze"
    assert ages.due() is None, "what is taken is done"
    rest = [ages.opened() for _ in range(9 * MIN_FREEZE)]
    assert ages.due() == "freeze"
    for age in (first + rest)[: MIN_THAW - 1]:
        ages.closed(age)
    assert ages.due() is None
    assert (ages.num_frozen, ages.num_dead) == (10 * MIN_FREEZE - MIN_THAW + 1, MIN_THAW - 1)
    for age in (first + rest)[MIN_THAW - 1 : MIN_THAW + MIN_FREEZE]:
        ages.closed(age)
    assert ages.num_dead >= ages.num_frozen
    assert ages.due() == "thaw"
    assert (ages.num_young, ages.num_dead) == (0, 0)


def test_sockets_that_come_and_go_are_never_frozen() -> None:
    ages = SocketAges()
    for _ in range(100):
        young = [ages.opened() for _ in range(MIN_FREEZE - 1)]
        assert ages.due() is None
        for age in young:
            ages.closed(age)
    assert (ages.num_young, ages.num_frozen, ages.num_dead) == (0, 0, 0)


def test_the_counts_add_up_whatever_comes_and_goes() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chaos = random.Random(seed)
    ages, live = SocketAges(), list[int]()
    for _ in range(300):
        live += [ages.opened() for _ in range(chaos.randrange(400))]
        chaos.shuffle(live)
        for _ in range(chaos.randrange(400)):
            if live:
                ages.closed(live.pop())
        assert ages.num_young + ages.num_frozen == len(live)
        assert ages.num_young == sum(age == ages.age for age in live)
        ages.due()
        assert ages.num_dead < max(MIN_THAW, ages.num_frozen + 1)
