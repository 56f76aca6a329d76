"""Predicted against published, row by row; real logs replayed; what was fitted to what."""

from collections.abc import Mapping, Sequence

from backends.gpu_engine.calibration.logs import (
    SERVER_LOGS,
    comparison,
    cost_of_log,
    measured_times,
    requests_of,
)
from backends.gpu_engine.calibration.rows import GpuRows
from backends.gpu_engine.constants import ENGINES, EngineConstants, GpuConstants
from wafer_engine.calibration.replay import replay
from wafer_engine.calibration.report import Row, outcomes_of, summary, table

_DEFAULTS = GpuConstants(compute=0.0, gpus=())
_NOT_VALUES = ("gpus", "rows", "basis", "moe")


def validation_report(rows: Sequence[Row], logs: Mapping[str, Sequence[Row]]) -> str:
    """The whole report as text.

    Args:
        rows: Reference rows.
        logs: Per-request logs, by the file names in `logs.SERVER_LOGS`; may be empty.
    """
    predictor = GpuRows()
    outcomes = outcomes_of(rows, [predictor.predict(row) for row in rows])
    parts = [table(outcomes), "", summary(outcomes), ""]
    parts += [*_log_lines(logs), "", "Constants and the rows they were fitted to"]
    for name, engine in ENGINES.items():
        parts += _engine_lines(name, engine)
    return "\n".join(parts)


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
        values = " ".join(
            f"{field}={getattr(constants, field):g}"
            for field in constants.__struct_fields__
            if field not in _NOT_VALUES and getattr(constants, field) != getattr(_DEFAULTS, field)
        )
        kind = " mixture of experts" if constants.moe else ""
        lines.append(f"  {name} ({', '.join(constants.gpus) or 'any GPU'}{kind}): {values}")
        lines.append(f"    {constants.basis or ' '.join(constants.rows)}")
    return lines
