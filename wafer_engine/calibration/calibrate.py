"""Fits the wafer's constants to reference rows.

Each group of constants is fitted to rows of its own kind and generation, and keeps their ids. The
constants that are not free here stay at zero, as the rows do not support them: on the WSE-2 vector
starts hide the multiply-accumulates, on the WSE-3 it is the other way round. A constant that
leaving rows out one at a time cannot tell from zero is left out.
"""

import statistics
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from wafer_engine.calibration.fit import (
    Constants,
    Vector,
    fit_constants,
    rounded,
    row_errors,
    soft_l1,
)
from wafer_engine.calibration.rows import Row, predicted_values
from wafer_engine.calibration.validate import LeftOut
from wafer_engine.calibration.wafer_rows import KERNELS, LAUNCH_DATE, WaferRows
from wafer_engine.hardware.constants import (
    SERVICE_CONSTANTS,
    WSE3_CONSTANTS,
    DecodeConstants,
    GemmConstants,
    PipelineGemvConstants,
    PrefillConstants,
    ServiceConstants,
    SramConstants,
    WaferConstants,
)
from wafer_engine.hardware.models import ModelShape, find_model

# generation -> group -> its stated constants, and first guesses of the free ones. Of 1, 2, 4 and 8
# lanes, what fits best; the hardware's vectors are 4 (WSE-2) and 8 (WSE-3) wide.
_GROUPS: dict[str, dict[str, tuple[msgspec.Struct, dict[str, float]]]] = {
    "WSE-2": {
        "decode": (DecodeConstants(), {"start": 30.0, "allreduce": 300.0, "hop": 2.0}),
        "prefill": (PrefillConstants(lanes=1), {"mac": 0.3, "vector": 50.0, "step": 200.0}),
    },
    "WSE-3": {
        "decode": (DecodeConstants(), {"mac": 0.5, "allreduce": 300.0, "hop": 2.0}),
        "prefill": (PrefillConstants(lanes=4), {"mac": 0.3, "start": 5.0, "step": 200.0}),
        "gemv": (DecodeConstants(), {"mac": 0.2, "start": 3.0, "allreduce": 300.0, "hop": 2.0}),
        "gemm": (GemmConstants(lanes=4), {"mac": 0.2, "start": 5.0, "step": 200.0}),
        "summa": (GemmConstants(lanes=4), {"start": 5.0, "step": 200.0}),
        "pipeline_gemv": (PipelineGemvConstants(), {"row": 10.0, "element": 10.0, "fixed": 1e3}),
    },
}
_METRICS = {
    "decode": "decode_tpr",
    "prefill": "prefill_tpr",
    **{kernel: metric for metric, (kernel, _) in KERNELS.items()},
}

_DRAFT_TOKENS = 4  # assumed: only the product of length and acceptance shows in a speed
_NETWORK_US = 40_000.0  # published with the rows: 30-50 ms one way


def calibrate(rows: Sequence[Row]) -> dict[str, WaferConstants | ServiceConstants]:
    """Fits everything to the rows, by file name: both generations, then the service.

    Raises ValueError if a group of constants has no rows at all.
    """
    wse2, wse3 = (_fit_generation(name, rows) for name in ("WSE-2", "WSE-3"))
    return {"wse2": wse2, "wse3": wse3, "service": _fit_service(wse3, rows)}


def _fit_generation(generation: str, rows: Sequence[Row]) -> WaferConstants:
    own = [row for row in rows if row["hardware"] == generation]
    groups = {group: _fit_group(generation, group, own) for group in _GROUPS[generation]}
    constants = msgspec.structs.replace(WaferConstants(generation=generation), **groups)
    return _fit_sram(constants, own) if generation == "WSE-2" else constants


def _fit_group(generation: str, group: str, rows: Sequence[Row]) -> msgspec.Struct:
    chosen = [row for row in rows if row["metric"] == _METRICS[group]]
    if not chosen:
        raise ValueError(f"no rows to fit {generation} {group} to")
    nothing = WaferConstants(generation=generation)

    def errors(candidate: msgspec.Struct) -> Vector:
        return _errors(msgspec.structs.replace(nothing, **{group: candidate}), chosen)

    fitted = fit_constants(*_GROUPS[generation][group], errors)
    return msgspec.structs.replace(fitted, rows=_ids(chosen))


def _errors(constants: WaferConstants, rows: Sequence[Row]) -> Vector:
    is_older = constants.generation == "WSE-2"
    predictor = WaferRows(wse2=constants) if is_older else WaferRows(wse3=constants)
    return row_errors(predictor.predict, rows)


def _fit_sram(constants: WaferConstants, rows: Sequence[Row]) -> WaferConstants:
    chosen = [row for row in rows if row["metric"].startswith("max_decode_len")]

    def with_fraction(fraction: float) -> WaferConstants:
        return msgspec.structs.replace(constants, sram=SramConstants(fraction, _ids(chosen)))

    return _best(with_fraction, lambda candidate: _errors(candidate, chosen), range(700, 951))


