"""Tests the GPU roofline: its shape, its limits, its options."""

import random

import pytest

from backends.gpu_engine.constants import ENGINES, GpuConstants, find_engine
from backends.gpu_engine.cost import GpuCost
from backends.gpu_engine.spec import GPUS, LINKS, PRECISIONS, find_gpu, find_precision
from wafer_engine.batching.cost_model import StepShape
from wafer_engine.batching.speculation import Speculation
from wafer_engine.hardware.cost import WaferCost


def prefill(tokens: int) -> StepShape:
    return StepShape(0, 0, tokens, tokens * (tokens + 1) // 2)


def test_the_default_pair_gives_the_headline() -> None:
    deep, fast = GpuCost(), WaferCost()
    assert (deep.model.name, deep.gpu.name, deep.parallel.tp) == (
        "Llama-3.3-70B",
        "H200-141GB-SXM",
        2,
    )
    assert 65 <= deep.tokens_per_s(1024) <= 70
    assert fast.tokens_per_s(1024) > 1000
    assert fast.tokens_per_s(1024) / deep.tokens_per_s(1024) == pytest.approx(17, abs=1)


def test_pure_decode_is_affine_in_context_and_growth_is_its_slope() -> None:
    seed = 31
    rng = random.Random(seed)
    costs = [
        GpuCost(),
        GpuCost("A100", "Llama-2-70B", tp=4, precision="fp16", engine="vllm_2023"),
        GpuCost("H200", "DeepSeek-R1", tp=8, precision="fp8", engine="trtllm_1_0"),
        GpuCost("B200", "gpt-oss-120b", tp=2, precision="fp4", engine="trtllm_1_0"),
        GpuCost("H200", speculation=Speculation(3, 0.7, 0.05)),
        GpuCost("H200", attention_window_tokens=4096),
    ]
    for _ in range(200):
        cost = rng.choice(costs)
        seqs, context = rng.randint(1, 300), rng.randint(1, 500_000)
        first = cost.step_us(StepShape(seqs, context))
        second = cost.step_us(StepShape(seqs, context + seqs))
        message = f"seed {seed}: {cost.model.name}, {seqs} sequences"
        assert second - first == pytest.approx(cost.growth_us(seqs), abs=1e-6), message
        assert cost.growth_us(seqs) >= 0, message


def test_four_bit_floats_are_widened_on_cards_without_their_units() -> None:
    hopper = {name: GpuCost("H200", precision=name) for name in ("fp4", "mxfp4", "fp8", "bf16")}
    assert hopper["fp4"].step_us(prefill(8192)) == hopper["mxfp4"].step_us(prefill(8192))
    assert hopper["fp4"].step_us(prefill(8192)) > 1.5 * hopper["fp8"].step_us(prefill(8192))
    native = {name: GpuCost("B200", precision=name) for name in ("fp4", "fp8")}
    assert native["fp4"].step_us(prefill(8192)) < native["fp8"].step_us(prefill(8192))


@pytest.mark.parametrize("engine", ["vllm_0_7", "vllm_0_19", "vllm_0_20", "vllm_2023"])
@pytest.mark.parametrize("num_seqs", [1, 32, 128])
def test_a_newer_card_is_no_slower_for_want_of_its_own_constants(
    engine: str, num_seqs: int
) -> None:
    older, newer = (
        GpuCost(gpu, "Llama-3.1-70B", tp=4, precision="fp8", engine=engine)
        for gpu in ("H200", "B200")
    )
    assert newer.tokens_per_s(1024, num_seqs) >= older.tokens_per_s(1024, num_seqs)
    assert "taken over from" in newer.fit.basis


@pytest.mark.parametrize(
    ("gpu", "source"),
    [("H20", "H100-80GB-SXM"), ("H800", "H100-80GB-SXM"), ("L40S", "RTX-4090"), ("B200", "H200")],
)
def test_cards_without_constants_take_the_nearest_ones(gpu: str, source: str) -> None:
    cost = GpuCost(gpu, "Llama-3.1-8B", tp=1, precision="fp8", engine="vllm_0_7")
    assert f"taken over from {source}" in cost.fit.basis


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("h100", "H100-80GB-SXM"),
        ("NVIDIA H100 80GB SXM", "H100-80GB-SXM"),
        ("NVIDIA H100 80GB HBM3", "H100-80GB-SXM"),
        ("A100-SXM4-40GB", "A100-40GB-SXM"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
        ("rtx_pro_6000", "RTX-PRO-6000"),
        ("NVIDIA L40S", "L40S"),
        ("h20", "H20-96GB-SXM"),
        ("gb200", "GB200-NVL72"),
        ("A100-80GB-PCIE", "A100-80GB-PCIe"),
    ],
)
def test_cards_are_found_as_people_spell_them(spelling: str, name: str) -> None:
    assert find_gpu(spelling) is GPUS[name]


