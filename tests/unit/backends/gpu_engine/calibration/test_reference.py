"""Tests the shipped constants against the whole reference set, where that is at hand."""

import statistics

import msgspec
import pytest

from backends.gpu_engine.__main__ import main
from backends.gpu_engine.calibration.gpu_rows import GpuRows, group_of
from backends.gpu_engine.calibration.request_logs import (
    LOG_FOLDER,
    SERVER_LOGS,
    cost_of_log,
    measured_times,
    read_logs,
    requests_of,
)
from backends.gpu_engine.constants import ENGINES, GpuConstants
from wafer_engine.calibration.replay import ReplaySummary, replay
from wafer_engine.calibration.report import compare
from wafer_engine.calibration.rows import find_reference, read_rows

PATH = find_reference("gpu.csv", None)
needs_reference = pytest.mark.skipif(
    PATH is None, reason="no reference rows at ../shared/data/reference/gpu.csv"
)


@needs_reference
def test_offline_bars_are_met() -> None:
    assert PATH is not None
    rows = [row for row in read_rows(PATH) if group_of(row)[1] is not None]
    groups: dict[str, list[float]] = {}
    bars: dict[str, float] = {}
    for compared in compare(rows, GpuRows().predict):
        group, bar = compared.prediction.group, compared.prediction.bar
        assert bar is not None
        groups.setdefault(group, []).append(abs(compared.error))
        bars[group] = bar
    assert set(groups) == {
        "trtllm 0.17 offline",
        "trtllm 1.0 Hopper dense, constants from 0.17",
    }
    for group, errors in groups.items():
        assert statistics.fmean(errors) <= bars[group], group


@needs_reference
@pytest.mark.parametrize("log", SERVER_LOGS, ids=lambda log: log.file)
def test_real_logs_replay_within_three_per_cent(log) -> None:
    assert PATH is not None
    rows = read_logs(PATH.parent / LOG_FOLDER)[log.file]
    measured = measured_times(rows)
    assert measured is not None
    real = ReplaySummary.of(measured)
    ours = ReplaySummary.of(replay(cost_of_log(log), requests_of(rows)))
    assert ours.mean_ttft_us == pytest.approx(real.mean_ttft_us, rel=0.03)
    assert ours.mean_tpot_us == pytest.approx(real.mean_tpot_us, rel=0.03)
    assert ours.mean_latency_us == pytest.approx(real.mean_latency_us, rel=0.03)


@needs_reference
@pytest.mark.parametrize("name", ["vllm_0_7", "vllm_0_20", "vllm_2023", "llama_cpp"])
def test_no_set_is_worse_on_its_own_rows_than_its_neighbour(name: str) -> None:
    assert PATH is not None
    engine = ENGINES[name]
    rows = {row["id"]: row for row in read_rows(PATH)}

    def error(constants: GpuConstants, chosen: tuple[str, ...]) -> float:
        anyones = msgspec.structs.replace(constants, gpus=())
        predict = GpuRows({name: msgspec.structs.replace(engine, sets=(anyones,))}).predict
        compared = compare([rows[row_id] for row_id in chosen], predict)
        return statistics.fmean(abs(one.error) for one in compared)

    fitted = [one for one in engine.sets if one.rows]
    for own in fitted:
        least = min(error(other, own.rows) for other in fitted)
        assert error(own, own.rows) <= least + 0.005, own.gpus


def test_missing_rows_are_said_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--rows", "/nowhere/gpu.csv"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "/nowhere/gpu.csv" in error
