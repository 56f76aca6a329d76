"""Defines what every measurement gives: rows of one shape, each a ratio to a named baseline.

A script measures its subject and its baseline in turns, in one run, and ends with `publish`:

    rows.add_argument(parser)
    ...
    rows.publish([Row(name=..., unit=..., values=ours, baseline=..., ...)], arguments)

Alone it prints a table; under `make bench` (`table.py`) its rows join those of the others.
"""

import argparse
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """Says what a row should come to: `at_most`, `at_least`, `less_by` and `ahead` make one."""

    bound: float
    of: Literal["value", "ratio"] = "value"
    least: bool = False  # the bound is the least, not the most
    aim: float | None = None  # a stricter bound: where we want to get
    text: str

    def met(self, row: "Row") -> bool:
        """Says whether the row is within the bound; without a baseline no ratio is."""
        return self._within(row, self.bound)

    def aim_met(self, row: "Row") -> bool:
        """Returns the same for the stricter one."""
        return self._within(row, self.bound if self.aim is None else self.aim)

    def _within(self, row: "Row", bound: float) -> bool:
        figure = row.value if self.of == "value" else row.ratio
        if figure is None or math.isnan(figure):
            return False
        return figure >= bound if self.least else figure <= bound


def at_most(bound: float, unit: str = "", *, aim: float | None = None) -> Goal:
    """Wants the row's value to be no more."""
    return Goal(bound=bound, aim=aim, text=f"at most {figure_of(bound)} {unit}".rstrip())


def at_least(bound: float, unit: str = "", *, aim: float | None = None) -> Goal:
    """Wants the row's value to be no less."""
    text = f"at least {figure_of(bound)} {unit}".rstrip()
    return Goal(bound=bound, aim=aim, least=True, text=text)


def less_by(percent: float, *, aim: float | None = None) -> Goal:
    """Wants the row's value to be so many per cent less than the baseline's."""
    aimed = None if aim is None else (100 - aim) / 100
    return Goal(
        bound=(100 - percent) / 100, of="ratio", aim=aimed, text=f"-{percent:.0f} % or more"
    )


def ahead(times: float = 1.0) -> Goal:
    """Wants at most so many times the baseline's value: 1.0 is "no worse than"."""
    text = "no more than the baseline" if times == 1 else f"at most {times:g} times the baseline"
    return Goal(bound=times, of="ratio", text=text)


class Plot(msgspec.Struct, frozen=True, kw_only=True):
    """Holds points that the document shows, with the straight line through them."""

    slug: str  # its file's stem
    title: str
    x_label: str
    y_label: str
    points: Sequence[tuple[float, float]]


