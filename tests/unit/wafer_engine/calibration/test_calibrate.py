"""Calibration finds the constants that made its rows, and writes what it found."""

from pathlib import Path

import msgspec
import pytest

from wafer_engine.calibration.calibrate import calibrate, leave_models_out
from wafer_engine.calibration.fit import write_constants
from wafer_engine.calibration.wafer_rows import WaferRows
from wafer_engine.hardware.constants import (
    SERVICE_CONSTANTS,
    WSE2_CONSTANTS,
    WSE3_CONSTANTS,
    ServiceConstants,
    WaferConstants,
)


def made_up_rows() -> list[dict[str, str]]:
    """Returns rows on the grids of the literature, valued by the shipped constants."""
    rows = []

    def add(**cells: str) -> None:
        rows.append({"id": f"r{len(rows)}", "count": "", "input_len": "4096", "note": "", **cells})

    for generation in ("WSE-2", "WSE-3"):
        for model in ("Llama-3-8B", "Llama-2-13B", "Qwen2-72B"):
            for side in ("420", "540", "660"):
                grid = {"hardware": generation, "model": model, "core_grid": f"{side}x{side}"}
                add(metric="decode_tpr", **grid)
                add(metric="prefill_tpr", **grid)
    for size, side in (("4320", "120"), ("4320", "480"), ("14400", "120"), ("8640", "360")):
        for metric in (
            "meshgemv_cycles",
            "meshgemm_cycles",
            "summa_cycles",
            "pipeline_allreduce_gemv_cycles",
        ):
            add(
                hardware="WSE-3",
                model=f"K-{size}",
                metric=metric,
                pad_dim=size,
                core_grid=f"{side}x{side}",
            )
    add(hardware="WSE-2", model="Llama-3-8B", metric="max_decode_len_shift", core_grid="360x360")
    cloud = {"hardware": "WSE-3 (cloud)"}
    for model, note in (
        ("Llama-3.1-8B", "2024-08 launch"),
        ("Llama-3.3-70B", "2025"),
        ("GLM-4.6", "2025"),
    ):
        add(metric="output_speed_per_user", model=model, **cloud | {"note": note})
    add(metric="ttft_ms", model="Llama-3.1-8B", **cloud)
    predictor = WaferRows()
    return [{**row, "value": repr(predictor.predict(row).value)} for row in rows]


def test_shipped_constants_are_found_again(tmp_path: Path) -> None:
    fitted = calibrate(made_up_rows())
    wse2, wse3, service = fitted.values()
    for found, shipped in ((wse2, WSE2_CONSTANTS), (wse3, WSE3_CONSTANTS)):
        for name in ("start", "mac", "allreduce", "hop"):
            expected = getattr(shipped.decode, name)
            assert getattr(found.decode, name) == pytest.approx(expected, rel=0.01), name
        for name in ("start", "mac", "vector", "step"):
            expected = getattr(shipped.prefill, name)
            assert getattr(found.prefill, name) == pytest.approx(expected, rel=0.02), name
    assert service.acceptance_moe == pytest.approx(SERVICE_CONSTANTS.acceptance_moe, abs=0.002)
    assert service.overhead_us == pytest.approx(SERVICE_CONSTANTS.overhead_us, rel=0.01)
    paths = write_constants(tmp_path, fitted)
    assert [path.name for path in paths] == ["wse2.json", "wse3.json", "service.json"]
    assert msgspec.json.decode(paths[0].read_bytes(), type=WaferConstants) == wse2
    assert msgspec.json.decode(paths[2].read_bytes(), type=ServiceConstants) == service


def speed_row(model: str, factor: float = 1.0) -> dict[str, str]:
    row = {
        "id": f"speed-{model}",
        "hardware": "WSE-3 (cloud)",
        "model": model,
        "metric": "output_speed_per_user",
        "note": "2025",
    }
    predicted = WaferRows().predict(row).value
    assert predicted is not None
    return {**row, "value": repr(predicted * factor)}


def test_a_left_out_model_has_no_part_in_what_predicts_it() -> None:
    fast, plain = speed_row("GLM-4.6", 1.3), speed_row("gpt-oss-120b")
    of = {one.model: one for one in leave_models_out([fast, plain])}
    # The others fit the shipped acceptance exactly, so the fast one misses by its whole factor;
    # and the plain one is predicted by the fast one's alone.
    assert of["GLM-4.6"].acceptance == SERVICE_CONSTANTS.acceptance_moe
    assert of["GLM-4.6"].error == pytest.approx(1 / 1.3 - 1, abs=0.002)
    assert of["gpt-oss-120b"].error == pytest.approx(0.3, abs=0.002)


def test_models_of_one_shape_are_left_out_together() -> None:
    twins = [speed_row("Llama-3.1-70B"), speed_row("Llama-3.3-70B", 1.2)]
    assert leave_models_out(twins) == []
    left_out = leave_models_out([*twins, speed_row("Qwen3-32B")])
    assert len(left_out) == 3
    assert left_out[0].acceptance == left_out[1].acceptance == SERVICE_CONSTANTS.acceptance_dense


def test_no_rows_is_an_error() -> None:
    with pytest.raises(ValueError, match="no rows to fit WSE-2 decode"):
        calibrate([])