@pytest.mark.parametrize(
    ("spelling", "name"),
    [("FP8", "fp8"), ("BF16", "bf16"), ("NVFP4", "fp4"), ("awq", "w4a16"), ("Q4_K_M", "q4_k_m")],
)
def test_precisions_have_the_names_that_engines_give_them(spelling: str, name: str) -> None:
    assert find_precision(spelling) == PRECISIONS[name]


def test_batch_context_and_prompts_slow_a_step() -> None:
    cost = GpuCost()
    alone = cost.tokens_per_s(1024)
    assert alone > cost.tokens_per_s(1024, 16) > cost.tokens_per_s(1024, 128)
    assert 128 * cost.tokens_per_s(1024, 128) > 30 * alone
    assert cost.tokens_per_s(64_000) < 0.95 * alone
    assert cost.step_us(prefill(8192)) > 6 * cost.step_us(prefill(1024))


@pytest.mark.parametrize(("one", "other"), [("A100", "H100"), ("H100", "H200"), ("H200", "B200")])
def test_newer_cards_are_faster(one: str, other: str) -> None:
    engine = "trtllm_0_17"
    slow, fast = (
        GpuCost(gpu, "Llama-3.3-70B", tp=4, engine=engine).tokens_per_s(1024, 8)
        for gpu in (one, other)
    )
    assert fast > slow


def test_tensor_parallel_gains_less_than_it_spreads() -> None:
    speeds = [GpuCost("H200", tp=tp).tokens_per_s(1024) for tp in (2, 4, 8)]
    assert speeds[0] < speeds[1] < speeds[2]
    assert speeds[1] / speeds[0] < 2.0
    assert speeds[2] / speeds[1] < speeds[1] / speeds[0]


def test_pipeline_parallel_adds_memory_not_latency() -> None:
    one, two = GpuCost("H200", tp=4), GpuCost("H200", tp=4, pp=2)
    assert two.tokens_per_s(1024) == pytest.approx(one.tokens_per_s(1024), rel=0.1)
    assert two.limits.kv_capacity_tokens > 2 * one.limits.kv_capacity_tokens
    assert two.step_us(prefill(8192)) < 0.7 * one.step_us(prefill(8192))


def test_leaving_the_link_domain_costs() -> None:
    options = {"precision": "fp8", "engine": "trtllm_1_0"}
    inside = GpuCost("GB200-NVL72", "Llama-3.1-405B", tp=16, **options)
    outside = GpuCost("B200", "Llama-3.1-405B", tp=16, **options)
    assert outside.step_us(prefill(8192)) > 1.1 * inside.step_us(prefill(8192))
    # Not as if every byte crossed the network: each GPU's port carries an eighth of an activation.
    moved = 2 * 126 * 8192 * 16_384 * 2  # two allreduces a layer
    share = LINKS[outside.gpu.link].share
    link, port = share * 900e9, share * 50e9
    expected_us = (2 * 7 / 8 * moved / link + 2 * 1 / 2 * moved / 8 / port) * 1e6
    expected_us -= 2 * 15 / 16 * moved / link * 1e6  # of the allreduce inside
    difference_us = outside.step_us(prefill(8192)) - inside.step_us(prefill(8192))
    assert difference_us == pytest.approx(expected_us, rel=1e-6)


