"""Tests the hosted wafer's cost model: its shape, its limits, its options."""

import random

import msgspec
import pytest

from wafer_engine.batching.cost_model import StepShape
from wafer_engine.batching.speculation import NO_SPECULATION, Speculation
from wafer_engine.hardware.cost import WaferCost, wafers_needed
from wafer_engine.hardware.models import MODELS, find_model

# One name for each shape.
SHAPES = list(
    {msgspec.structs.replace(model, name=""): name for name, model in MODELS.items()}.values()
)


def test_the_default_is_a_public_model_above_a_thousand_tokens_per_second() -> None:
    cost = WaferCost()
    assert cost.model.name == "Qwen3-235B-A22B"
    # Comfortably: at the contexts that conversations have, and when the pipeline is full.
    for context in (256, 1024, 4096, 16_384):
        assert 1050 < cost.tokens_per_s(context, cost.limits.max_num_seqs) < 1200, context


@pytest.mark.parametrize(
    ("model", "published"),  # tokens/s; Cerebras, 2024-10 to 2025-12
    [("Llama-3.1-8B", 2200), ("Llama-3.3-70B", 2100), ("Qwen3-32B", 2600), ("GLM-4.6", 1000)],
)
def test_published_speeds(model: str, published: float) -> None:
    assert WaferCost(model).tokens_per_s(1024) == pytest.approx(published, rel=0.25)


def test_pure_decode_is_affine_in_context_and_growth_is_its_slope() -> None:
    seed = 20
    rng = random.Random(seed)
    costs = [
        WaferCost("Llama-3.1-8B"),
        WaferCost("gpt-oss-120b"),
        WaferCost("GLM-4.6", attention_window_tokens=4096, max_num_seqs=200),
    ]
    for _ in range(200):
        cost = rng.choice(costs)
        seqs, context = rng.randint(1, 60), rng.randint(1, 100_000)
        first = cost.step_us(StepShape(seqs, context))
        second = cost.step_us(StepShape(seqs, context + seqs))
        message = f"seed {seed}: {cost.model.name}, {seqs} sequences"
        assert second - first == pytest.approx(cost.growth_us(seqs), abs=1e-6), message
        assert cost.growth_us(seqs) >= 0, message


def test_speed_is_flat_until_the_pipeline_is_full() -> None:
    cost = WaferCost("Llama-3.3-70B", max_num_seqs=64)
    full = WaferCost("Llama-3.3-70B").limits.max_num_seqs
    assert full == 80 // 5
    alone = cost.tokens_per_s(2048)
    assert cost.tokens_per_s(2048, full) == pytest.approx(alone)
    assert cost.tokens_per_s(2048, 2 * full) < 0.6 * alone
    # The whole system gains nothing from more sequences than that.
    assert 2 * full * cost.tokens_per_s(2048, 2 * full) <= 1.06 * full * alone


