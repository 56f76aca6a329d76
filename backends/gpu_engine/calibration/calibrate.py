"""Fits the GPU constants to reference rows and logs, following `fit_plans.py`."""

from collections.abc import Callable, Mapping, Sequence

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
from backends.gpu_engine.spec import find_gpu
from wafer_engine.calibration.fit import Vector, fit_positive, rounded, row_errors
from wafer_engine.calibration.replay import replay
from wafer_engine.calibration.rows import Row
from wafer_engine.hardware.models import MODELS

# What a constant belongs to: the host and the release, or the link; all others are a card's own.
HOST = frozenset(
    ("step_us", "layer_us", "seq_us", "launch_us", "eager_us", "quantized", "dequantized")
)
LINK = frozenset(("allreduce_us", "all_to_all_us", "link"))
MOST = {"compute": 1.0, "memory": 1.0, "kv": 1.0, "link": 1.0, "grouped_kv": 1.0}  # shares
# How much a set's own constant leans on the other sets': twice their mean costs as much as one row
# that is 10 % off. Assumed.
LEANING = 0.15
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
    evidence = [_evidence(plan.name, engine, fit, rows, logs) for fit in plan.plans]
    sets = _fit_together(evidence)
    if plan.taken_from:
        source = fitted[plan.taken_from]
        basis = f"taken over unchanged from {source.family} {source.version}"
        band = plan.taken_band
        sets.append(msgspec.structs.replace(source.sets[0], rows=(), basis=basis, band=band))
    elsewhere = _error_elsewhere(evidence, sets) if plan.taken_over else 0.0
    for source_gpu, link, gpus in plan.taken_over:
        sets.append(_taken_over(source_gpu, link, gpus, sets, elsewhere))
    return msgspec.structs.replace(engine, sets=tuple(sets))


def _taken_over(
    source: str,
    links: tuple[str, ...],
    gpus: tuple[str, ...],
    sets: Sequence[GpuConstants],
    band: float,
) -> GpuConstants:
    """Copies the set of one GPU for others: those named, or all the rest with these links.

    For them it is no nearer to what is measured than for the card that it was fitted on.
    """
    found = next(one for one in sets if source in one.gpus)
    basis = f"taken over from {source}: not measured on this GPU"
    if not gpus and links and not set(links) & set(found.links):
        # What was fitted to another kind of link says nothing of this one.
        found = msgspec.structs.replace(
            found, links=links, allreduce_us=0.0, all_to_all_us=0.0, link=0.0
        )
    band = max(rounded(band), found.band)
    return msgspec.structs.replace(found, gpus=gpus, rows=(), basis=basis, band=band)


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
        and (fit.queues or row["load"] != "poisson" or not row["metric"].startswith("ttft"))
        and (fit.moe is None or _is_moe(row["model"]) == fit.moe)
    ]


def _is_moe(model: str) -> bool:
    shape = MODELS.get(model)
    return shape is not None and shape.moe is not None


class _Evidence(msgspec.Struct, frozen=True):
    """Holds one set to fit: its start, the names of what it is fitted to, and its errors."""

    blank: GpuConstants
    first_guess: dict[str, float]
    sources: tuple[str, ...]
    errors: Callable[[GpuConstants], Vector]
    jumps: bool
    own: tuple[str, ...] = ()  # of the host's constants, those that are not shared


def _evidence(
    name: str,
    engine: EngineConstants,
    fit: FitPlan,
    rows: Sequence[Row],
    logs: Mapping[str, Sequence[Row]],
) -> _Evidence:
    links = tuple(sorted({find_gpu(gpu).link for gpu in fit.gpus}))
    blank = GpuConstants(
        gpus=fit.gpus, compute=0.55, layer_us=LAYER_US, moe=bool(fit.moe), links=links
    )
    blank = msgspec.structs.replace(blank, **fit.stated)
    first_guess = {field: FIRST_GUESS[field] for field in fit.free}
    if not fit.metrics:
        return _log_evidence(engine, fit, logs, blank, first_guess)

    def predictor(constants: GpuConstants) -> GpuRows:
        anyones = msgspec.structs.replace(constants, gpus=())
        return GpuRows({name: msgspec.structs.replace(engine, sets=(anyones,))})

    probe = predictor(msgspec.structs.replace(blank, **first_guess))
    chosen = [row for row in chosen_rows(name, fit, rows) if probe.predict(row).value is not None]
    if not chosen:
        raise ValueError(f"no rows to fit {name} {fit.gpus} to")
    return _Evidence(
        blank,
        first_guess,
        tuple(row["id"] for row in chosen),
        lambda constants: row_errors(predictor(constants).predict, chosen),
        any(row["load"] in ("poisson", "closed") for row in chosen),
        fit.own,
    )


