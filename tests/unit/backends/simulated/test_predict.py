"""Any file with the columns of either reference table gets its predictions."""

from pathlib import Path

import pytest

from backends.simulated.predict import predict_file, predict_rows
from wafer_engine.calibration.rows import read_rows, write_rows

WAFER = {
    "id": "w",
    "hardware": "WSE-3",
    "model": "Llama-3-8B",
    "input_len": "4096",
    "core_grid": "420x420",
    "metric": "decode_tpr",
    "my_column": "kept",
}
WAFER_METRICS = ("decode_tpr", "prefill_tpr", "e2e_tpr", "output_speed_per_user", "ttft_ms")
GPU = {
    "id": "g",
    "hardware": "H100-80GB-SXM",
    "model": "Llama-3.1-8B",
    "precision": "fp8",
    "engine": "TensorRT-LLM 0.17",
    "input_len": "1000",
    "output_len": "1000",
    "batch_or_concurrency": "max",
    "load": "offline",
    "metric": "output_throughput",
}


def test_each_row_goes_to_its_own_model() -> None:
    wafer, gpu = predict_rows([WAFER, GPU])
    assert 1900 < float(wafer["predicted"]) < 2300
    assert 5_000 < float(gpu["predicted"]) < 25_000
    assert wafer["my_column"] == "kept"
    assert gpu["constants"] == "trtllm_0_17"
    assert wafer["not_modelled"] == gpu["not_modelled"] == ""


def test_a_prediction_names_the_card_whose_constants_it_took() -> None:
    (row,) = predict_rows([{**GPU, "hardware": "B200-180GB-SXM", "engine": "vLLM 0.10"}])
    assert row["predicted"]
    assert row["constants"].startswith(
        "vllm_0_7: taken over from H200-141GB-SXM: not measured on this GPU, within about "
    )


def test_exactly_one_added_cell_is_filled_whatever_the_row() -> None:
    rows = [{}, {"hardware": ""}, {"core_grid": "x"}, {"load": "closed"}, {**GPU, "tp": "many"}]
    rows += [{**GPU, column: "?"} for column in GPU] + [{**WAFER, column: "?"} for column in WAFER]
    for row in predict_rows(rows):
        assert bool(row["predicted"]) != bool(row["not_modelled"]), row


def test_a_file_as_spreadsheets_write_it(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("\ufeff" + write_rows([GPU]), encoding="utf-8")
    assert ",trtllm_0_17" in predict_file(path)


@pytest.mark.parametrize(
    ("text", "reason"),
    [("", "found none"), ("hardware;metric\nH100;ttft\n", "no column 'hardware' or 'metric'")],
)
def test_a_file_without_rows_to_predict_says_so(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=reason):
        predict_file(path)


IMPOSSIBLE = ("-5", "0", "nan", "inf", "-inf", "1e10", "1e400", "0.5", "x", "1e-300")
LOADS = ("offline", "static", "closed", "poisson")
# What Python says of a number it cannot use: a reason in its words is a check that is missing.
PYTHONS_WORDS = ("division by zero", "cannot convert", "could not convert", "arg is an empty")


def test_an_impossible_number_costs_its_own_row_alone() -> None:
    columns = ("input_len", "output_len", "batch_or_concurrency", "tp", "pp", "count")
    users = [
        {**GPU, "load": load, "batch_or_concurrency": "qps=2" if load == "poisson" else "4"}
        for load in LOADS
    ]
    rows = [{**row, column: cell} for row in users for column in columns for cell in IMPOSSIBLE]
    wafers = [{**WAFER, "output_len": "9", "metric": metric} for metric in WAFER_METRICS]
    rows += [
        {**row, column: cell}
        for row in wafers
        for column in (*columns, "core_grid", "pad_dim")
        for cell in (*IMPOSSIBLE, "0x0", "1500x1500")
    ]
    for row in predict_rows([*rows, GPU]):
        assert bool(row["predicted"]) != bool(row["not_modelled"]), row
        assert not any(words in row["not_modelled"] for words in PYTHONS_WORDS), row
    assert predict_rows([*rows, GPU])[-1]["predicted"]


def test_short_lines_of_a_file_do_not_stop_it(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(write_rows([WAFER]) + "x,WSE-3\nextra,WSE-3,a,b,c,d,e,f,g\n")
    out = tmp_path / "out.csv"
    out.write_text(predict_file(path))
    first, second, third = read_rows(out)
    assert first["predicted"]
    assert second["not_modelled"]
    assert third["not_modelled"]
