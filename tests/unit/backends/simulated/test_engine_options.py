"""Options of the simulated backends reach their cost models, from a configuration's text on."""

import msgspec
import pytest

from backends.simulated import gpu, wafer
from backends.simulated.gpu import GpuOptions
from backends.simulated.wafer import WaferOptions

DRAFT = "\n[speculation]\ndraft_tokens = 3\nacceptance = 0.6\n"


def test_wafer_options_reach_the_cost() -> None:
    toml = 'shape = "Llama-3.3-70B"\nnum_wafers = 4\n'
    one = wafer.cost_of(msgspec.toml.decode(toml, type=WaferOptions))
    toml += "kv_bits = 8.0\nlink_latency_us = 50.0\nattention_window_tokens = 4096"
    options = msgspec.toml.decode(toml + DRAFT, type=WaferOptions)
    two = wafer.cost_of(options)
    assert two.limits.kv_capacity_tokens > 1.9 * one.limits.kv_capacity_tokens
    assert two.speculation == options.speculation != one.speculation
    assert two.growth_us(1) == 0 < one.growth_us(1)
    assert two.pass_us(4096) > one.pass_us(4096) + 100  # three crossings, 49 us more each


def test_a_wafer_backend_takes_as_many_wafers_as_hold_its_window() -> None:
    small, large = (
        wafer.cost_of(WaferOptions(shape="Llama-3.3-70B", window_tokens=window))
        for window in (32_768, 131_072)
    )
    assert small.num_wafers == 4 < large.num_wafers
    assert small.limits.kv_capacity_tokens < 131_072 <= large.limits.kv_capacity_tokens


def test_gpu_options_reach_the_cost() -> None:
    toml = 'shape = "gpt-oss-120b"\ngpu = "H100"\ntp = 4\nengine = "trtllm_1_0"\n'
    one = gpu.cost_of(msgspec.toml.decode(toml, type=GpuOptions))
    toml += 'expert_parallel = true\nkv_precision = "fp8"\nattention_window_tokens = 4096'
    options = msgspec.toml.decode(toml + DRAFT, type=GpuOptions)
    two = gpu.cost_of(options)
    assert (one.parallel.expert_parallel, two.parallel.expert_parallel) == (False, True)
    assert (one.kv_bits, two.kv_bits) == (16, 8)
    assert two.speculation == options.speculation != one.speculation
    assert two.growth_us(1) == 0 < one.growth_us(1)


def test_a_window_that_no_context_reaches_is_refused() -> None:
    with pytest.raises(ValueError, match="no context reaches it"):
        gpu.cost_of(GpuOptions(attention_window_tokens=300_000))
    with pytest.raises(ValueError, match="no context reaches it"):
        wafer.cost_of(WaferOptions(attention_window_tokens=300_000))


@pytest.mark.parametrize(
    "draft", ["draft_tokens = -1\nacceptance = 0.5", "draft_tokens = 4\nacceptance = 1.5"]
)
def test_an_impossible_draft_is_refused_in_a_file(draft: str) -> None:
    with pytest.raises(msgspec.ValidationError, match="expected"):
        msgspec.toml.decode(f"[speculation]\n{draft}", type=WaferOptions)