def test_two_servers_decode_faster_than_one() -> None:
    options = {"precision": "fp8", "engine": "trtllm_1_0"}
    one, two = (GpuCost("B200", "Llama-3.1-405B", tp=tp, **options) for tp in (8, 16))
    assert two.tokens_per_s(1024) > one.tokens_per_s(1024)


def test_experts_out_of_the_domain_wait_for_the_network() -> None:
    options = {"precision": "fp8", "engine": "trtllm_1_0", "tp": 1, "dp": 16}
    options["expert_parallel"] = True
    inside, outside = (GpuCost(gpu, "DeepSeek-R1", **options) for gpu in ("GB200-NVL72", "B200"))
    assert outside.step_us(prefill(65_536)) > inside.step_us(prefill(65_536))


def test_experts_in_parallel() -> None:
    options = {"precision": "fp8", "engine": "trtllm_1_0"}
    cut = GpuCost("H200", "Qwen3-235B-A22B", tp=8, **options)
    spread = GpuCost("H200", "Qwen3-235B-A22B", tp=1, dp=8, expert_parallel=True, **options)
    # Four KV heads cannot be cut over eight GPUs; replicas hold twice as many sequences.
    assert spread.limits.kv_capacity_tokens > 1.5 * cut.limits.kv_capacity_tokens
    assert spread.step_us(StepShape(256, 256_000)) > 0
    # A lone token touches 8 of 128 experts, a full batch all of them.
    light = GpuCost("H200", "Qwen3-235B-A22B", tp=8, precision="fp8")
    lone, full = light.step_us(StepShape(1, 1000)), light.step_us(StepShape(512, 1000))
    assert full > 2 * lone


def test_latent_attention_keeps_more_tokens() -> None:
    latent = GpuCost("H200", "DeepSeek-R1", tp=8, precision="fp8", engine="trtllm_1_0")
    grouped = GpuCost("H200", "Qwen3-Coder-480B-A35B", tp=8, precision="fp8", engine="trtllm_1_0")
    assert latent.model.kv_bytes_per_token() < 0.3 * grouped.model.kv_bytes_per_token()


def test_speculation() -> None:
    plain = GpuCost("H200")
    drafted = GpuCost("H200", speculation=Speculation(3, 0.8, 0.05))
    assert drafted.tokens_per_s(1024) > 2 * plain.tokens_per_s(1024)
    # Full batches multiply more than they read: the draft's wasted tokens cost.
    gain = drafted.tokens_per_s(1024, 256) / plain.tokens_per_s(1024, 256)
    assert gain < drafted.tokens_per_s(1024) / plain.tokens_per_s(1024)


def test_a_draft_gains_nothing_for_prompts() -> None:
    drafted = GpuCost("H200", speculation=Speculation(3, 0.8, 0.05))
    tokens = 2048
    pairs = tokens * (tokens + 1) // 2
    alone = drafted.step_us(StepShape(0, 0, tokens, pairs))
    for seqs in (1, 16, 64):
        beside = drafted.step_us(StepShape(seqs, seqs * 1024, tokens, pairs))
        decode = drafted.step_us(StepShape(seqs, seqs * 1024))
        # They share one reading of the weights, which is the most that a prompt saves.
        read = drafted.step_us(StepShape(0, 0, 1, 1))
        assert beside > decode + alone - read, seqs


def test_power() -> None:
    cost = GpuCost("H200")
    assert cost.power_w == 2 * 700


