"""Tests what metrics show of a prediction: what came of the policy in force, and no other."""

from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from gateway.admin.backtest import check_prediction
from gateway.backtest.inquiry import Inquiry
from gateway.http.services import Services
from gateway.metrics.metrics import Metrics
from router.comparison.prediction import (
    CheckedFigure,
    PolicyPrediction,
    PredictionCheck,
    TakenForGranted,
)
from router.comparison.statistics import Slo

TAKEN = TakenForGranted(
    tasks_per_s=1.0, prompt_tokens=10.0, output_tokens=10.0, tpot_ms=None, overhead_ms=1.0
)
PREDICTION = PolicyPrediction(
    policy="v7", made_s=0.0, num_tasks=50, slo=Slo(), figures={}, conditions=TAKEN
)
FEWER = CheckedFigure(
    figure="slo_met",
    predicted=0.9,
    low=0.8,
    high=1.0,
    came=0.5,
    error_ratio=-0.4,
    interval_ratio=0.1,
    within=False,
)
FOUND = PredictionCheck(
    policy="v7", made_s=0.0, num_tasks=50, figures=(FEWER,), causes=(), within=False, text=()
)


class Gateway:
    """As much of one as a check of its policy asks for."""

    def __init__(self, path: str | None) -> None:
        self.version = 7
        self.found: PredictionCheck | None = FOUND
        self.metrics = Metrics(version="1", backends=tuple)
        recorder = SimpleNamespace(is_writing=True)
        self.services = cast(
            Services,
            SimpleNamespace(
                policies=SimpleNamespace(current=self, store=self),
                config=SimpleNamespace(recording=SimpleNamespace(path=path)),
                gw=SimpleNamespace(metrics=self.metrics, recorder=recorder),
                backtests=self,
            ),
        )

    async def prediction(self, number: int) -> bytes | None:
        return msgspec.json.encode(PREDICTION) if number == 7 else None

    async def call(self, call: Any, inquiry: Inquiry, prediction: PolicyPrediction) -> Any:
        assert prediction == PREDICTION
        return self.found

    async def shown(self) -> tuple[float, float]:
        await check_prediction(self.services)
        names = ("lanewise_backtest_error_ratio", "lanewise_backtest_interval_ratio")
        error, interval = (self.metrics.counts[name]["slo_met",].value for name in names)
        return error, interval


@pytest.mark.parametrize("path", ["log.jsonl", "log.jsonl.worker-1"])
async def test_a_policy_that_is_not_in_force_any_more_is_not_blamed(path: str) -> None:
    gateway = Gateway(path)
    assert await gateway.shown() == (-0.4, 0.1)
    gateway.version = 8  # applied without a prediction
    assert await gateway.shown() == (0.0, 0.0)
    gateway.version = 7
    assert await gateway.shown() == (-0.4, 0.1)
    gateway.version = 0  # rolled back to what is configured
    assert await gateway.shown() == (0.0, 0.0)
    gateway.version, gateway.found = 7, None  # too few tasks since
    assert await gateway.shown() == (0.0, 0.0)


@pytest.mark.parametrize("path", [None, "log.jsonl.worker-2", "log.jsonl.worker-11"])
async def test_who_keeps_no_log_of_all_tasks_says_nothing(path: str | None) -> None:
    assert await Gateway(path).shown() == (0.0, 0.0)
