"""Tests what counts as wrong, since when, and when it is over."""

import msgspec
import pytest

from gateway.live.problems import CONDITIONS, GATEWAY_REMEMBERED_S, ProblemWatch
from gateway.live.sample import BackendSample, GatewaySample
from tests.e2e.gateway_process import ROOT

ENGINE = BackendSample(
    name="gpu",
    group="deep",
    model="lanewise-deep",
    simulated=True,
    healthy=True,
    running=8,
    waiting=0,
    max_num_seqs=8,
    kv_used_tokens=0,
    kv_capacity_tokens=1,
    generated_tokens=0,
    prompt_tokens=0,
)
WELL = GatewaySample(
    at=100.0,
    workers=2,
    draining=False,
    pools="redis",
    num_gateways=2,
    keys_current=True,
    policy="v3",
    policy_source="store",
    shadow=0,
    running=0,
    connections=0,
    ended={},
    backends=[ENGINE],
    decisions=[],
)
DRAINED = msgspec.structs.replace(ENGINE, healthy=False, drained=True)
AWAY = msgspec.structs.replace(ENGINE, healthy=False)
FULL = msgspec.structs.replace(ENGINE, waiting=3)


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({}, []),
        ({"pools": "degraded"}, ["redis_away"]),
        ({"backends": [AWAY]}, ["engine_away gpu"]),
        ({"backends": [DRAINED]}, ["engine_drained gpu"]),  # and so may be stopped
        ({"backends": [FULL]}, ["engine_full gpu"]),
        ({"workers": 1}, ["worker_missing"]),
        ({"draining": True}, ["draining"]),
        ({"keys_current": False}, ["keys_stale"]),
        ({"keys_lost": True}, ["keys_lost"]),
        ({"policy_source": "last_good"}, ["policy_last_good"]),
        ({"num_gateways": 1}, ["gateway_gone"]),
        ({"num_gateways": 1, "pools": "degraded"}, ["redis_away"]),  # nobody can be counted then
        ({"backends": [FULL], "workers": 1}, ["worker_missing", "engine_full gpu"]),  # bad first
    ],
)
def test_a_condition_is_found_and_goes(changes: dict[str, object], names: list[str]) -> None:
    watch = ProblemWatch()
    assert watch.problems(2, WELL) == []
    now = msgspec.structs.replace(WELL, at=101.0, **changes)
    found = watch.problems(2, now)
    assert [problem.name for problem in found] == names
    assert all((problem.since, problem.is_older) == (101.0, False) for problem in found)
    still = watch.problems(2, msgspec.structs.replace(now, at=105.0))
    assert all(problem.since == 101.0 for problem in still)
    assert watch.problems(2, msgspec.structs.replace(WELL, at=106.0)) == []


def test_what_was_there_before_anybody_watched_may_be_older() -> None:
    (found,) = ProblemWatch().problems(2, msgspec.structs.replace(WELL, pools="degraded"))
    assert found.is_older


def test_a_gateway_that_was_taken_out_is_missed_for_a_while() -> None:
    watch = ProblemWatch()
    watch.problems(2, WELL)
    fewer = msgspec.structs.replace(WELL, at=WELL.at + 1, num_gateways=1)
    assert watch.problems(2, fewer)
    much_later = WELL.at + 1 + GATEWAY_REMEMBERED_S
    assert not watch.problems(2, msgspec.structs.replace(fewer, at=much_later))


def test_every_runbook_is_there() -> None:
    for condition in CONDITIONS:
        path, _, anchor = condition.runbook.partition("#")
        text = (ROOT / "docs" / path).read_text().lower()
        assert not anchor or f"## {anchor.replace('-', ' ')}" in text, condition.runbook
