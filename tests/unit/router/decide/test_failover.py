"""Tests who takes over from a backend that failed, and when nobody may."""

import pytest

from backends.contract import BackendError
from router.classify.task import Hints, Route, Task
from router.decide.failover import MAX_SPARES, MIN_STALL_US, replacement, silence_us, stall_us
from router.policy.policy import Policy, Rule
from tests.unit.router.decide.ranked_routes import ranked
from tests.unit.router.tasks import FAST_ONLY, backend, of_class, task


@pytest.mark.parametrize(
    ("spares", "failed", "retryable", "down", "expected"),
    [
        (("b", "c"), {"a"}, True, set(), "b"),
        (("b", "c"), {"a", "b"}, True, set(), "c"),
        (("b", "c"), {"a"}, True, {"b"}, "c"),
        (("b", "c"), {"a", "b", "c"}, True, set(), None),
        (("b", "c"), {"a"}, True, {"b", "c"}, None),
        (("b", "c"), {"a"}, False, set(), None),  # another would refuse it as well
        ((), {"a"}, True, set(), None),
    ],
)
def test_replacement(
    spares: tuple[str, ...],
    failed: set[str],
    retryable: bool,
    down: set[str],
    expected: str | None,
) -> None:
    error = BackendError("a", "server_error", "it broke", retryable=retryable)
    found = replacement(spares, failed, error, usable=lambda name: name not in down)
    assert found == expected


GROUP = (
    backend("gpu-0", "deep"),
    backend("gpu-1", "deep", running=3),
    backend("gpu-2", "deep", running=2),
    backend("gpu-3", "deep", running=1),
    backend("big-0", "deep", running=5, window_tokens=262_144, images=True),
    backend("big-1", "deep", running=6, window_tokens=262_144, images=True),
    backend("wafer-0", "fast"),
)


def test_spares_are_the_next_best_of_each_group() -> None:
    first = ranked(task(), of_class("uncertain"), GROUP)[0]
    assert first.backends == ("wafer-0", "gpu-0")
    assert first.spares == ((), ("gpu-3", "gpu-2"))
    assert MAX_SPARES == 2


@pytest.mark.parametrize(
    "asked",
    [
        task(hints=Hints(model="big-model")),
        task(prompt_tokens=200_000),
        task(has_images=True),
    ],
)
def test_spares_can_take_the_task(asked: Task) -> None:
    first = ranked(asked, of_class("deep"), GROUP)[0]
    assert (first.backends, first.spares) == (("big-0",), (("big-1",),))


def test_spares_keep_to_the_backends_that_a_policy_names() -> None:
    rule = Rule(name="two", route=Route.DEEP, backends=("gpu-1", "gpu-2"))
    first = ranked(task(), stats=GROUP, policy=Policy(rules=(rule,)))[0]
    assert (first.backends, first.spares) == (("gpu-2",), (("gpu-1",),))


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (task(), ("wafer-0", "gpu-0", "gpu-3")),
        (task(hints=Hints(route=Route.FAST)), ("wafer-0", "gpu-0", "gpu-3")),
        (task(hints=Hints(model="gpu-model")), ()),
        (task(tenant=FAST_ONLY), ("wafer-0",)),
    ],
    ids=["any", "a route", "a model", "no access"],
)
def test_who_may_go_on_with_an_answer(asked: Task, expected: tuple[str, ...]) -> None:
    first = ranked(asked, of_class("uncertain"), GROUP)[0]
    assert first.stand_ins == expected


def test_security_is_gone_on_with_on_deep_engines_alone() -> None:
    first = ranked(task(), of_class("interactive", security=True), GROUP)[0]
    assert first.stand_ins == ("gpu-0", "gpu-3")


@pytest.mark.parametrize(
    ("num_tokens", "duration_us", "expected"),
    [
        (1, 0, MIN_STALL_US),
        (11, 1_000_000, MIN_STALL_US),  # 0.1 s for a token
        (11, 2_000_000, 4_000_000),  # 0.2 s, 20 times
    ],
)
def test_a_stream_may_be_silent_for_20_of_its_tokens(
    num_tokens: int, duration_us: int, expected: int
) -> None:
    assert stall_us(num_tokens, duration_us) == expected


@pytest.mark.parametrize(
    ("late_words_us", "timeout_us", "num_prompt_tokens", "expected"),
    [
        (50_000, 20_000_000, 0, MIN_STALL_US),
        (500_000, 20_000_000, 0, 10_000_000),  # 20 times what 95 % take
        (500_000, 600_000_000, 0, 60_000_000),  # a tenth of what its options allow
        (50_000, 20_000_000, 24_000, MIN_STALL_US + 24_000_000),  # which it has to read
    ],
)
def test_an_engine_may_say_nothing_for_20_times_what_its_answers_take(
    late_words_us: float, timeout_us: int, num_prompt_tokens: int, expected: int
) -> None:
    assert silence_us(late_words_us, timeout_us, num_prompt_tokens) == expected
