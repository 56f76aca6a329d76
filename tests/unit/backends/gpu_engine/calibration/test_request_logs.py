"""Tests per-request logs: read, replayed, compared."""

import csv
import gzip
import io
from pathlib import Path

import numpy as np
import pytest

from backends.gpu_engine.calibration.request_logs import (
    log_errors,
    measured_times,
    read_log,
    requests_of,
)
from backends.gpu_engine.cost import GpuCost
from backends.simulated.predict import replay_file
from wafer_engine.calibration.replay import replay
from wafer_engine.calibration.rows import write_rows

COST = GpuCost("H100", "Llama-3.1-8B", tp=1, overhead_us=0)


def written_log(path: Path, *, measured: bool = True) -> Path:
    rows = [
        {"id": str(i), "arrival_s": f"{i / 10}", "input_tokens": "200", "output_tokens": "30"}
        for i in range(20)
    ]
    if measured:
        for row, time in zip(rows, replay(COST, requests_of(rows)), strict=True):
            row["queued_s"] = row["arrival_s"]
            row["first_token_s"] = f"{time.first_token_us / 1e6:.6f}"
            row["last_token_s"] = f"{time.last_token_us / 1e6:.6f}"
    text = write_rows(rows).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


@pytest.mark.parametrize("name", ["log.csv", "log.csv.gz"])
def test_a_log_of_our_own_engine_replays_without_error(tmp_path: Path, name: str) -> None:
    path = written_log(tmp_path / name)
    rows, text = replay_file(path, COST)
    assert text.count("+0.0%") == 3
    assert rows.splitlines()[0].endswith("predicted_first_token_s,predicted_last_token_s")
    measured = measured_times(read_log(path))
    assert measured is not None
    assert np.abs(log_errors(measured, measured, groups=4)).max() == 0.0


def test_a_log_without_measurements_is_still_replayed(tmp_path: Path) -> None:
    path = written_log(tmp_path / "log.csv", measured=False)
    assert measured_times(read_log(path)) is None
    rows, text = replay_file(path, COST)
    assert "20 requests  mean TTFT" in text
    assert len(rows.splitlines()) == 21


def test_answers_of_one_token_have_no_time_per_token(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("arrival_s,input_tokens,output_tokens\n0,100,1\n1,100,1\n")
    _, told = replay_file(path, COST)
    assert "mean TTFT" in told
    assert "TPOT" not in told
    path.write_text(
        "arrival_s,input_tokens,output_tokens,first_token_s,last_token_s\n0,100,1,0.1,0.1\n"
    )
    _, told = replay_file(path, COST)
    assert "TPOT" not in told


def test_prompts_that_share_blocks_find_them_in_the_cache(tmp_path: Path) -> None:
    rows = [
        {"arrival_s": "0", "input_tokens": "1100", "output_tokens": "4", "hash_ids": "0-2"},
        {"arrival_s": "10", "input_tokens": "1500", "output_tokens": "4", "hash_ids": "0-1 7"},
        {"arrival_s": "20", "input_tokens": "1500", "output_tokens": "4", "hash_ids": "8-10"},
    ]
    path = tmp_path / "trace.csv"
    path.write_text(write_rows(rows))
    text, told = replay_file(path, COST)
    replayed = list(csv.DictReader(io.StringIO(text)))
    assert [row["predicted_cached_tokens"] for row in replayed] == ["0", "1024", "0"]
    assert f"{1024 / 4100:.1%} of 4,100 prompt tokens found in the cache" in told
    took_s = [float(row["predicted_first_token_s"]) - float(row["arrival_s"]) for row in replayed]
    assert took_s[1] < took_s[2] / 2, "two thirds of the prompt need not be computed"


def test_slower_times_show_as_positive_errors(tmp_path: Path) -> None:
    rows = read_log(written_log(tmp_path / "log.csv"))
    measured = measured_times(rows)
    assert measured is not None
    slower = replay(GpuCost("A100", "Llama-3.1-8B", tp=1, overhead_us=0), requests_of(rows))
    assert log_errors(measured, slower).min() > 0


def test_logs_that_cannot_be_read_say_why(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("id,arrival_s\n1,0\n")
    with pytest.raises(ValueError, match="no column 'input_tokens'"):
        read_log(path)
    path.write_text("id,arrival_s,input_tokens,output_tokens\n")
    with pytest.raises(ValueError, match="holds no requests"):
        replay_file(path, COST)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("x,2,3", "arrival_s is 'x'"),
        ("0,-5,3", "input_tokens is '-5'"),
        ("0,5,nan", "output_tokens is 'nan'"),
        ("0,5", "output_tokens is ''"),
        ("inf,5,3", "arrival_s is 'inf'"),
    ],
)
def test_a_cell_that_no_log_can_have_is_named(tmp_path: Path, line: str, reason: str) -> None:
    path = tmp_path / "log.csv"
    path.write_text(f"arrival_s,input_tokens,output_tokens\n{line}\n")
    with pytest.raises(ValueError, match=reason):
        requests_of(read_log(path))