def test_what_does_not_fit_is_an_error_that_says_by_how_much() -> None:
    with pytest.raises(ValueError, match=r"141\.1 GB of weights .* 58\.6 GB too little"):
        GpuCost("H100", "Llama-3.3-70B", tp=1, precision="bf16")
    assert GpuCost(
        "RTX-3090", "Llama-3.1-8B", tp=1, precision="bf16", engine="vllm_0_7"
    ).limits.kv_capacity_tokens


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"gpu": "H900"}, "unknown GPU"),
        ({"model": "nothing"}, "unknown model"),
        ({"precision": "fp7"}, "unknown precision"),
        ({"engine": "nothing"}, "no constants for engine"),
        ({"gpu": "L4", "engine": "llama_cpp"}, "has no constants for L4"),
    ],
)
def test_unknown_names_list_the_known(arguments: dict, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        GpuCost(**arguments)


def test_rates_follow_precision_and_card() -> None:
    h100, a100, b200 = find_gpu("H100"), find_gpu("A100"), find_gpu("B200")
    assert h100.flops(find_precision("fp8")) == 2 * h100.fp16_flops
    assert a100.flops(find_precision("fp8")) == a100.fp16_flops
    assert a100.flops(find_precision("w8a8")) == 2 * a100.fp16_flops
    assert b200.flops(find_precision("fp4")) == 4 * b200.fp16_flops
    assert h100.flops(find_precision("int4")) == h100.fp16_flops


@pytest.mark.parametrize("gpu", GPUS.values(), ids=lambda gpu: gpu.name)
def test_cards_are_plausible(gpu) -> None:
    assert 60e12 < gpu.fp16_flops < 3e15
    assert gpu.memory_bytes / gpu.memory_bytes_per_s < 0.1  # all of it in under 100 ms
    assert gpu.link_bytes_per_s <= gpu.memory_bytes_per_s
    assert all(gpu.flops(precision) >= gpu.fp16_flops for precision in PRECISIONS.values())


@pytest.mark.parametrize("name", ENGINES)
def test_constants_are_physical_and_say_where_they_come_from(name: str) -> None:
    for constants in find_engine(name).sets:
        assert constants.rows or constants.basis, "fitted to rows, or taken over from somewhere"
        for field in ("compute", "memory", "kv"):
            assert 0 < getattr(constants, field) <= 1, field
        for field in ("link", "grouped_kv"):  # 0: the link's own, and as other models have it
            assert 0 <= getattr(constants, field) <= 1, field
        for field in ("step_us", "layer_us", "seq_us", "allreduce_us", "launch_us", "eager_us"):
            assert 0 <= getattr(constants, field) < 5000, field


def test_engines_pick_the_set_of_the_card_and_the_kind_of_model() -> None:
    engine = find_engine("trtllm_1_0")
    dense, moe = engine.for_gpu("H200-141GB-SXM"), engine.for_gpu("H200-141GB-SXM", moe=True)
    assert (dense.moe, moe.moe) == (False, True)
    assert dense.basis.startswith("taken over unchanged")
    assert engine.for_gpu("A100-80GB-SXM", moe=True) == dense
    assert engine.for_gpu("B200-180GB-SXM") != dense
    one = GpuConstants(gpus=(), compute=0.5)
    assert GpuCost("H200", constants=one).fit is one


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tp": 0}, "tp 0"),
        ({"pp": -1}, "pp -1"),
        ({"dp": 0}, "dp 0"),
        ({"max_num_seqs": -3}, "max_num_seqs -3"),
        ({"max_num_batched_tokens": 0}, "max_num_batched_tokens 0"),
        ({"kv_capacity_tokens": -16}, "kv_capacity_tokens -16"),
        ({"attention_window_tokens": 0}, "attention_window_tokens 0"),
        ({"overhead_us": -1.0}, "overhead_us -1"),
    ],
)
def test_numbers_out_of_range_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GpuCost(**options)