class Row(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Is one figure. Lists hold a value for each repetition; their medians count."""

    name: str  # unique in the table
    unit: str  # of the values, such as "CPU-us/token" or "ms"
    values: Sequence[float]
    baseline: str = ""  # who else was measured, in the same run
    baseline_values: Sequence[float] = ()
    goal: Goal | None = None
    # CPU time of the measured process and wall time, per operation; `per` says which.
    per: str = ""
    cpu_us: Sequence[float] = ()
    wall_us: Sequence[float] = ()
    baseline_cpu_us: Sequence[float] = ()
    baseline_wall_us: Sequence[float] = ()
    load: str = ""  # how it was checked that load and upstream are not the limit, and the outcome
    plot: Plot | None = None

    @property
    def value(self) -> float:
        """Returns the median."""
        return median(self.values)

    @property
    def baseline_value(self) -> float | None:
        """Returns the baseline's median."""
        return median(self.baseline_values) if self.baseline_values else None

    @property
    def ratio(self) -> float | None:
        """Divides the two medians: below 1 where ours is less."""
        theirs = self.baseline_value
        return self.value / theirs if theirs else None

    @property
    def met(self) -> bool | None:
        """Says whether the goal is; None without one."""
        return None if self.goal is None else self.goal.met(self)

    def joined(self, other: "Row") -> "Row":
        """Adds the repetitions of another run of the same script."""
        lists = ("values", "baseline_values", "cpu_us", "wall_us")
        lists += ("baseline_cpu_us", "baseline_wall_us")
        changes = {name: [*getattr(self, name), *getattr(other, name)] for name in lists}
        loads = dict.fromkeys(load for load in (self.load, other.load) if load)
        plot = self.plot
        if plot is not None and other.plot is not None:
            points = [*plot.points, *other.plot.points]
            plot = msgspec.structs.replace(plot, points=points)
        return msgspec.structs.replace(self, **changes, load=" | ".join(loads), plot=plot)

    def as_json(self) -> dict[str, Any]:
        """Returns all fields and what follows from them, to be kept."""
        computed = {"value": self.value, "baseline_value": self.baseline_value}
        return {
            **msgspec.to_builtins(self),
            **computed,
            "ratio": self.ratio,
            "met": self.met,
            "aim_met": None if self.goal is None else self.goal.aim_met(self),
        }


def median(values: Sequence[float]) -> float:
    """Returns the median; not a number where there are none."""
    return statistics.median(values) if values else math.nan


def figure_of(value: float | None) -> str:
    """Writes three digits, or all of the integer part."""
    if value is None or math.isnan(value):
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


HEAD = ("row", "measured", "baseline", "ratio", "goal", "met", "CPU us", "wall us", "per")
RIGHT = frozenset({"measured", "ratio", "CPU us", "wall us"})


def cells_of(row: Row) -> tuple[str, ...]:
    """Returns one for each column of HEAD."""
    theirs = row.baseline_value
    baseline = row.baseline if theirs is None else f"{figure_of(theirs)} ({row.baseline})"
    ratio = "-" if row.ratio is None else f"{row.ratio:.2f}"
    if row.ratio is not None and row.ratio < 1:
        ratio += f" (-{1 - row.ratio:.0%})"
    met = "" if row.goal is None else "yes" if row.met else "NO"
    if row.goal is not None and row.goal.aim is not None and row.goal.aim_met(row):
        met = "yes, and aim"
    both = [
        f"{figure_of(median(ours))}{f' / {figure_of(median(base))}' if base else ''}"
        for ours, base in (
            (row.cpu_us, row.baseline_cpu_us),
            (row.wall_us, row.baseline_wall_us),
        )
    ]
    measured = f"{figure_of(row.value)} {row.unit}"
    goal = row.goal.text if row.goal else ""
    if row.goal is not None and row.goal.aim is not None:
        aim = row.goal.aim
        goal += f"; aim {figure_of(aim) if row.goal.of == 'value' else f'-{1 - aim:.0%}'}"
    return (row.name, measured, baseline or "-", ratio, goal, met, *both, row.per)


def text_table(rows: Sequence[Row]) -> str:
    """Writes a table for a terminal."""
    lines = [HEAD, *map(cells_of, rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(HEAD))]
    return "\n".join(
        "  ".join(
            f"{cell:>{width}}" if head in RIGHT else f"{cell:<{width}}"
            for cell, width, head in zip(line, widths, HEAD, strict=True)
        ).rstrip()
        for line in lines
    )


def markdown_table(rows: Sequence[Row]) -> str:
    """Writes a table for a document."""
    ruler = ["---:" if head in RIGHT else "---" for head in HEAD]
    lines = [HEAD, ruler, *map(cells_of, rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Adds the argument that `table.py` passes."""
    parser.add_argument("--rows", type=Path, metavar="FILE", help="write the rows there as JSON")


def publish(rows: Sequence[Row], arguments: argparse.Namespace) -> None:
    """Print them, or write them where `--rows` says."""
    if arguments.rows is None:
        print(text_table(rows))
    else:
        arguments.rows.write_bytes(msgspec.json.encode(rows))


def read(path: Path) -> list[Row]:
    """Returns what `publish` wrote."""
    return msgspec.json.decode(path.read_bytes(), type=list[Row])
