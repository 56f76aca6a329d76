"""Fit the GPU constants to reference rows and logs.

`plans.py` says what is fitted to what; this does it, and writes the files.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np

from backends.gpu_engine.calibration.logs import (
    SERVER_LOGS,
    cost_of_log,
    log_errors,
    measured_times,
    requests_of,
)
from backends.gpu_engine.calibration.plans import (
    FIRST_GUESS,
    PLANS,
    EnginePlan,
    FitPlan,
    LogFitPlan,
)
from backends.gpu_engine.calibration.rows import GpuRows, engine_file
from backends.gpu_engine.constants import EngineConstants, GpuConstants
from wafer_engine.calibration.fit import Vector, fit_positive
from wafer_engine.calibration.replay import replay
from wafer_engine.calibration.report import Row
from wafer_engine.hardware.models import MODELS

# Log step of finite differences where errors come from a scheduler's run, which jumps.
JUMPY_DIFFERENCE = 0.03


def calibrate(
    rows: Sequence[Row], logs: Mapping[str, Sequence[Row]], names: Sequence[str] = ()
) -> dict[str, EngineConstants]:
    """Fit every engine version that the rows have, in the order of `PLANS`.

    Args:
        rows: Reference rows.
        logs: Per-request logs, by the file names in `logs.SERVER_LOGS`.
        names: Only these constants files; all where empty.

    Raises:
        ValueError: A plan has no rows.
    """
    fitted: dict[str, EngineConstants] = {}
    for plan in PLANS:
        if not names or plan.name in names or plan.name in _needed_by(names):
            fitted[plan.name] = _fit_engine(plan, rows, logs, fitted)
    return fitted


def write_constants(folder: Path, fitted: dict[str, EngineConstants]) -> list[Path]:
    """Write one JSON file per engine version into a folder."""
    paths = []
    for name, engine in fitted.items():
        path = folder / f"{name}.json"
        path.write_bytes(msgspec.json.format(msgspec.json.encode(engine), indent=2) + b"\n")
        paths.append(path)
    return paths


def _needed_by(names: Sequence[str]) -> list[str]:
    return [plan.taken_from for plan in PLANS if plan.name in names and plan.taken_from]


def _fit_engine(
    plan: EnginePlan,
    rows: Sequence[Row],
    logs: Mapping[str, Sequence[Row]],
    fitted: dict[str, EngineConstants],
) -> EngineConstants:
    engine = EngineConstants(
        family=plan.family,
        version=plan.version,
        memory_fraction=plan.memory_fraction,
        buffer_bytes=plan.buffer_bytes,
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
    """The set of one GPU for others (empty: for all the rest)."""
    found = next(one for one in sets if source in one.gpus)
    basis = f"taken over from {source}: not measured on this GPU"
    return msgspec.structs.replace(found, gpus=gpus, rows=(), basis=basis)


def chosen_rows(name: str, fit: FitPlan, rows: Sequence[Row]) -> list[Row]:
    """The rows that decide a set of constants."""
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
    blank = GpuConstants(gpus=fit.gpus, compute=0.55, basis=fit.basis, moe=bool(fit.moe))
    blank = msgspec.structs.replace(blank, **fit.stated)

    def predictor(constants: GpuConstants) -> GpuRows:
        return GpuRows({name: msgspec.structs.replace(engine, sets=(constants,))})

    first = msgspec.structs.replace(blank, **{free: FIRST_GUESS[free] for free in fit.free})
    probe = predictor(first)
    chosen = [row for row in chosen_rows(name, fit, rows) if probe.predict(row).value is not None]
    if not chosen:
        raise ValueError(f"no rows to fit {name} {fit.gpus} to")
    published = np.array([float(row["value"]) for row in chosen])

    def errors(values: Vector) -> Vector:
        exact = msgspec.structs.replace(blank, **dict(zip(fit.free, values.tolist(), strict=True)))
        trial = predictor(exact)
        predicted = [trial.predict(row).value or float("nan") for row in chosen]
        return np.asarray(np.log(np.array(predicted) / published))

    jumps = any(row["load"] in ("poisson", "closed") for row in chosen)
    values = _solve(errors, fit.free, jumps)
    return msgspec.structs.replace(
        blank,
        rows=tuple(row["id"] for row in chosen),
        **dict(zip(fit.free, values, strict=True)),
    )


def _fit_logs(
    engine: EngineConstants, fit: LogFitPlan, logs: Mapping[str, Sequence[Row]]
) -> GpuConstants:
    """Fit to every log of a card at once: mean times of consecutive groups of requests."""
    chosen = [log for log in SERVER_LOGS if log.gpu in fit.gpus]
    blank = msgspec.structs.replace(GpuConstants(gpus=fit.gpus, compute=0.55), **fit.stated)
    requests = [requests_of(logs[log.file]) for log in chosen]
    measured = [measured_times(logs[log.file]) or [] for log in chosen]

    def errors(values: Vector) -> Vector:
        exact = msgspec.structs.replace(blank, **dict(zip(fit.free, values.tolist(), strict=True)))
        trial = msgspec.structs.replace(engine, sets=(exact,))
        return np.concatenate(
            [
                log_errors(real, replay(cost_of_log(log, trial), asked))
                for log, asked, real in zip(chosen, requests, measured, strict=True)
            ]
        )

    return msgspec.structs.replace(
        blank,
        rows=tuple(f"requests/{log.file}" for log in chosen),
        **dict(zip(fit.free, _solve(errors, fit.free, jumps=True), strict=True)),
    )


def _solve(errors: Callable[[Vector], Vector], free: Sequence[str], jumps: bool) -> list[float]:
    """The fitted values, four digits each: more would claim more than the rows hold."""
    start = np.array([FIRST_GUESS[name] for name in free])
    values = fit_positive(errors, start, difference=JUMPY_DIFFERENCE if jumps else 1e-5)
    return [float(f"{value:.4g}") for value in values.tolist()]
