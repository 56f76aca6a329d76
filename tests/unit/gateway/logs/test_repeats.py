"""Equal lines pass once a window, and what is known of them is bounded."""

from gateway.logs.repeats import MAX_KNOWN, WINDOW_US, Repeats


def test_an_outage_says_a_thing_once() -> None:
    repeats = Repeats()
    passed = [repeats.passes("away", n * WINDOW_US // 10) for n in range(21)]
    assert passed == [0, *[None] * 9, 9, *[None] * 9, 9]
    assert repeats.passes("back", 3 * WINDOW_US) == 0


def test_memory_is_bounded() -> None:
    repeats = Repeats()
    for number in range(3 * MAX_KNOWN):
        assert repeats.passes(number, 0) == 0
    assert repeats.passes(0, 0) == 0  # forgotten
    assert repeats.passes(3 * MAX_KNOWN - 1, 0) is None
