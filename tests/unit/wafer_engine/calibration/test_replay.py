"""Replays run the production engine; jumping over steps changes no time."""

import random

import pytest

from backends.gpu_engine.cost import GpuCost
from wafer_engine.calibration.replay import ReplaySummary, Request, replay, replay_closed
from wafer_engine.hardware.cost import WaferCost


def workload(seed: int, number: int, rate_us: float) -> list[Request]:
    rng = random.Random(seed)
    at_us, requests = 0.0, []
    for _ in range(number):
        at_us += rng.expovariate(1.0 / rate_us)
        requests.append(Request(int(at_us), rng.randint(1, 3000), rng.randint(1, 400)))
    return requests


@pytest.mark.parametrize("seed", range(4))
def test_jumps_change_nothing_even_under_preemption(seed: int) -> None:
    cost = GpuCost("H100", "Llama-3.1-8B", tp=1, kv_capacity_tokens=20_000, overhead_us=0)
    requests = workload(seed, 60, 20_000)
    jumping = replay(cost, requests)
    stepping = replay(cost, requests, max_run_steps=1)
    for one, other in zip(jumping, stepping, strict=True):
        # Timestamps are whole microseconds.
        assert one.last_token_us == pytest.approx(other.last_token_us, abs=1), f"seed {seed}"
        assert one.first_token_us == pytest.approx(other.first_token_us, abs=1), f"seed {seed}"


def test_one_request_alone_takes_what_the_cost_model_says() -> None:
    cost = WaferCost("Llama-3.1-8B", overhead_us=5000)
    (only,) = replay(cost, [Request(1_000_000, 1000, 2001)])
    assert only.ttft_us == pytest.approx(5000 + 8_000, rel=0.5)
    assert 1e6 / only.tpot_us == pytest.approx(cost.tokens_per_s(2000), rel=0.01)
    assert only.latency_us == only.last_token_us - 1_000_000


def test_summary_means() -> None:
    cost = WaferCost("Llama-3.1-8B", overhead_us=0)
    times = replay(cost, workload(5, 40, 100_000))
    summary = ReplaySummary.of(times)
    assert summary.num_requests == 40
    assert summary.mean_latency_us > summary.mean_ttft_us > 0
    assert summary.output_tokens_per_s > 0


def test_closed_users_send_again_when_answered() -> None:
    cost = GpuCost("H100", "Llama-3.1-8B", tp=1, overhead_us=0)
    times = replay_closed(cost, Request(0, 500, 50), num_users=4, num_requests=12)
    assert len(times) == 12
    assert sum(time.request.arrived_us == 0 for time in times) == 4
    ends = {time.last_token_us for time in times}
    assert all(time.request.arrived_us in ends for time in times[4:])


def test_a_request_beyond_the_cache_is_refused() -> None:
    cost = GpuCost("H100", "Llama-3.1-8B", tp=1, kv_capacity_tokens=1000)
    with pytest.raises(ValueError, match="exceed the KV cache"):
        replay(cost, [Request(0, 900, 200)])
