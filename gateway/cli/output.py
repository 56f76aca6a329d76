"""Prints results: as text, as a table, or as JSON with `--json`."""

import argparse
import json
from collections.abc import Callable
from typing import Any

Row = dict[str, Any]


def show(arguments: argparse.Namespace, answer: Any, text: str, status: int = 0) -> int:
    """Prints the text, or with `--json` the answer itself, and returns the exit status."""
    print(json.dumps(answer, indent=2) if arguments.json else text, flush=True)
    return status


def show_table(
    arguments: argparse.Namespace,
    rows: list[Row],
    columns: tuple[str, ...],
    cells: Callable[[Row], Row] = lambda row: row,
) -> int:
    """Prints rows as a table; `cells` makes a row's values readable."""
    table = [[column.upper().removesuffix("_AT") for column in columns]]
    if not arguments.json:
        table += [[str(row[column]) or "-" for column in columns] for row in map(cells, rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ("  ".join(map(str.ljust, line, widths)).rstrip() for line in table)
    return show(arguments, rows, "\n".join(lines))
