"""Tests when Redis is not asked any more, and when it is again."""

import pytest

from router.redis.breaker import CHECK_PAUSE_US, PROBE_PAUSE_US, Breaker

MS = 1_000

# Each call: began, ended (ms), answered. Then whether that opened the breaker.
Call = tuple[int, int, bool]
CASES: dict[str, tuple[list[Call], bool]] = {
    "all is well": ([(n, n + 1, True) for n in range(0, 500, 5)], False),
    "three rounds in a row": ([(0, 100, False), (101, 201, False), (202, 302, False)], True),
    "two, then an answer, then two": (
        [
            *[(0, 100, False), (101, 201, False), (202, 204, True)],
            *[(1_300, 1_400, False), (1_401, 1_501, False)],
        ],
        False,
    ),
    "a hiccup that fails a hundred at once": ([(n % 90, 100, False) for n in range(100)], False),
    "every third round of a second": (
        [(60 * n, 60 * n + 50, n % 3 != 0) for n in range(12)],
        True,
    ),
    "one round in ten": ([(60 * n, 60 * n + 50, n % 10 != 9) for n in range(40)], False),
    "few rounds say nothing about shares": ([(0, 50, True), (60, 160, False)], False),
}


@pytest.mark.parametrize("case", CASES)
def test_what_opens_it(case: str) -> None:
    calls, opens = CASES[case]
    breaker = Breaker()
    opened = False
    for began_ms, ended_ms, answered in calls:
        if answered:
            breaker.succeeded(began_ms * MS, ended_ms * MS)
        else:
            opened |= breaker.failed(began_ms * MS, ended_ms * MS)
    assert opened == opens
    assert breaker.is_closed != opens


def test_it_closes_after_two_good_probes_and_the_edges_word() -> None:
    breaker = Breaker()
    breaker.trip()
    assert not breaker.probed(good=False)
    assert not breaker.probed(good=True)
    assert breaker.state == "half_open"
    assert not breaker.probed(good=False)
    assert breaker.state == "open"
    assert [breaker.probed(good=True), breaker.probed(good=True)] == [False, True]
    assert not breaker.is_closed, "Redis is brought up to date first"
    breaker.close()
    assert breaker.is_closed


def test_old_calls_change_nothing_while_it_is_open() -> None:
    breaker = Breaker()
    breaker.trip()
    breaker.succeeded(0, 5)
    assert breaker.state == "open"
    assert not breaker.failed(0, 10)


def test_it_knows_whether_redis_was_ever_there() -> None:
    breaker = Breaker()
    breaker.failed(0, 1)
    assert not breaker.seen
    breaker.succeeded(2, 3)
    assert breaker.seen


def test_it_is_watched_more_closely_while_something_is_wrong() -> None:
    breaker = Breaker()
    assert breaker.pause_us == CHECK_PAUSE_US
    breaker.failed(0, 100)
    assert breaker.pause_us == PROBE_PAUSE_US
    breaker.succeeded(200, 210)
    assert breaker.pause_us == CHECK_PAUSE_US
    breaker.trip()
    assert breaker.pause_us == PROBE_PAUSE_US
    # Two probes and the pause before each: back well within two seconds of Redis's return.
    assert 3 * PROBE_PAUSE_US < 1_000_000
