"""Builds arrivals, fleets and tenants for back-tests, small enough to be read."""

import random
from collections.abc import Sequence
from typing import Any

import msgspec

from backends.contract import BackendGroup, BackendInfo
from router.backtest.arrivals import AnswerLength, Arrival
from router.backtest.fleet import EngineFleet, EngineMachine
from router.backtest.results import TaskResult, Totals
from router.backtest.simulation import Scenario, simulate
from router.classify.task import GroupLimits, Tenant
from router.policy.policy import DEFAULT_POLICY
from tests.unit.wafer_engine.affine_cost import AffineCost

START_US = 1_750_000_000_000_000
WIDE = GroupLimits(requests_per_min=100_000, tokens_per_min=100_000_000, max_concurrent=10_000)


def machine(name: str, group: BackendGroup, **more: Any) -> EngineMachine:
    """Returns an engine whose steps take a few milliseconds."""
    info = BackendInfo(
        name=name,
        model=f"lanewise-{group}",
        group=group,
        window_tokens=32_768,
        max_output_tokens=8_192,
    )
    return EngineMachine(info=info, cost=AffineCost(), **more)


def fleet(*deep: str) -> EngineFleet:
    """Returns one fast engine, and as many deep ones as there are names."""
    names = deep or ("gpu",)
    return EngineFleet((machine("wafer", "fast"), *(machine(name, "deep") for name in names)))


def tenant(name: str = "studio", **limits: Any) -> Tenant:
    """Returns a tenant whose pools are wide, but for those given."""
    return Tenant(
        id=name,
        tier="standard",
        limits={
            "fast": limits.get("fast", WIDE),
            "deep": limits.get("deep", WIDE),
        },
    )


def arrival(number: int, at_ms: float = 0.0, **more: Any) -> Arrival:
    """Returns one task; what is not given is a short interactive ask."""
    given: dict[str, Any] = {
        "id": f"resp_{number}",
        "at_us": START_US + round(at_ms * 1_000),
        "tenant": "studio",
        "prompt_tokens": 100,
        "max_output_tokens": 4_096,
        "p_deep": 0.05,
        "expected_output_tokens": 50,
        "lengths": (("fast", AnswerLength(50)), ("deep", AnswerLength(50))),
    }
    return Arrival(**given | more)


def crowd(seed: int, number: int = 200, per_s: float = 20.0) -> list[Arrival]:
    """Returns random tasks of all classes."""
    chance = random.Random(seed)
    found, at_ms = [], 0.0
    for index in range(number):
        at_ms += chance.expovariate(per_s) * 1_000
        tokens = chance.randint(2, 300)
        found.append(
            arrival(
                index,
                at_ms,
                prompt_tokens=chance.randint(10, 2_000),
                p_deep=chance.random(),
                lengths=(("fast", AnswerLength(tokens)), ("deep", AnswerLength(tokens))),
                left_us=chance.choice([0, 0, 0, 50_000]),
            )
        )
    return found


def played(arrivals: Sequence[Arrival], **more: Any) -> tuple[list[TaskResult], Totals]:
    """Runs arrivals under the default policy, or what else is given; results by arrival."""
    given: dict[str, Any] = {
        "policy": DEFAULT_POLICY,
        "fleet": fleet(),
        "tenants": {"studio": tenant()},
    }
    results: list[TaskResult] = []
    totals = simulate(arrivals, Scenario(**given | more), results.append)
    return sorted(results, key=lambda result: result.index), totals


def one(arrivals: Sequence[Arrival], **more: Any) -> TaskResult:
    """Returns the result of a single arrival."""
    (result,), _ = played(arrivals, **more)
    return result


def changed(arrivals: Sequence[Arrival], **more: Any) -> list[Arrival]:
    """Returns the same arrivals with other fields."""
    return [msgspec.structs.replace(each, **more) for each in arrivals]