def _log_evidence(
    engine: EngineConstants,
    fit: FitPlan,
    logs: Mapping[str, Sequence[Row]],
    blank: GpuConstants,
    first_guess: dict[str, float],
) -> _Evidence:
    """Compares with all logs of a card: mean times of consecutive groups of requests."""
    chosen = [log for log in SERVER_LOGS if log.gpu in fit.gpus]
    requests = [requests_of(logs[log.file]) for log in chosen]
    measured = [measured_times(logs[log.file]) or [] for log in chosen]

    def errors(constants: GpuConstants) -> Vector:
        anyones = msgspec.structs.replace(constants, gpus=())
        candidate = msgspec.structs.replace(engine, sets=(anyones,))
        return np.concatenate(
            [
                log_errors(real, replay(cost_of_log(log, candidate), arrivals))
                for log, arrivals, real in zip(chosen, requests, measured, strict=True)
            ]
        )

    sources = tuple(f"requests/{log.file}" for log in chosen)
    return _Evidence(blank, first_guess, sources, errors, True)


def _fit_together(evidence: Sequence[_Evidence]) -> list[GpuConstants]:
    """Fits all sets of a release at once.

    A constant of the host is one value for all sets, one of the link one for all sets with that
    link, and the rest are each set's own, but lean on each other's: a set of few rows stays near
    the mean of the others.
    """
    places = [
        {name: _scope(name, number, one) for name in one.first_guess}
        for number, one in enumerate(evidence)
    ]
    start = {
        place: one.first_guess[name]
        for one, named in zip(evidence, places, strict=True)
        for name, place in named.items()
    }
    order = list(start)
    # For each constant that several sets have of their own: where its values stand.
    leaning = [
        [order.index(place) for place in order if place[0] == name]
        for name in sorted({place[0] for place in order if place[0] not in HOST})
    ]
    known: list[dict[GpuConstants, Vector]] = [{} for _ in evidence]

    def sets_of(values: Vector) -> list[GpuConstants]:
        found = dict(zip(order, (float(value) for value in values), strict=True))
        return [
            msgspec.structs.replace(one.blank, **{name: found[at] for name, at in named.items()})
            for one, named in zip(evidence, places, strict=True)
        ]

    def errors(values: Vector) -> Vector:
        parts = []
        for constants, one, seen in zip(sets_of(values), evidence, known, strict=True):
            if constants not in seen:  # most steps of a derivative change one set alone
                seen[constants] = one.errors(constants)
            parts.append(seen[constants])
        logs = np.log(values)
        parts += [LEANING * (logs[spots] - logs[spots].mean()) for spots in leaning]
        return np.concatenate(parts)

    difference = JUMPY_DIFFERENCE if any(one.jumps for one in evidence) else SMOOTH_DIFFERENCE
    most = np.array([MOST.get(place[0], np.inf) for place in order])
    fitted = fit_positive(errors, np.array(list(start.values())), difference, most)
    values = np.array([rounded(value) for value in fitted.tolist()])
    sets = sets_of(values)
    return [_polished(constants, one, sets) for constants, one in zip(sets, evidence, strict=True)]


def _polished(
    constants: GpuConstants, one: _Evidence, sets: Sequence[GpuConstants]
) -> GpuConstants:
    """Chooses the share of arithmetic by the mean error, which is what a set is judged by.

    The other cards' shares are among those tried, so that no card's set is worse on its own rows
    than its neighbour's.
    """

    def mean_error(candidate: GpuConstants) -> float:
        return float(np.abs(np.expm1(one.errors(candidate))).mean())

    shares = [rounded(constants.compute * (1 + step / 50)) for step in range(-8, 9)]
    shares += [other.compute for other in sets if other.moe == constants.moe]
    if "compute" not in one.first_guess:
        shares = [constants.compute]
    candidates = [
        msgspec.structs.replace(constants, compute=min(1.0, share))
        for share in (constants.compute, *shares)
    ]
    best = min(candidates, key=mean_error)
    return msgspec.structs.replace(best, rows=one.sources, band=rounded(mean_error(best)))


def _scope(name: str, number: int, one: _Evidence) -> tuple[str, object]:
    """Returns what shares one value of a constant: all sets, those with a link, or one set."""
    if name in HOST - set(one.own):
        return name, None
    return (name, one.blank.links) if name in LINK else (name, number)


def _error_elsewhere(evidence: Sequence[_Evidence], sets: Sequence[GpuConstants]) -> float:
    """Returns how far off a card's rows are under the set that foretells them best of the others'.

    That is what to expect at least of a set that is taken over: the mean over cards. 0 where a
    release has one card.
    """
    nearest = []
    for one in evidence:
        others = [other for other in sets if set(other.gpus).isdisjoint(one.blank.gpus)]
        errors = [
            float(np.abs(np.expm1(one.errors(_without_link(other)))).mean()) for other in others
        ]
        nearest += [min(errors)] if errors else []
    return float(np.mean(nearest)) if nearest else 0.0


def _without_link(constants: GpuConstants) -> GpuConstants:
    """Returns a set without the constants of its link, which another card may not have."""
    return msgspec.structs.replace(
        constants, gpus=(), moe=False, allreduce_us=0.0, all_to_all_us=0.0, link=0.0
    )
