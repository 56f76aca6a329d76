"""Fits: constants from a log's first hundred requests foretell the other two hundred.

Every real log of `requests` beside the reference rows; of the rest only the load is known.
"""

import tempfile
import time
from pathlib import Path

import msgspec

from backends.gpu_engine.calibration.fitted import fit_logs
from backends.gpu_engine.calibration.request_logs import (
    LOG_FOLDER,
    SERVER_LOGS,
    ServerLog,
    cost_of_log,
    measured_times,
    read_logs,
    requests_of,
)
from backends.gpu_engine.constants import GpuConstants
from backends.gpu_engine.cost import GpuCost
from wafer_engine.calibration.replay import ReplaySummary, replay
from wafer_engine.calibration.rows import Row, find_reference, write_rows

LIMIT_S = 300
NUM_FITTED = 100
BARS = {"mean TPOT": 0.02, "mean TTFT": 0.05, "mean latency": 0.05}
MOST_CPU_S = 5.0


def main() -> bool:
    """Fits each log; false, too, where there are no logs."""
    path = find_reference("gpu.csv", None)
    if path is None:
        print("no reference logs at ../shared/data/reference/requests")
        return False
    logs = read_logs(path.parent / LOG_FOLDER)
    held = [_holds(log, logs[log.file]) for log in SERVER_LOGS]
    return all(held)


def _holds(log: ServerLog, rows: list[Row]) -> bool:
    base = cost_of_log(log)

    def with_constants(constants: GpuConstants) -> GpuCost:
        return cost_of_log(log, msgspec.structs.replace(base.engine, sets=(constants,)))

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "log.csv")
        path.write_text(write_rows(rows))
        began_s = time.process_time()
        fitted = fit_logs([path], base, with_constants, first=NUM_FITTED)
        spent_s = time.process_time() - began_s
    measured = measured_times(rows)
    assert measured is not None
    times = replay(with_constants(fitted.constants), requests_of(rows))
    real, ours = (ReplaySummary.of(each[NUM_FITTED:]).means_us for each in (measured, times))
    print(log.file)
    rows_told = [
        (name, f"{ours[name] / real[name] - 1:+.1%}", f"{bar:.0%}",
         abs(ours[name] / real[name] - 1) <= bar)
        for name, bar in BARS.items()
    ]  # fmt: skip
    rows_told.append(("CPU-seconds", f"{spent_s:.1f}", f"{MOST_CPU_S:g}", spent_s <= MOST_CPU_S))
    for name, came, bar, held in rows_told:
        print(f"  {name:14}{came:>8}, bar {bar}: {'held' if held else 'MISSED'}")
    return all(held for *_, held in rows_told)
