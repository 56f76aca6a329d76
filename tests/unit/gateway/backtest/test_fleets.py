"""Tests the engines of a back-test: simulated ones as configured, others as a log measured."""

import msgspec
import pytest

from backends.simulated.gpu import GpuBackendConfig, GpuOptions
from backends.simulated.wafer import WaferBackendConfig
from backends.upstream.backend import UpstreamBackendConfig
from backends.upstream.options import UpstreamOptions
from gateway.backtest.fleets import Speeds, fleet_of, fleet_of_settings
from router.record.recording import DecisionRecord, EngineSettings
from router.record.seen import GenerationRecord
from wafer_engine.batching.cost_model import StepShape

SERVER = UpstreamBackendConfig(
    name="vllm",
    options=UpstreamOptions(
        model="big",
        base_url="http://127.0.0.1:8000/v1",
        upstream_model="big",
        group="deep",
        accepts_images=True,
    ),
)


def measured(number: int = 20) -> Speeds:
    """Answers at 20 ms a token, behind 30 ms and 0.1 ms for each prompt token."""
    speeds = Speeds()
    for index in range(number):
        prompt = 100 + 50 * index
        first_ms = 30 + 0.1 * prompt
        generation = GenerationRecord(
            backend="vllm",
            part="answer",
            state="finished",
            started_ms=0.0,
            first_ms=first_ms,
            last_ms=first_ms + 20 * 49,
            input_tokens=prompt,
            cached_tokens=0,
            output_tokens=50,
            reasoning_tokens=0,
        )
        speeds.take(
            DecisionRecord(
                id=f"resp_{index}",
                at=1.0,
                tenant="t",
                tier="t",
                model="auto",
                outcome="ok",
                duration_ms=1.0,
                generations=(generation,),
            )
        )
    return speeds


def test_a_server_takes_what_was_measured() -> None:
    (machine,) = fleet_of([SERVER], measured()).machines
    assert (machine.info.group, machine.info.accepts_images) == ("deep", True)
    decode = StepShape(4, 1_000)
    assert machine.cost.step_us(decode) == pytest.approx(20_000, rel=0.01)
    prefill = StepShape(0, 0, 1_000, 1_000)
    assert machine.cost.step_us(prefill) == pytest.approx(100_000, rel=0.02)
    assert machine.cost.limits.overhead_us == pytest.approx(30_000, rel=0.05)


def test_a_server_that_was_not_measured_is_named() -> None:
    with pytest.raises(ValueError, match="backend 'vllm' is a server whose engine is not known"):
        fleet_of([SERVER], measured(3))


def test_simulated_engines_are_as_the_log_says() -> None:
    options = GpuOptions(max_num_seqs=7, window_tokens=4_096)
    fleet = fleet_of([WaferBackendConfig(), GpuBackendConfig("gpu", options)], Speeds())
    settings = [
        EngineSettings(
            "wafer",
            "wafer",
            fleet.machines[0].info,
            msgspec.to_builtins(WaferBackendConfig().options),
        ),
        EngineSettings("gpu", "gpu", fleet.machines[1].info, msgspec.to_builtins(options)),
    ]
    again = fleet_of_settings(settings, Speeds())
    assert [machine.info for machine in again.machines] == [m.info for m in fleet.machines]
    assert again.machines[1].cost.limits.max_num_seqs == 7
