"""Fits the GPU constants to reference rows and logs, following `fit_plans.py`."""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from backends.gpu_engine.calibration.fit_plans import (
    BUFFER_BYTES,
    FIRST_GUESS,
    LAYER_US,
    MEMORY_FRACTION,
    PLANS,
    EnginePlan,
    FitPlan,
)
from backends.gpu_engine.calibration.gpu_rows import GpuRows, engine_file
from backends.gpu_engine.calibration.request_logs import (
    SERVER_LOGS,
    cost_of_log,
    log_errors,
    measured_times,
    requests_of,
)
from backends.gpu_engine.constants import EngineConstants, GpuConstants
from wafer_engine.calibration.fit import Vector, fit_constants, row_errors
from wafer_engine.calibration.replay import replay
from wafer_engine.calibration.rows import Row
from wafer_engine.hardware.models import MODELS

# Log step of finite differences for errors from a scheduler's run, which jump.
JUMPY_DIFFERENCE = 0.03
SMOOTH_DIFFERENCE = 1e-5


def calibrate(
    rows: Sequence[Row], logs: Mapping[str, Sequence[Row]], names: Sequence[str] = ()
) -> dict[str, EngineConstants]:
    """Fits every engine version that the rows have, in the order of `PLANS`.

    Logs are by their file names in `request_logs.SERVER_LOGS`. With names, only those constants
    files are fitted, and the sets they take over. Raises ValueError if a plan has no rows.
    """
    needed = {plan.taken_from for plan in PLANS if plan.name in names}
    fitted: dict[str, EngineConstants] = {}
    for plan in PLANS:
        if not names or plan.name in names or plan.name in needed:
            fitted[plan.name] = _fit_engine(plan, rows, logs, fitted)
    return fitted


def _fit_engine(
    plan: EnginePlan,
    rows: Sequence[Row],
    logs: Mapping[str, Sequence[Row]],
    fitted: dict[str, EngineConstants],
) -> EngineConstants:
    engine = EngineConstants(
        family=plan.family,
        version=plan.version,
        memory_fraction=MEMORY_FRACTION,
        buffer_bytes=BUFFER_BYTES,
        max_num_seqs=plan.max_num_seqs,
        max_num_batched_tokens=plan.max_num_batched_tokens,
        sets=(),
    )
    sets = [_fit_set(plan.name, engine, fit, rows) for fit in plan.plans]
    sets += [_fit_logs(engine, fit, logs) for fit in plan.log_plans]
    if plan.taken_from:
        source = fitted[plan.taken_from]
        basis = f"taken over unchanged from {source.family} {source.version}"
        sets.append(msgspec.structs.replace(source.sets[0], rows=(), basis=basis))
    sets += [_taken_over(source, gpus, sets) for source, gpus in plan.taken_over]
    if plan.others_from:
        sets.append(_taken_over(plan.others_from, (), sets))
    return msgspec.structs.replace(engine, sets=tuple(sets))


def _taken_over(source: str, gpus: tuple[str, ...], sets: Sequence[GpuConstants]) -> GpuConstants:
    """Copies the set of one GPU for others (empty: for all the rest)."""
    found = next(one for one in sets if source in one.gpus)
    basis = f"taken over from {source}: not measured on this GPU"
    return msgspec.structs.replace(found, gpus=gpus, rows=(), basis=basis)


def chosen_rows(name: str, fit: FitPlan, rows: Sequence[Row]) -> list[Row]:
    """Selects the rows that determine a set of constants."""
    return [
        row
        for row in rows
        if engine_file(row) == name
        and row["metric"] in fit.metrics
        and (not fit.gpus or row["hardware"] in fit.gpus)
        and (not fit.loads or row["batch_or_concurrency"] in fit.loads)
        and (not fit.precisions or row["precision"] in fit.precisions)
        and (not fit.models or row["model"] in fit.models)
        and (fit.moe is None or _is_moe(row["model"]) == fit.moe)
    ]


def _is_moe(model: str) -> bool:
    shape = MODELS.get(model)
    return shape is not None and shape.moe is not None


def _fit_set(name: str, engine: EngineConstants, fit: FitPlan, rows: Sequence[Row]) -> GpuConstants:
    def predictor(constants: GpuConstants) -> GpuRows:
        return GpuRows({name: msgspec.structs.replace(engine, sets=(constants,))})

    blank, first_guess = _start(fit)
    probe = predictor(msgspec.structs.replace(blank, **first_guess))
    chosen = [row for row in chosen_rows(name, fit, rows) if probe.predict(row).value is not None]
    if not chosen:
        raise ValueError(f"no rows to fit {name} {fit.gpus} to")
    jumps = any(row["load"] in ("poisson", "closed") for row in chosen)
    fitted = fit_constants(
        blank,
        first_guess,
        lambda constants: row_errors(predictor(constants).predict, chosen),
        JUMPY_DIFFERENCE if jumps else SMOOTH_DIFFERENCE,
    )
    return msgspec.structs.replace(fitted, rows=tuple(row["id"] for row in chosen))


def _start(fit: FitPlan) -> tuple[GpuConstants, dict[str, float]]:
    blank = GpuConstants(gpus=fit.gpus, compute=0.55, layer_us=LAYER_US, moe=bool(fit.moe))
    first_guess = {name: FIRST_GUESS[name] for name in fit.free}
    return msgspec.structs.replace(blank, **fit.stated), first_guess


def _fit_logs(
    engine: EngineConstants, fit: FitPlan, logs: Mapping[str, Sequence[Row]]
) -> GpuConstants:
    """Fits all logs of a card at once: mean times of consecutive groups of requests."""
    chosen = [log for log in SERVER_LOGS if log.gpu in fit.gpus]
    requests = [requests_of(logs[log.file]) for log in chosen]
    measured = [measured_times(logs[log.file]) or [] for log in chosen]

    def errors(constants: GpuConstants) -> Vector:
        candidate = msgspec.structs.replace(engine, sets=(constants,))
        return np.concatenate(
            [
                log_errors(real, replay(cost_of_log(log, candidate), arrivals))
                for log, arrivals, real in zip(chosen, requests, measured, strict=True)
            ]
        )

    fitted = fit_constants(*_start(fit), errors, JUMPY_DIFFERENCE)
    return msgspec.structs.replace(fitted, rows=tuple(f"requests/{log.file}" for log in chosen))
