"""Compares predicted with published figures, replays real logs, and shows the constants."""

from collections.abc import Mapping, Sequence

import msgspec

from backends.gpu_engine.calibration.gpu_rows import GpuRows
from backends.gpu_engine.calibration.request_logs import (
    SERVER_LOGS,
    comparison,
    cost_of_log,
    measured_times,
    requests_of,
)
from backends.gpu_engine.constants import ENGINES, EngineConstants, GpuConstants
from wafer_engine.calibration.replay import replay
from wafer_engine.calibration.report import CONSTANTS_TITLE, constants_lines, row_lines
from wafer_engine.calibration.rows import Row

_DEFAULTS = msgspec.structs.asdict(GpuConstants(compute=0.0, gpus=()))
_NOT_VALUES = ("gpus", "rows", "basis", "moe", "links")


def validation_report(rows: Sequence[Row], logs: Mapping[str, Sequence[Row]]) -> str:
    """Writes the whole report; logs go by the file names in `request_logs.SERVER_LOGS`."""
    lines = [*row_lines(rows, GpuRows().predict), *_log_lines(logs), "", CONSTANTS_TITLE]
    for name, engine in ENGINES.items():
        lines += _engine_lines(name, engine)
    return "\n".join(lines)


def _log_lines(logs: Mapping[str, Sequence[Row]]) -> list[str]:
    if not logs:
        return ["no per-request logs in requests/ beside the rows: replays left out"]
    lines = ["Real per-request logs, replayed by the engine"]
    for log in SERVER_LOGS:
        if log.file in logs:
            rows = logs[log.file]
            times = replay(cost_of_log(log), requests_of(rows))
            lines += [log.file, comparison(measured_times(rows) or [], times)]
    return lines


def _engine_lines(name: str, engine: EngineConstants) -> list[str]:
    lines = []
    for constants in engine.sets:
        values = {
            field: value
            for field, value in msgspec.structs.asdict(constants).items()
            if field not in _NOT_VALUES and value != _DEFAULTS[field]
        }
        gpus = ", ".join(constants.gpus) or "any GPU"
        kind = " mixture of experts" if constants.moe else ""
        fitted_to = constants.label if constants.basis else " ".join(constants.rows)
        lines += constants_lines(f"{name} ({gpus}{kind})", values, fitted_to)
    return lines
