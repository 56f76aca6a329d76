"""Numbers out of a row's cells, checked before any model sees them.

A row is somebody's measurement, typed by hand or by a script: what cannot be one is refused in
words, so that a file of rows never stops at a bad one and never gets a figure for nonsense.
"""

import math
import re

from wafer_engine.calibration.report import Row

# The longest published context windows are ten million tokens (Llama 4 Scout, 2025-04).
MAX_LENGTH_TOKENS = 10_000_000
MAX_COUNT = 1_000_000  # of users, requests, GPUs, wafers: beyond any published row

# A request of these metrics ends with its prompt: no output is a valid length of output.
_PROMPT_METRICS = ("prefill", "ttft")
_LENGTHS = ("input_len", "output_len")
_COUNTS = ("tp", "pp", "count")


class NotModelledError(Exception):
    """The row is outside what the models cover; the text says why."""


def check_row(row: Row) -> None:
    """Refuse a row with a number that no measurement can have. Empty cells pass.

    Lengths may be words (a data set's name): the models that need numbers say so themselves.

    Raises:
        NotModelledError: A length, count or size is not finite, not in its range, or not whole.
    """
    prompt_only = row.get("metric", "").startswith(_PROMPT_METRICS)
    for column in _LENGTHS:
        least = 0.0 if column == "output_len" and prompt_only else 1.0
        if row.get(column) and _parsed(row[column]) is not None:
            number(row, column, least, MAX_LENGTH_TOKENS)
    for column in _COUNTS:
        whole(row, column, 1)
    load = row.get("batch_or_concurrency", "")
    if load == "max":
        return
    rate = re.fullmatch(r"[qs]ps=(.*)", load)
    if rate is None:
        whole(row, "batch_or_concurrency", 1)
        return
    per_s = _parsed(rate[1])
    if per_s is None or math.isnan(per_s) or per_s <= 0:
        raise NotModelledError(f"batch_or_concurrency is {load!r}: expected a rate above 0")


def number(row: Row, column: str, least: float = 1.0, most: float = MAX_LENGTH_TOKENS) -> float:
    """A cell as a number from `least` to `most`.

    Raises:
        NotModelledError: It is empty, no number, or out of range.
    """
    cell = row.get(column, "")
    if not cell:
        raise NotModelledError(f"no {column} is given")
    value = _parsed(cell)
    if value is None or not least <= value <= most:
        raise NotModelledError(
            f"{column} is {cell!r}: expected a number from {least:,.10g} to {most:,.10g}"
        )
    return value


def whole(row: Row, column: str, default: int, most: int = MAX_COUNT) -> int:
    """A cell as a whole number from 1 to `most`; `default` where it is empty.

    Raises:
        NotModelledError: It is no number, not whole, or out of range.
    """
    if not row.get(column):
        return default
    value = number(row, column, 1.0, most)
    if value != int(value):
        raise NotModelledError(f"{column} is {row[column]!r}: expected a whole number")
    return int(value)


def finite(value: float) -> float:
    """A prediction, if it is one.

    Raises:
        NotModelledError: It is not a finite number above 0.
    """
    if not math.isfinite(value) or value <= 0:
        raise NotModelledError("the equations give no finite figure for this row")
    return value


def _parsed(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None
