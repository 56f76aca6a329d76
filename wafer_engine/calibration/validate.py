"""Compares predicted with published figures, and names the rows behind each constant."""

import statistics
from collections.abc import Sequence

import msgspec

from wafer_engine.batching.speculation import NO_SPECULATION
from wafer_engine.calibration.report import CONSTANTS_TITLE, constants_lines, row_lines
from wafer_engine.calibration.rows import Row
from wafer_engine.calibration.wafer_rows import WaferRows
from wafer_engine.hardware.constants import SERVICE_CONSTANTS, WSE2_CONSTANTS, WSE3_CONSTANTS
from wafer_engine.hardware.cost import WaferCost

HEADLINE_TOKENS = 1_024  # of context
HEADLINE_KV_TOKENS = 131_072  # held at least, as a served engine does: one full window
_GROUPS = ("decode", "prefill", "gemv", "gemm", "summa", "pipeline_gemv", "sram")


class LeftOut(msgspec.Struct, frozen=True):
    """Is a service speed predicted by an acceptance fitted without its own model."""

    kind: str  # dense or moe
    row_id: str
    model: str
    acceptance: float
    predicted: float  # tokens/s
    published: float

    @property
    def error(self) -> float:
        return self.predicted / self.published - 1.0


def validation_report(rows: Sequence[Row], left_out: Sequence[LeftOut] = ()) -> str:
    """Writes the whole report: every row, each group's errors, every fitted constant.

    The results of `calibrate.leave_models_out` are printed beside the fit's errors.
    """
    lines = row_lines(rows, WaferRows().predict)
    lines += [*_left_out_lines(left_out), CONSTANTS_TITLE]
    for constants in (WSE2_CONSTANTS, WSE3_CONSTANTS):
        for group in _GROUPS:
            fitted = getattr(constants, group)
            if fitted is not None:
                values = msgspec.structs.asdict(fitted)
                fitted_to = " ".join(values.pop("rows"))
                lines += constants_lines(f"{constants.generation} {group}", values, fitted_to)
    return "\n".join([*lines, *_service_lines(), *_headline_lines()])


def _headline_lines() -> list[str]:
    """Says what the default's speed rests on: most of it is an assumed draft."""
    cost = WaferCost(kv_tokens=HEADLINE_KV_TOKENS)
    plain = WaferCost(kv_tokens=HEADLINE_KV_TOKENS, speculation=NO_SPECULATION)
    return [
        "",
        f"The default, {cost.model.name} on {cost.num_wafers} wafers: "
        f"{cost.tokens_per_s(HEADLINE_TOKENS):,.0f} tokens/s at {HEADLINE_TOKENS:,} tokens of "
        "context",
        f"  with a draft of {cost.speculation.draft_tokens} tokens, assumed, of which "
        f"{cost.speculation.acceptance:.3f} are accepted, fitted to other models' speeds",
        f"  without that draft: {plain.tokens_per_s(HEADLINE_TOKENS):,.0f} tokens/s",
    ]


def _left_out_lines(left_out: Sequence[LeftOut]) -> list[str]:
    """Lists service speeds by an acceptance fitted without the model, as for a new model."""
    if not left_out:
        return []
    lines = ["Service speeds, each model predicted by the acceptance that the others give"]
    lines += [
        f"  {one.kind:5} {one.model:30} {one.row_id:12} acceptance {one.acceptance:.3f}  "
        f"{one.predicted:7,.0f}  {one.published:7,.0f}  {one.error:+7.1%}"
        for one in left_out
    ]
    for kind in dict.fromkeys(one.kind for one in left_out):
        errors = [abs(one.error) for one in left_out if one.kind == kind]
        lines.append(f"  {kind}: mean {statistics.fmean(errors):.1%}, worst {max(errors):.1%}")
    return [*lines, ""]


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
