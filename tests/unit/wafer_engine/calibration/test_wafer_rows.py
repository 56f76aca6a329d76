"""Tests rows of published measurements: predicted, or refused with a reason; reports of both."""

from pathlib import Path

import pytest

from wafer_engine.__main__ import main
from wafer_engine.calibration.report import ComparedRow, compare, summary, table
from wafer_engine.calibration.rows import Prediction, find_reference, read_rows, write_rows
from wafer_engine.calibration.wafer_rows import WaferRows

DECODE = {
    "id": "a",
    "hardware": "WSE-2",
    "model": "Llama-3-8B",
    "input_len": "4096",
    "core_grid": "540x540",
    "metric": "decode_tpr",
    "value": "2501.5",
    "unit": "tok/s",
}


def changed(**cells: str) -> dict[str, str]:
    return {**DECODE, **cells}


def service(**cells: str) -> dict[str, str]:
    row = {"hardware": "WSE-3 (Cerebras Inference)", "model": "Llama-3.1-70B", "core_grid": ""}
    return changed(**{**row, "metric": "output_speed_per_user", "output_len": "500", **cells})


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (DECODE, 2501.5),
        (changed(pad_dim="4320", pad_seq="4320", pad_ffn="14580"), 2501.5),
        (changed(hardware="WSE-3", metric="prefill_tpr", core_grid="600x600"), 26393.9),
        (
            changed(
                hardware="WSE-3",
                metric="e2e_tpr",
                input_len="2048",
                output_len="2048",
                core_grid="660x660 prefill + 360x360 decode",
            ),
            1966.7,
        ),
        (
            changed(
                hardware="WSE-3 (Cerebras Inference)",
                model="Llama-3.1-70B",
                metric="output_speed_per_user",
                count="4",
                note="2024-08-27; launch",
                input_len="",
            ),
            450,
        ),
    ],
)
def test_known_rows(row: dict[str, str], expected: float) -> None:
    prediction = WaferRows().predict(row)
    assert prediction.value == pytest.approx(expected, rel=0.05)
    assert prediction.reason == ""


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({}, "no model for the metric ''"),
        ({"metric": "decode_tpr", "hardware": "WSE-3"}, "no column 'model'"),
        (changed(model="GPT-5.6-Sol"), "dimensions are not published"),
        (changed(model="gpt-oss-120b"), "dense models only"),
        (changed(core_grid=""), "grid is not stated"),
        (changed(core_grid="540x320"), "not square"),
        (changed(hardware="H100"), "unknown wafer"),
        (changed(input_len="many"), "expected a number from 1"),
        (changed(input_len="-4"), "expected a number from 1"),
        (changed(input_len="nan"), "expected a number from 1"),
        (changed(metric="e2e_tpr", output_len="1e10"), "to 10,000,000"),
        (changed(metric="prefill_tpr", output_len="-1"), "expected a number from 0"),
        (changed(core_grid="1500x1500", hardware="WSE-3"), "762x1172"),
        (changed(core_grid="0x0"), "0x0 is not on"),
        (changed(pad_dim="-8"), "pad_dim is '-8'"),
        (changed(batch_or_concurrency="4"), "one request at a time"),
        (changed(batch_or_concurrency="none"), "expected a number from 1"),
        (changed(count="2"), "one wafer"),
        (changed(count="1.5"), "whole number"),
        (changed(precision="fp8"), "16 bits"),
        (service(output_len="-100"), "expected a number from 1"),
        (service(output_len="0"), "expected a number from 1"),
        (service(precision="fp3"), "unknown precision 'fp3'"),
        (service(batch_or_concurrency="1000", input_len="100000"), "tokens of KV"),
        (changed(metric="decode_tpr_T10"), "another compiler"),
        (changed(metric="ttft_ms", input_len="", hardware="WSE-3"), "no prompt length"),
        (changed(metric="meshgemm_cycles"), "no GEMM was measured"),
    ],
)
def test_rows_that_cannot_be_modelled_say_why(row: dict[str, str], reason: str) -> None:
    prediction = WaferRows().predict(row)
    assert prediction.value is None
    assert reason in prediction.reason


def value(row: dict[str, str]) -> float:
    prediction = WaferRows().predict(row)
    assert prediction.value is not None, prediction.reason
    return prediction.value


def test_service_rows_heed_precision_and_users() -> None:
    for metric in ("output_speed_per_user", "tpot_ms", "ttft_ms"):
        alone = service(metric=metric, input_len="1000", batch_or_concurrency="1")
        assert value({**alone, "precision": "bf16"}) == value(alone)
        assert value({**alone, "precision": "fp8"}) != value(alone)
    speeds = [
        value(service(batch_or_concurrency=users, input_len="500", count="8", note=note))
        for note in ("", "2024-08-27; launch")
        for users in ("1", "100")
    ]
    assert speeds[1] < speeds[0]
    assert speeds[3] < speeds[2]
    times = [
        value(service(batch_or_concurrency=users, input_len="500", count="8", metric="tpot_ms"))
        for users in ("1", "100")
    ]
    assert times[1] > 2 * times[0]


def test_a_prompt_alone_needs_no_output() -> None:
    row = changed(metric="prefill_tpr", output_len="0")
    assert value(row) == value(changed(metric="prefill_tpr"))


def test_tables_show_every_row_and_the_worst_error() -> None:
    compared = [
        ComparedRow("a", 100.0, "tok/s", Prediction("speed", 110.0, bar=0.15)),
        ComparedRow("b", 100.0, "tok/s", Prediction("speed", 70.0, bar=0.15)),
        ComparedRow("c", 1.0, "x", Prediction("other", reason="no grid")),
    ]
    rows = table(compared).splitlines()
    assert len(rows) == 4
    assert "+10.0%" in rows[1]
    assert "not modelled: no grid" in rows[3]
    groups = summary(compared).splitlines()
    assert groups[1].split() == ["speed", "2", "2", "20.0%", "20.0%", "30.0%", "15%", "b"]
    assert groups[2].split() == ["other", "1", "0"]


def test_csv_goes_round(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(write_rows([DECODE, changed(id="b")]))
    assert read_rows(path) == [DECODE, changed(id="b")]
    assert find_reference("wse.csv", str(path)) == path
    assert find_reference("wse.csv", str(tmp_path / "none.csv")) is None
    assert write_rows([]) == ""
    assert len(compare([DECODE], lambda _: Prediction("g", 1.0))) == 1


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, picture = tmp_path / "rows.csv", tmp_path / "p.svg"
    path.write_text(write_rows([DECODE]))
    assert main(["validate", "--rows", str(path)]) == 0
    assert "WSE-2 decode" in capsys.readouterr().out
    assert main(["place", "--model", "Llama-3.1-8B", "--out", str(picture)]) == 0
    assert picture.read_text().startswith("<svg")
    assert main(["speed", "--model", "Llama-3.1-8B"]) == 0
    assert "tokens/s each" in capsys.readouterr().out
    assert main(["validate", "--rows", str(tmp_path / "none.csv")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert main(["place", "--model", "Llama-3.3-70B", "--wafers", "2"]) == 2
    assert "GB too little" in capsys.readouterr().err
