"""GPU calibration finds the constants that made its rows."""

from pathlib import Path

import msgspec
import pytest

from backends.gpu_engine.calibration.calibrate import calibrate
from backends.gpu_engine.calibration.gpu_rows import GpuRows
from backends.gpu_engine.calibration.validate import validation_report
from backends.gpu_engine.constants import EngineConstants, find_engine
from wafer_engine.calibration.fit import write_constants


def made_up_rows() -> list[dict[str, str]]:
    rows = []
    for hardware in ("H100-80GB-SXM", "H200-141GB-SXM"):
        for tp in ("2", "4", "8"):
            for prompt, output in (("128", "128"), ("128", "2048"), ("2048", "128")):
                rows.append(
                    {
                        "id": f"trt017-{len(rows)}",
                        "hardware": hardware,
                        "count": tp,
                        "model": "Llama-3.1-70B",
                        "precision": "fp8",
                        "kv_precision": "fp8",
                        "tp": tp,
                        "engine": "TensorRT-LLM 0.17",
                        "input_len": prompt,
                        "output_len": output,
                        "batch_or_concurrency": "max",
                        "load": "offline",
                        "metric": "output_throughput",
                    }
                )
    predictor = GpuRows()
    return [{**row, "value": repr(predictor.predict(row).value)} for row in rows]


def test_shipped_constants_are_found_again(tmp_path: Path) -> None:
    fitted = calibrate(made_up_rows(), {}, ["trtllm_0_17"])
    (found,), (shipped,) = fitted["trtllm_0_17"].sets, find_engine("trtllm_0_17").sets
    for name in ("compute", "seq_us", "allreduce_us"):
        assert getattr(found, name) == pytest.approx(getattr(shipped, name), rel=0.02), name
    assert len(found.rows) == 18
    (path,) = write_constants(tmp_path, fitted)
    assert path.name == "trtllm_0_17.json"
    decoded = msgspec.json.decode(path.read_bytes(), type=EngineConstants)
    assert decoded == fitted["trtllm_0_17"]


def test_no_rows_is_an_error() -> None:
    with pytest.raises(ValueError, match="no rows to fit trtllm_0_17"):
        calibrate([], {}, ["trtllm_0_17"])


def test_the_report_names_rows_groups_and_constants() -> None:
    report = validation_report(made_up_rows(), {})
    assert "trt017-17" in report
    assert "trtllm 0.17 offline" in report
    assert "taken over unchanged from TensorRT-LLM 0.17" in report
    assert "no per-request logs" in report
