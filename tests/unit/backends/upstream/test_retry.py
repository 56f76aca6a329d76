"""Tests retries: when, how often, and after which pause."""

import random

import pytest

from backends.contract import BackendError
from backends.upstream.answer.errors import Failure, broken, http_failure
from backends.upstream.retry import MAX_PAUSE_S, Attempts
from tests.unit.backends.upstream.upstream_requests import make_options


def limit(retry_after_s: float | None) -> Failure:
    after_us = None if retry_after_s is None else int(retry_after_s * 1e6)
    error = BackendError(
        "told", "rate_limit_exceeded", "too many", retryable=True, retry_after_us=after_us
    )
    return Failure(error, blame="limit")


FINAL = Failure(BackendError("told", "invalid_prompt", "no", retryable=False), blame="request")
REFUSED = http_failure("told", 401, b"", {})
BROKEN = broken("told", "broke")
STALE = broken("told", "idled", stale=True)


# failures one after the other -> the pauses before the next attempts, with all of the jitter
COURSES: list[tuple[dict[str, object], list[Failure], list[float | None]]] = [
    ({}, [BROKEN, BROKEN, BROKEN], [0.2, 0.4, None]),
    ({"max_retries": 0}, [BROKEN], [None]),
    ({"max_retries": 4, "retry_pause_s": 3.0}, [BROKEN] * 5, [3.0, 6.0, 10.0, 10.0, None]),
    ({}, [FINAL], [None]),
    ({}, [REFUSED], [None]),  # another backend may have a better key, at once
    ({}, [limit(1.5), limit(0.01), BROKEN], [1.5, 0.4, None]),
    ({}, [limit(2.5)], [None]),
    ({"max_retry_after_s": 3.0}, [limit(2.5)], [2.5]),
    ({}, [limit(None)], [0.2]),
    ({"max_retries": 0}, [STALE, STALE], [0.0, None]),
    ({"max_retries": 1}, [STALE, BROKEN, BROKEN], [0.0, 0.2, None]),
    ({"max_retries": 1}, [STALE, STALE, STALE], [0.0, 0.2, None]),
]


@pytest.mark.parametrize(("options", "failures", "pauses"), COURSES)
def test_courses(
    options: dict[str, object], failures: list[Failure], pauses: list[float | None]
) -> None:
    attempts = Attempts(make_options(**options))
    found = [attempts.pause_s(failure, has_tokens=False, chance=1.0) for failure in failures]
    assert found == pauses


def test_a_limit_without_a_wait_is_left_to_another_backend_that_stands_by() -> None:
    def pause_s(failure: Failure) -> float | None:
        attempts = Attempts(make_options(), has_spare=True)
        return attempts.pause_s(failure, has_tokens=False, chance=1.0)

    assert [pause_s(each) for each in (limit(None), limit(1.5), BROKEN)] == [None, 1.5, 0.2]


def test_behind_a_first_token_nothing_is_tried_again() -> None:
    attempts = Attempts(make_options(max_retries=9))
    assert attempts.pause_s(BROKEN, has_tokens=True, chance=0.5) is None
    assert attempts.pause_s(STALE, has_tokens=True, chance=0.5) is None


def test_pauses_differ_by_the_seed_alone() -> None:
    def course(seed: int) -> list[float | None]:
        chance, attempts = random.Random(seed), Attempts(make_options(max_retries=10))
        return [
            attempts.pause_s(BROKEN, has_tokens=False, chance=chance.random()) for _ in range(10)
        ]

    assert course(1) == course(1) != course(2)
    for number, pause_s in enumerate(course(3)):
        longest_s = min(MAX_PAUSE_S, 0.2 * 2**number)
        assert pause_s is not None
        assert longest_s / 2 <= pause_s <= longest_s
