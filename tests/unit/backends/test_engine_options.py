"""Options of the simulated backends reach their cost models, from a configuration's text on."""

import msgspec
import pytest

from backends import gpu, wafer
from backends.gpu import GpuBackend, GpuOptions
from backends.wafer import WaferBackend, WaferOptions

DRAFT = "\n[speculation]\ndraft_tokens = 3\nacceptance = 0.6\n"


def seen(module: object, name: str, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Keeps every cost model that a backend makes."""
    make, made = getattr(module, name), []

    def keep(*args: object, **named: object) -> object:
        made.append(make(*args, **named))
        return made[-1]

    monkeypatch.setattr(module, name, keep)
    return made


async def test_wafer_options_reach_the_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    made = seen(wafer, "WaferCost", monkeypatch)
    plain = WaferBackend(options=WaferOptions(shape="Llama-3.3-70B"))
    toml = 'shape = "Llama-3.3-70B"\nkv_bits = 8.0\nlink_latency_us = 50.0\n'
    toml += "attention_window_tokens = 4096" + DRAFT
    options = msgspec.toml.decode(toml, type=WaferOptions)
    other = WaferBackend(options=options)
    one, two = made
    assert two.limits.kv_capacity_tokens > 1.9 * one.limits.kv_capacity_tokens
    assert two.speculation == options.speculation != one.speculation
    assert two.growth_us(1) == 0 < one.growth_us(1)
    assert two.pass_us(4096) > one.pass_us(4096) + 100  # three crossings, 49 us more each
    await plain.close()
    await other.close()


async def test_gpu_options_reach_the_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    made = seen(gpu, "GpuCost", monkeypatch)
    toml = 'shape = "gpt-oss-120b"\ngpu = "H100"\ntp = 4\nengine = "trtllm_1_0"\n'
    plain = GpuBackend(options=msgspec.toml.decode(toml, type=GpuOptions))
    toml += 'expert_parallel = true\nkv_precision = "fp8"\nattention_window_tokens = 4096'
    options = msgspec.toml.decode(toml + DRAFT, type=GpuOptions)
    other = GpuBackend(options=options)
    one, two = made
    assert (one.parallel.expert_parallel, two.parallel.expert_parallel) == (False, True)
    assert (one.kv_bits, two.kv_bits) == (16, 8)
    assert two.speculation == options.speculation != one.speculation
    assert two.growth_us(1) == 0 < one.growth_us(1)
    await plain.close()
    await other.close()


async def test_a_window_that_no_context_reaches_is_refused() -> None:
    with pytest.raises(ValueError, match="no context reaches it"):
        GpuBackend(options=GpuOptions(attention_window_tokens=300_000))
    with pytest.raises(ValueError, match="no context reaches it"):
        WaferBackend(options=WaferOptions(attention_window_tokens=300_000))


@pytest.mark.parametrize(
    "draft", ["draft_tokens = -1\nacceptance = 0.5", "draft_tokens = 4\nacceptance = 1.5"]
)
def test_an_impossible_draft_is_refused_in_a_file(draft: str) -> None:
    with pytest.raises(msgspec.ValidationError, match="expected"):
        msgspec.toml.decode(f"[speculation]\n{draft}", type=WaferOptions)
