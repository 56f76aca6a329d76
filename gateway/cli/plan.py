"""`lanewise plan` says how many servers of which kinds are needed, also in sweeps.

This is an edge.
"""

import argparse
import csv
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from gateway.cli.command import Command, argument
from gateway.cli.output import show
from gateway.planning.files import PlanError, read_material
from gateway.planning.sweeps import Journal, Workers
from gateway.planning.sweeps import Progress as OnProgress
from router.planning.advice import advise, fleet_text, plan_text
from router.planning.cells import CellResult
from router.planning.search import Searcher
from router.planning.terms import Cell, Material, all_counts

MAX_CELLS = 1_000_000
MIN_SCALE, MAX_SCALE = 0.01, 1_000  # of a sweep's traffic, as of a plan's growth


def _plan(arguments: argparse.Namespace) -> int:
    material = _material(arguments)
    if arguments.sweep:
        return _sweep(arguments, material)
    workers = _workers(arguments, material)
    scale = material.slo.growth
    with _bar("simulating fleets") as on_progress:
        number = 0

        def simulate(cells: Sequence[Cell]) -> list[CellResult]:
            nonlocal number
            found = workers.run(cells)
            number += len(cells)
            on_progress(number, 0)
            return found

        plan = Searcher(material, scale, simulate, arguments.seed[0]).plan()
        best = {id(one): one for one in (plan.cheapest, plan.frugal) if one is not None}
        advice = [advise(material, one, simulate) for one in best.values()]
    found = {"plan": plan, "advice": advice, "kinds": [kind.name for kind in material.kinds]}
    show(arguments, msgspec.to_builtins(found), plan_text(material, plan, advice))
    return 0 if plan.cheapest is not None else 1


def _sweep(arguments: argparse.Namespace, material: Material) -> int:
    """Simulates every combination of policies, traffic, fleets and seeds."""
    if arguments.out is None:
        raise PlanError("--sweep: name with --out the folder for its journal and results")
    for one in arguments.scale:
        if not MIN_SCALE <= one <= MAX_SCALE:
            raise PlanError(f"--scale {one:g}: expected {MIN_SCALE:g} to {MAX_SCALE:,} times")
    scales = [one * material.slo.growth for one in arguments.scale]
    cells = [
        Cell(policy, scale, counts, seed)
        for policy in material.policies
        for scale in scales
        for counts in all_counts(material.kinds)
        for seed in arguments.seed
    ]
    if len(cells) > MAX_CELLS:
        raise PlanError(f"{len(cells):,} cells: at most {MAX_CELLS:,}; bound the kinds of servers")
    try:
        arguments.out.mkdir(parents=True, exist_ok=True)
        journal = Journal(arguments.out / "journal.jsonl", material)
        with _bar("cells") as on_progress:
            results = _workers(arguments, material).run(cells, journal, on_progress)
        (arguments.out / "sweep.json").write_bytes(
            msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n"
        )
        (arguments.out / "sweep.csv").write_text(_as_csv(material, results))
    except OSError as error:
        raise PlanError(f"--out {error.filename}: {error.strerror}") from error
    text = f"{len(results):,} cells, {sum(one.meets for one in results):,} meet the objectives: "
    names = {"json": str(arguments.out / "sweep.json"), "csv": str(arguments.out / "sweep.csv")}
    told = [*material.untestable, text + ", ".join(names.values())]
    return show(arguments, names, "\n".join(told))


def _as_csv(material: Material, results: Sequence[CellResult]) -> str:
    figures = sorted({name for one in results for name in one.figures})
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    kinds = [kind.name for kind in material.kinds]
    more = ("fleet", "meets", "refused", "money", "energy_kwh", "output_tokens")
    writer.writerow(["policy", "scale", "seed", *kinds, *more, *figures])
    for one in results:
        cell = one.cell
        known = (fleet_text(material, cell), one.meets, one.refused, one.money, one.energy_kwh)
        times = [one.figures.get(name, "") for name in figures]
        row = [cell.policy, cell.scale, cell.seed, *cell.counts, *known, one.output_tokens, *times]
        writer.writerow(row)
    return out.getvalue()


def _material(arguments: argparse.Namespace) -> Material:
    return read_material(
        arguments.trace, arguments.slo, arguments.prices, arguments.policy, arguments.seed[0]
    )


def _workers(arguments: argparse.Namespace, material: Material) -> Workers:
    if not 1 <= arguments.workers <= 1_024:
        raise PlanError(f"--workers {arguments.workers}: expected 1 to 1,024")
    return Workers(material, arguments.workers, arguments.scheduler)


@contextmanager
def _bar(title: str) -> Iterator[OnProgress]:
    """Draws a bar on a terminal; of a number that is not known in advance, a count."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(bar, completed=done, total=total or None)


COMMAND = Command(
    "lanewise plan --trace decisions.jsonl --slo slo.toml --prices prices.toml\n"
    "docs/planning.md has both files, and says what a plan rests on.",
    (
        argument(
            "--trace",
            metavar="FILE",
            type=Path,
            required=True,
            help="a decision log, or a CSV of requests",
        ),
        argument("--slo", metavar="FILE", type=Path, required=True, help="objectives (TOML)"),
        argument(
            "--prices", metavar="FILE", type=Path, required=True, help="kinds of servers (TOML)"
        ),
        argument(
            "--policy",
            metavar="FILE",
            type=Path,
            action="append",
            default=[],
            help="a policy to plan under, or several (default: the gateway's default)",
        ),
        argument("--sweep", action="store_true", help="simulate every combination instead"),
        argument(
            "--scale",
            metavar="FACTOR",
            type=float,
            nargs="+",
            default=[1.0],
            help="of a sweep: times the planned traffic",
        ),
        argument("--seed", type=int, nargs="+", default=[0], help="of what is drawn (default: 0)"),
        argument("--out", metavar="FOLDER", type=Path, help="of a sweep: it goes on where it was"),
        argument("--workers", type=int, default=1, help="processes (default: 1)"),
        argument("--scheduler", metavar="URL", help="a Dask scheduler, like tcp://host:8786"),
        argument("--json", action="store_true", help="print JSON"),
    ),
    run=_plan,
    description="Find the cheapest servers, in money and in energy, that meet objectives.",
    note="exit status: 0 found, 1 no fleet meets the objectives, 2 not made",
)