def test_prompts_fill_free_slots_before_they_slow_decoding() -> None:
    cost = WaferCost("Llama-3.1-8B")
    alone = cost.step_us(StepShape(1, 1000))
    small = cost.step_us(StepShape(1, 1000, 8, 36))
    large = cost.step_us(StepShape(1, 1000, 2048, 2048 * 2049 // 2))
    assert small == alone
    assert large > 5 * alone
    assert cost.step_us(StepShape(0, 0, 2048, 2048 * 2049 // 2)) > large - alone


def test_fewer_bits_need_fewer_wafers() -> None:
    model = find_model("Llama-3.3-70B")
    assert [wafers_needed(model, bits) for bits in (16, 8, 4)] == [4, 2, 1]
    sixteen, four = WaferCost(model), WaferCost(model, weight_bits=4, num_wafers=4)
    assert four.limits.kv_capacity_tokens > 4 * sixteen.limits.kv_capacity_tokens
    assert four.tokens_per_s(1024) == pytest.approx(sixteen.tokens_per_s(1024))


def test_sparse_attention_stops_growing() -> None:
    dense, sparse = (
        WaferCost("Llama-3.1-8B"),
        WaferCost("Llama-3.1-8B", attention_window_tokens=2048),
    )
    assert sparse.growth_us(1) == 0
    assert sparse.tokens_per_s(100_000) > 1.5 * dense.tokens_per_s(100_000)
    assert sparse.tokens_per_s(2048) == pytest.approx(dense.tokens_per_s(2048))


@pytest.mark.parametrize("model", ["Llama-3.1-8B", "gpt-oss-120b"])
@pytest.mark.parametrize("context", [256, 4096, 16_384, 20_000, 60_000])
def test_a_window_never_slows_a_sequence(model: str, context: int) -> None:
    dense, sparse = WaferCost(model), WaferCost(model, attention_window_tokens=16_384)
    expected = dense.tokens_per_s(min(context, 16_384))
    assert sparse.tokens_per_s(context) == pytest.approx(expected, rel=1e-4)
    assert sparse.limits == dense.limits, "the whole KV cache is kept"


@pytest.mark.parametrize("bits", [16, 8, 4])
def test_the_draft_is_the_models_not_the_wafers(bits: int) -> None:
    for model, drafted in (("Llama-3.3-70B", True), ("Qwen3-32B", True), ("Llama-3.1-8B", False)):
        assert bool(WaferCost(model, weight_bits=bits).speculation.draft_tokens) == drafted
    assert not WaferCost("Llama-3.1-8B", num_wafers=2).speculation.draft_tokens
    narrow, wide = WaferCost("Qwen3-32B", weight_bits=bits), WaferCost("Qwen3-32B")
    assert narrow.tokens_per_s(1024) > 0.4 * wide.tokens_per_s(1024)


@pytest.mark.parametrize("bits", [16, 8, 4])
@pytest.mark.parametrize("model", SHAPES[::2])
def test_a_model_fits_where_no_number_of_wafers_is_asked(model: str, bits: float) -> None:
    assert WaferCost(model, weight_bits=bits).limits.kv_capacity_tokens > 0


def test_full_speed_is_bounded_by_the_cache() -> None:
    cost = WaferCost()
    assert cost.full_speed_seqs(1024) == cost.limits.max_num_seqs == 18
    held = cost.full_speed_seqs(32_768)
    assert held == 3
    assert held * 32_768 <= cost.limits.kv_capacity_tokens < (held + 1) * 32_768
    assert cost.full_speed_seqs(1_000_000) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_wafers": -3}, "num_wafers -3"),
        ({"num_wafers": 0}, "num_wafers 0"),
        ({"weight_bits": 3}, "weight_bits 3"),
        ({"kv_bits": 32}, "kv_bits 32"),
        ({"clock_hz": 0}, "clock_hz 0"),
        ({"link_latency_us": -1}, "link_latency_us -1"),
        ({"max_num_seqs": 0}, "max_num_seqs 0"),
        ({"attention_window_tokens": 0}, "window 0"),
        ({"attention_window_tokens": 10**7}, "no context reaches it"),
    ],
)
def test_numbers_out_of_range_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        WaferCost("Llama-3.1-8B", **options)


@pytest.mark.parametrize(
    ("draft", "acceptance", "cost"),
    [(-1, 0.5, 0), (65, 0.5, 0), (4, 1.5, 0), (4, -0.1, 0), (4, float("nan"), 0), (4, 0.5, -1)],
)
def test_impossible_drafts_are_refused(draft: int, acceptance: float, cost: float) -> None:
    with pytest.raises(ValueError, match="expected"):
        Speculation(draft, acceptance, cost)


@pytest.mark.parametrize(
    ("draft", "acceptance", "tokens"),
    [(0, 0.0, 1.0), (4, 0.0, 1.0), (4, 0.5, 1.9375), (1, 0.5, 1.5), (3, 1.0, 4.0)],
)
def test_tokens_per_pass(draft: int, acceptance: float, tokens: float) -> None:
    assert Speculation(draft, acceptance).tokens_per_pass == pytest.approx(tokens)


def test_speculation_trades_sequences_for_speed() -> None:
    plain = WaferCost("Llama-3.3-70B", speculation=NO_SPECULATION)
    drafted = WaferCost("Llama-3.3-70B", speculation=Speculation(4, 0.8))
    assert drafted.tokens_per_s(1024) > 2.5 * plain.tokens_per_s(1024)
    assert drafted.limits.max_num_seqs < plain.limits.max_num_seqs
    costly = WaferCost("Llama-3.3-70B", speculation=Speculation(4, 0.8, draft_cost=0.1))
    assert costly.tokens_per_s(1024) < drafted.tokens_per_s(1024)


def test_energy_is_shared_by_the_pipeline() -> None:
    cost = WaferCost("Llama-3.1-8B")
    alone, shared = cost.joules_per_token(1024), cost.joules_per_token(1024, 32)
    assert alone == pytest.approx(23_000 / cost.tokens_per_s(1024))
    assert shared == pytest.approx(alone / 32)


def test_what_does_not_fit_is_an_error_that_says_by_how_much() -> None:
    with pytest.raises(ValueError, match=r"3 x WSE-3 have .* GB too little"):
        WaferCost("Llama-3.3-70B", num_wafers=3)
    with pytest.raises(ValueError, match="unknown model"):
        WaferCost("no-such-model")


def test_the_clock_is_a_parameter() -> None:
    fast, slow = WaferCost("Llama-3.1-8B"), WaferCost("Llama-3.1-8B", clock_hz=0.85e9)
    assert slow.tokens_per_s(1024) == pytest.approx(fast.tokens_per_s(1024) * 0.85 / 1.1)


def test_the_older_wafer_is_bound_by_vector_starts() -> None:
    old, new = WaferCost("Llama-3.1-8B", wafer="CS-2"), WaferCost("Llama-3.1-8B")
    # Published on whole grids: within 25 % of each other, the older one ahead.
    assert old.tokens_per_s(1024) == pytest.approx(new.tokens_per_s(1024), rel=0.3)
    assert old.growth_us(1) > 0
    assert old.limits.kv_capacity_tokens < new.limits.kv_capacity_tokens
