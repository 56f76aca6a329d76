"""Tests closed forms against published measurements (WaferLLM, OSDI 2025; its CS-3 rerun, 2026)."""

import pytest

from wafer_engine.hardware.constants import WSE2_CONSTANTS, WSE3_CONSTANTS, constants_of
from wafer_engine.hardware.models import find_model
from wafer_engine.hardware.spec import WSE2, WSE3
from wafer_engine.mesh import kernels

GENERATIONS = {"WSE-2": (WSE2, WSE2_CONSTANTS), "WSE-3": (WSE3, WSE3_CONSTANTS)}


@pytest.mark.parametrize(
    ("generation", "model", "side", "published"),
    [
        ("WSE-2", "Llama-3-8B", 540, 2501.5),
        ("WSE-2", "Qwen2-72B", 660, 787.1),
        ("WSE-3", "Llama-3-8B", 420, 2089.0),
        ("WSE-3", "Llama-2-13B", 540, 1454.9),
    ],
)
def test_decode_speed(generation: str, model: str, side: int, published: float) -> None:
    wafer, constants = GENERATIONS[generation]
    shape = find_model(model)
    tiling = kernels.tile(shape, 4096, side)
    predicted = kernels.decode_tokens_per_s(shape, tiling, wafer, constants)
    assert predicted == pytest.approx(published, rel=0.03)


@pytest.mark.parametrize(
    ("generation", "model", "side", "published"),
    [
        ("WSE-2", "Llama-3-8B", 480, 20320.6),
        ("WSE-2", "CodeLlama-34B", 720, 8526.0),
        ("WSE-3", "Llama-3-8B", 600, 26393.9),
        ("WSE-3", "Qwen2-72B", 480, 3305.3),
    ],
)
def test_prefill_speed(generation: str, model: str, side: int, published: float) -> None:
    wafer, constants = GENERATIONS[generation]
    shape = find_model(model)
    elapsed_us = kernels.prefill_us(shape, kernels.tile(shape, 4096, side), wafer, constants)
    assert 4096 / elapsed_us * 1e6 == pytest.approx(published, rel=0.05)


@pytest.mark.parametrize(
    ("generation", "output", "published"),
    [("WSE-2", 2048, 2370.3), ("WSE-3", 2048, 1966.7), ("WSE-3", 128, 624.8)],
)
def test_end_to_end_speed_with_nothing_more_fitted(
    generation: str, output: int, published: float
) -> None:
    wafer, constants = GENERATIONS[generation]
    elapsed_us = kernels.request_us(
        find_model("Llama-3-8B"), 2048, output, 660, 360, wafer, constants
    )
    assert output / elapsed_us * 1e6 == pytest.approx(published, rel=0.08)


@pytest.mark.parametrize(("prompt", "output"), [(1, 1), (359, 2), (360, 361), (1000, 1500)])
def test_a_request_is_the_sum_of_its_tokens(prompt: int, output: int) -> None:
    model, side = find_model("Llama-3-8B"), 360
    wafer, constants = GENERATIONS["WSE-3"]
    total_us = kernels.prefill_us(model, kernels.tile(model, prompt, 660), wafer, constants)
    for context in range(prompt + 1, prompt + output + 1):
        tiling = kernels.tile(model, context, side)
        total_us += 1e6 / kernels.decode_tokens_per_s(model, tiling, wafer, constants)
    elapsed_us = kernels.request_us(model, prompt, output, 660, side, wafer, constants)
    assert elapsed_us == pytest.approx(total_us, rel=1e-9)


def test_kernel_cycles() -> None:
    gemv, gemm, pipeline = (
        WSE3_CONSTANTS.gemv,
        WSE3_CONSTANTS.gemm,
        WSE3_CONSTANTS.pipeline_gemv,
    )
    assert gemv is not None
    assert gemm is not None
    assert pipeline is not None
    assert kernels.gemv_cycles(36, 240, gemv) == pytest.approx(1340.24, rel=0.03)
    assert kernels.gemm_cycles(12, 360, gemm) == pytest.approx(511_841, rel=0.05)
    assert kernels.pipeline_gemv_cycles(6, 360, pipeline) == pytest.approx(6594.5, rel=0.03)
    # What the tree is for: the pipeline's cost grows six times as fast with the grid.
    assert pipeline.row > 5 * gemv.hop


def test_padding_is_up_to_the_grid() -> None:
    tiling = kernels.tile(find_model("Llama-3-8B"), 4096, 540)
    assert (tiling.pad_hidden, tiling.pad_tokens, tiling.pad_ffn) == (4320, 4320, 14580)


def test_kv_capacity_says_by_how_much_weights_exceed() -> None:
    with pytest.raises(ValueError, match="GB more than WSE-2 has"):
        kernels.kv_shift_capacity_tokens(find_model("Qwen2-72B"), WSE2, WSE2_CONSTANTS)
    with pytest.raises(ValueError, match="no KV capacity was measured"):
        kernels.kv_shift_capacity_tokens(find_model("Llama-3-8B"), WSE3, WSE3_CONSTANTS)


def test_constants_name_their_rows() -> None:
    for generation in ("WSE-2", "WSE-3"):
        constants = constants_of(generation)
        assert len(constants.decode.rows) >= 8
        assert len(constants.prefill.rows) >= 8
    with pytest.raises(ValueError, match="no fitted constants"):
        constants_of("WSE-1")
