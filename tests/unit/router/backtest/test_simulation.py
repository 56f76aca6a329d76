"""Tests a simulated gateway: what it decides, how long tasks take, and that its pools balance."""

import gc
import tracemalloc

import pytest

from backends.contract import Usage
from router.backtest.arrivals import AnswerLength
from router.backtest.branch import PlayedBranch
from router.backtest.fleet import Outage
from router.backtest.life import Life
from router.backtest.run import PlayedRun
from router.backtest.simulation import Scenario, simulate
from router.classify.task import GroupLimits, Hints, Route
from router.policy.policy import DEFAULT_POLICY, parse_policy
from router.waiting.capacity import CapacityBounds
from router.waiting.rules import AdaptationConfig, WaitingConfig
from tests.unit.router.backtest.scenes import (
    START_US,
    arrival,
    changed,
    crowd,
    fleet,
    one,
    played,
    tenant,
)

# On top of arrivals and results; cycles that wait for the collector take thousands.
MAX_BYTES_PER_TASK = 500


def asked(route: str, **more: str) -> Hints:
    return Hints(route=Route(route), **more)  # type: ignore[arg-type]


def test_a_task_takes_what_its_engine_takes() -> None:
    result = one([arrival(0)])
    assert (result.route, result.backends, result.outcome) == ("fast", ("wafer",), "ok")
    assert result.usage == (("wafer", Usage(100, 0, 50)),)
    assert result.cost == 150
    assert result.ttft_us is not None
    assert result.tpot_us is not None
    expected_us = result.ttft_us + 49 * result.tpot_us
    assert result.duration_us == pytest.approx(expected_us, abs=2)


def test_the_gateways_own_time_comes_on_top() -> None:
    plain = one([arrival(0)])
    slower = one([arrival(0)], overhead_us=1_000, delivery_us=500, ending_us=700)
    assert slower.ttft_us is not None
    assert plain.ttft_us is not None
    assert slower.ttft_us - plain.ttft_us == 1_500
    assert slower.duration_us - plain.duration_us == 1_700


def test_a_task_that_queues_behind_its_stream_holds_up_no_other() -> None:
    alone = one([arrival(0)]).duration_us
    (queued, other), _ = played([arrival(0, queued_us=5_000_000), arrival(1, 10.0)])
    assert queued.duration_us - 5_000_000 == pytest.approx(alone, abs=2)
    assert other.duration_us == pytest.approx(alone, abs=2)


def test_the_same_arrivals_come_to_the_same_results() -> None:
    arrivals = crowd(7)
    assert played(arrivals) == played(arrivals)


@pytest.mark.parametrize("strategy", ["hedge", "verify", "breadth", "delegate", "draft", "advise"])
@pytest.mark.parametrize("seed", range(3))
def test_every_task_ends_once_and_every_reservation_is_settled(strategy: str, seed: int) -> None:
    """The tenant may run six at once; were one slot kept, later tasks would find fewer."""
    tight = GroupLimits(requests_per_min=100_000, tokens_per_min=10_000_000, max_concurrent=6)
    policy = parse_policy(f'strategy = "{strategy}"\n[wait_ms]\ndeep = 500'.encode())
    outages = (Outage("gpu", START_US + 2_000_000, START_US + 2_500_000),)
    machines = fleet("gpu", "gpu-2")
    scene = {
        "policy": policy,
        "tenants": {"studio": tenant(fast=tight, deep=tight)},
        "fleet": type(machines)(machines.machines, outages),
    }
    arrivals = crowd(seed)
    late = 600_000.0  # ms; long after all others
    after = [arrival(1_000 + n, late, hints=asked("deep")) for n in range(6)]
    results, totals = played([*arrivals, *after], **scene)
    assert [result.index for result in results] == list(range(len(arrivals) + 6)), seed
    assert totals.num_tasks == len(results)
    assert [result.outcome for result in results[-6:]] == ["ok"] * 6, "all slots are free again"
    assert {result.outcome for result in results} <= {"ok", "rate_limited", "cancelled", "error"}


@pytest.mark.parametrize("strategy", ["", "hedge", "verify", "delegate"])
def test_tasks_that_ended_leave_no_cycles_behind(strategy: str) -> None:
    hints = Hints(strategy=strategy) if strategy else Hints()
    arrivals = changed(crowd(3), hints=hints)
    gc.collect()
    gc.disable()
    try:
        played(arrivals)
        kinds = (Life, PlayedRun, PlayedBranch)
        left = sum(isinstance(each, kinds) for each in gc.get_objects())
    finally:
        gc.enable()
    assert left == 0, f"{left} objects of {len(arrivals)} tasks wait for the cycle collector"


def test_a_task_takes_few_bytes() -> None:
    arrivals = crowd(3, number=1_000)
    scenario = Scenario(policy=DEFAULT_POLICY, fleet=fleet("gpu"), tenants={"studio": tenant()})
    simulate(arrivals[:50], scenario, lambda result: None)  # fills what is kept but once
    gc.collect()
    gc.disable()
    tracemalloc.start(1)
    try:
        simulate(arrivals, scenario, lambda result: None)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    assert peak_bytes / len(arrivals) < MAX_BYTES_PER_TASK


def test_a_hedge_joins_when_deep_is_late() -> None:
    hints = Hints(strategy="hedge", strategy_options={"hedge_after_ms": 1})
    ask = arrival(0, hints=hints, prompt_tokens=20_000)
    result = one([ask])
    assert result.strategy == "hedge"
    assert {name for name, _ in result.usage} == {"wafer", "gpu"}