def _best(
    with_fraction: Callable[[float], Constants],
    errors: Callable[[Constants], Vector],
    thousandths: range,
) -> Constants:
    """Returns the constants with the least soft-L1 loss over fractions in a range.

    Errors are relative, as the bars are: these few rows disagree with each other by 40 %.
    """
    candidates = [with_fraction(step / 1000) for step in thousandths]
    return min(candidates, key=lambda candidate: soft_l1(np.expm1(errors(candidate))))


def _fit_service(wse3: WaferConstants, rows: Sequence[Row]) -> ServiceConstants:
    """Fits one factor for the first software, one acceptance per kind of model, one overhead."""
    speeds = [row for row in rows if row["metric"] == "output_speed_per_user"]
    plain = ServiceConstants(draft_tokens=_DRAFT_TOKENS, network_us=_NETWORK_US)
    predictor = WaferRows(wse3=wse3, service=plain)
    kinds = _kinds_of(speeds, predictor)
    launch = kinds["launch"]
    predicted = predicted_values(predictor.predict, launch)
    ratios = [float(row["value"]) / value for row, value in zip(launch, predicted, strict=True)]
    factor = rounded(statistics.geometric_mean(ratios))
    service = msgspec.structs.replace(plain, launch_factor=factor, launch_rows=_ids(launch))
    for kind in ("dense", "moe"):
        service = _fit_acceptance(wse3, service, kind, kinds[kind])
    return _fit_overhead(wse3, service, rows)


def _ids(rows: Sequence[Row]) -> tuple[str, ...]:
    return tuple(row["id"] for row in rows)


def _kinds_of(speeds: Sequence[Row], predictor: WaferRows) -> dict[str, list[Row]]:
    """Groups service speed rows by what they are fitted to; the rest are for validation."""
    kinds: dict[str, list[Row]] = {"launch": [], "dense": [], "moe": []}
    for row in speeds:
        if predictor.predict(row).value is None:
            continue
        cost = predictor.service_cost(row)
        if row.get("note", "").startswith(LAUNCH_DATE):
            kinds["launch"].append(row)
        elif cost.speculation.draft_tokens:
            kinds["moe" if cost.model.moe else "dense"].append(row)
    return kinds


def _fit_acceptance(
    wse3: WaferConstants, service: ServiceConstants, kind: str, rows: Sequence[Row]
) -> ServiceConstants:
    def with_acceptance(value: float) -> ServiceConstants:
        return msgspec.structs.replace(
            service, **{f"acceptance_{kind}": value, f"{kind}_rows": _ids(rows)}
        )

    def errors(candidate: ServiceConstants) -> Vector:
        return row_errors(WaferRows(wse3=wse3, service=candidate).predict, rows)

    return _best(with_acceptance, errors, range(100, 991))


def leave_models_out(rows: Sequence[Row]) -> list[LeftOut]:
    """Fits each shipped acceptance again without one model's rows, and predicts those.

    Models of the same dimensions are left out together. A kind with a single such model gives no
    entry, as it has no other rows to fit.
    """
    speeds = [row for row in rows if row.get("metric") == "output_speed_per_user"]
    kinds = _kinds_of(speeds, WaferRows())
    left_out = []
    for kind in ("dense", "moe"):
        for shape in dict.fromkeys(map(_dimensions, kinds[kind])):
            others = [row for row in kinds[kind] if _dimensions(row) != shape]
            if not others:
                continue
            fitted = _fit_acceptance(WSE3_CONSTANTS, SERVICE_CONSTANTS, kind, others)
            own = [row for row in kinds[kind] if _dimensions(row) == shape]
            values = predicted_values(WaferRows(service=fitted).predict, own)
            acceptance = getattr(fitted, f"acceptance_{kind}")
            left_out += [
                LeftOut(kind, row["id"], row["model"], acceptance, value, float(row["value"]))
                for row, value in zip(own, values, strict=True)
            ]
    return left_out


def _dimensions(row: Row) -> ModelShape:
    return msgspec.structs.replace(find_model(row["model"]), name="")


def _fit_overhead(
    wse3: WaferConstants, service: ServiceConstants, rows: Sequence[Row]
) -> ServiceConstants:
    chosen = [row for row in rows if row["metric"] == "ttft_ms" and row["input_len"]]
    predicted = predicted_values(WaferRows(wse3=wse3, service=service).predict, chosen)
    gaps_ms = [float(row["value"]) - value for row, value in zip(chosen, predicted, strict=True)]
    overhead_us = rounded(statistics.fmean(gaps_ms) * 1e3)
    return msgspec.structs.replace(service, overhead_us=overhead_us, overhead_rows=_ids(chosen))
