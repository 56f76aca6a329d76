"""Fits constants to a server's logs of any kind, and writes them down as an engine's."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from backends.gpu_engine.calibration.fit_requests import FittedSet, MakeCost, fit_requests
from backends.gpu_engine.calibration.histograms import fit_snapshots, read_snapshots
from backends.gpu_engine.calibration.log_formats import is_histograms, read_served
from backends.gpu_engine.cost import GpuCost


def fit_logs(
    paths: Sequence[Path],
    base: GpuCost,
    make_cost: MakeCost,
    *,
    backend: str | None = None,
    first: int | None = None,
) -> FittedSet:
    """Fits constants to logs of one server, from those of `base`.

    `make_cost` makes the server's cost model from a set of constants. Raises ValueError for a log
    in no known format, one that tells too little, and request logs mixed with metrics.
    """
    are_histograms = [is_histograms(path) for path in paths]
    if all(are_histograms):
        return fit_snapshots(read_snapshots(paths), base.fit, make_cost)
    if any(are_histograms):
        raise ValueError("request logs and metrics in one fit: give logs of one kind")
    logs = [read_served(path, backend, first) for path in paths]
    return fit_requests(logs, base.fit, make_cost)


def write_fitted(path: Path, base: GpuCost, fitted: FittedSet) -> None:
    """Writes what was found as an engine whose only set it is; its name ends in `.json`."""
    if path.suffix != ".json":
        raise ValueError(f"{path}: expected a name that ends in .json, as --engine takes it")
    constants = msgspec.structs.replace(
        fitted.constants,
        gpus=(base.gpu.name,),
        links=(base.gpu.link,),
        rows=(f"{fitted.num_requests} of {fitted.unit}",),
        basis="",
        band=fitted.mean_error,
    )
    engine = msgspec.structs.replace(base.engine, sets=(constants,))
    path.write_bytes(msgspec.json.format(msgspec.json.encode(engine), indent=2) + b"\n")


def fit_report(fitted: FittedSet, base: GpuCost) -> str:
    """Lists each constant with its interval, what it was before, and what it rests on."""
    lines = [f"{'constant':10} {'fitted':>10} {'from':>10} {'to':>10} {'before':>10}  (90 %)"]
    lines += [
        f"{one.name:10} {one.value:10.4g} {one.low:10.4g} {one.high:10.4g} "
        f"{getattr(base.fit, one.name):10.4g}"
        for one in fitted.fitted
    ]
    lines.append(
        f"{fitted.num_requests} {fitted.unit}; their means are off by {fitted.mean_error:.1%}"
    )
    if fitted.goes_on:
        lines.append(
            "the log ends while others ran: the same traffic is taken to have gone on after it"
        )
    if base.fit.basis:
        lines.append(f"what was not fitted is {base.fit.label}")
    return "\n".join(lines)