def test_full_pools_refuse_or_are_waited_for() -> None:
    single = GroupLimits(requests_per_min=1_000, tokens_per_min=1_000_000, max_concurrent=1)
    tenants = {"studio": tenant(fast=single)}
    pair = changed([arrival(0), arrival(1, 1.0)], hints=asked("fast"))
    (first, refused), _ = played(pair, tenants=tenants)
    assert (first.outcome, refused.outcome) == ("ok", "rate_limited")
    assert refused.limited_by == ("fast", "concurrent")
    (first, waited), _ = played(
        pair, tenants=tenants, waiting=WaitingConfig(wait_ms={"fast": 60_000})
    )
    assert waited.outcome == "ok"
    assert waited.waited_for == "fast"
    assert waited.waited_us == pytest.approx(first.duration_us - 1_000, abs=2)


def test_an_engine_that_breaks_is_replaced_and_its_words_are_kept() -> None:
    ask = arrival(0, hints=asked("deep"), lengths=(("deep", AnswerLength(400)),))
    whole = one([ask], fleet=fleet("gpu-1", "gpu-2"))
    broken_us = START_US + whole.duration_us // 2
    machines = fleet("gpu-1", "gpu-2")
    out = type(machines)(machines.machines, (Outage("gpu-1", broken_us, broken_us + 1),))
    result = one([ask], fleet=out)
    assert result.outcome == "ok"
    assert result.answered_by == "gpu-2"
    assert [name for name, _ in result.usage] == ["gpu-1", "gpu-2"]
    assert result.output_tokens >= 400


def test_a_client_that_leaves_ends_its_task() -> None:
    result = one([arrival(0, lengths=(("fast", AnswerLength(4_000)),), left_us=30_000)])
    assert (result.outcome, result.duration_us) == ("cancelled", 30_000)
    assert 0 < result.output_tokens < 4_000


def test_a_turn_finds_its_prefix_and_its_engine_and_comes_after_the_answer() -> None:
    first = arrival(0, prefix=((1, 100),), end_prefix=(2, 150))
    then = arrival(
        1,
        1.0,
        turns=2,
        prompt_tokens=400,
        prefix=((1, 100), (2, 150), (3, 400)),
        follows=0,
        think_us=5_000,
        hints=asked("fast"),
    )
    (before, after), totals = played([first, then])
    assert after.at_us == before.at_us + before.duration_us + 5_000
    ((name, usage),) = after.usage
    assert name == "wafer"
    assert usage.num_cached_tokens == 144, "the full blocks of what the last turn left"
    assert totals.engines[0].cached_tokens == 144


def test_a_stranger_is_refused_and_the_window_is_kept() -> None:
    assert one([arrival(0, tenant="nobody")]).outcome == "invalid"
    assert one([arrival(0, prompt_tokens=40_000)]).outcome == "invalid"


def test_a_slower_and_a_smaller_fleet() -> None:
    ask = [arrival(0, hints=asked("deep"))]
    usual = one(ask)
    half = one(ask, fleet=fleet().slowed({"gpu": 0.5}))
    assert half.tpot_us == pytest.approx(2 * (usual.tpot_us or 0), rel=0.01)
    without = one([arrival(0, p_deep=0.9)], fleet=fleet().without(frozenset({"gpu"})))
    assert without.backends == ("wafer",)
    with pytest.raises(ValueError, match="no backend tpu; there are gpu, wafer"):
        fleet().slowed({"tpu": 0.5})
    with pytest.raises(ValueError, match="no backend would be left"):
        fleet().without(frozenset({"gpu", "wafer"}))


def test_a_ceiling_is_of_all_tenants_and_its_slots_come_back() -> None:
    tenants = {name: tenant(name) for name in ("studio", "shop")}
    pair = changed([arrival(0), arrival(1, 1.0, tenant="shop")], hints=asked("fast"))
    later = arrival(2, 60_000.0, tenant="shop", hints=asked("fast"))
    (first, refused, after), _ = played([*pair, later], tenants=tenants, ceilings={"fast": 1})
    assert [each.outcome for each in (first, refused, after)] == ["ok", "rate_limited", "ok"]
    assert refused.limited_by == ("fast", "concurrent")
    elsewhere, _ = played(changed(pair, hints=Hints()), tenants=tenants, ceilings={"fast": 1})
    assert [each.route for each in elsewhere] == ["fast", "deep"], "the next route is open"


@pytest.mark.parametrize("strategy", ["hedge", "verify", "breadth", "delegate"])
def test_every_slot_of_a_ceiling_is_given_back_once(strategy: str) -> None:
    policy = parse_policy(f'strategy = "{strategy}"\n[wait_ms]\nfast = 500\ndeep = 500'.encode())
    after = [arrival(1_000 + n, 600_000.0, hints=asked("deep")) for n in range(7)]
    ceilings = {"fast": 6, "deep": 6}
    results, _ = played([*crowd(5, 200, 400.0), *after], policy=policy, ceilings=ceilings)
    assert any(result.limited_by or result.waited_us for result in results), "they fill up"
    outcomes = [result.outcome for result in results[-7:]]
    # The seventh waits until one of them ends, or is refused: there are six, no more and no less.
    assert outcomes[:6] == ["ok"] * 6
    assert results[-1].waited_us or outcomes[-1] == "rate_limited"


def test_capacity_that_adapts_sheds() -> None:
    bounds = CapacityBounds(min_concurrent=1, max_concurrent=2)
    adaptation = AdaptationConfig({"fast": bounds, "deep": bounds})
    results, _ = played(crowd(3, 400, 200.0), adaptation=adaptation)
    assert {"ok", "shed"} <= {result.outcome for result in results}
    assert ("fast", "concurrent") in {result.limited_by for result in results}
