"""Predicted against published, row by row, and which constants were fitted to which rows."""

from collections.abc import Sequence

from wafer_engine.constants import (
    SERVICE_CONSTANTS,
    WSE2_CONSTANTS,
    WSE3_CONSTANTS,
    WaferConstants,
)
from wafer_engine.report import Row, outcomes_of, summary, table
from wafer_engine.rows import WaferRows

_GROUPS = ("decode", "prefill", "gemv", "gemm", "summa", "pipeline_gemv", "sram")


def validation_report(rows: Sequence[Row], predictor: WaferRows | None = None) -> str:
    """The whole report as text: every row, each group's errors, every fitted constant."""
    predictor = predictor or WaferRows()
    outcomes = outcomes_of(rows, [predictor.predict(row) for row in rows])
    parts = [
        table(outcomes),
        "",
        summary(outcomes),
        "",
        "Constants and the rows they were fitted to",
    ]
    for constants in (WSE2_CONSTANTS, WSE3_CONSTANTS):
        parts += _generation_lines(constants)
    return "\n".join([*parts, *_service_lines()])


def _generation_lines(constants: WaferConstants) -> list[str]:
    lines = []
    for group in _GROUPS:
        fitted = getattr(constants, group)
        if fitted is None:
            continue
        values = " ".join(
            f"{name}={getattr(fitted, name):g}"
            for name in fitted.__struct_fields__
            if name != "rows"
        )
        lines.append(f"  {constants.generation} {group}: {values}")
        lines.append(f"    {' '.join(fitted.rows)}")
    return lines


def _service_lines() -> list[str]:
    service = SERVICE_CONSTANTS
    named = (
        ("launch_factor", service.launch_factor, service.launch_rows),
        ("acceptance_dense", service.acceptance_dense, service.dense_rows),
        ("acceptance_moe", service.acceptance_moe, service.moe_rows),
        ("overhead_us", service.overhead_us, service.overhead_rows),
    )
    lines = [f"  service, assumed: draft_tokens={service.draft_tokens}"]
    for name, value, rows in named:
        lines += [f"  service {name}={value:g}", f"    {' '.join(rows)}"]
    return lines
