"""Prints results: as text, as a table, or as JSON with `--json`."""

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any

Row = dict[str, Any]

# What others named or wrote must not move the cursor or rename the window.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def plain(text: str) -> str:
    """Returns a text without control characters, but for the ends of its lines."""
    return _CONTROLS.sub("", text)


def one_line(text: str) -> str:
    """Returns a text as one line, which looks like no other."""
    return plain(text).replace("\n", " ")


def show(arguments: argparse.Namespace, answer: Any, text: str, status: int = 0) -> int:
    """Prints the text, or with `--json` the answer itself, and returns the exit status."""
    print(json.dumps(answer, indent=2) if arguments.json else plain(text), flush=True)
    return status


def warn(warnings: Iterable[str]) -> None:
    """Prints warnings to standard error."""
    for warning in warnings:
        print(f"warning: {plain(warning)}", file=sys.stderr)


def show_table(
    arguments: argparse.Namespace,
    rows: list[Row],
    columns: tuple[str, ...],
    cells: Callable[[Row], Row] = lambda row: row,
    *,
    nothing: str,
) -> int:
    """Prints rows as a table, or says `nothing`; `cells` makes a row's values readable."""
    if not rows:
        return show(arguments, rows, nothing)
    table = [[column.upper().removesuffix("_AT") for column in columns]]
    if not arguments.json:
        table += [
            [one_line(str(row[column])) or "-" for column in columns] for row in map(cells, rows)
        ]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ("  ".join(map(str.ljust, line, widths)).rstrip() for line in table)
    return show(arguments, rows, "\n".join(lines))
