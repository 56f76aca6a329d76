"""Reads rows of published measurements, checks them, and predicts them or says why not.

A row is a measurement, typed by hand or by a script. An invalid row gets a reason instead of a
prediction, so that one bad row does not stop a file. Each engine adds its own formulas:
`wafer_rows.py`, and `backends/gpu_engine/calibration/gpu_rows.py`.
"""

import csv
import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

Row = Mapping[str, str]

REFERENCE_FOLDER = Path("../shared/data/reference")  # beside the checkout

# The longest published context windows are ten million tokens (Llama 4 Scout, 2025-04).
MAX_LENGTH_TOKENS = 10_000_000
MAX_COUNT = 1_000_000  # of users, requests, GPUs, wafers: beyond any published row

# A request of these metrics ends with its prompt, so its output length may be 0.
_PROMPT_METRICS = ("prefill", "ttft")


class NotModelledError(ValueError):
    """Says why a row is outside what the models cover."""


class Prediction(msgspec.Struct, frozen=True):
    """Is a model's prediction of one published figure: a value, or why there is none."""

    group: str  # rows of one kind, judged together
    value: float | None = None  # in the row's own unit
    reason: str = ""  # set exactly when value is None
    bar: float | None = None  # mean absolute error the group is held to, where one is set
    constants: str = ""  # which fitted set made the value, where a model has several


def read_rows(path: Path) -> list[dict[str, str]]:
    """Reads a CSV file with a header line; cells stay text. A byte order mark is skipped."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        return list(csv.DictReader(file))


def read_reference(name: str, given: str | None) -> tuple[Path, list[dict[str, str]]]:
    """Reads the given file, or `name` in the reference folder; returns its path and its rows.

    Raises ValueError if there is no such file.
    """
    path = find_reference(name, given)
    if path is None:
        looked = given or REFERENCE_FOLDER / name
        raise ValueError(f"no reference rows at {looked}: give a file with --rows")
    return path, read_rows(path)


def find_reference(name: str, given: str | None) -> Path | None:
    """Finds the rows file: the given one, else `name` in the reference folder, else none."""
    path = Path(given) if given else REFERENCE_FOLDER / name
    return path if path.is_file() else None


def write_rows(rows: Sequence[Row]) -> str:
    """Writes rows as CSV text, with the first one's columns."""
    out = io.StringIO()
    if rows:
        writer = csv.DictWriter(out, fieldnames=list(rows[0]), extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return out.getvalue()


def predict_row(
    row: Row, group: str, bar: float | None, formula: Callable[[Row], float] | str
) -> Prediction:
    """Predicts one row by its formula; never raises for invalid cells.

    A text instead of a formula is the reason why there is none.
    """
    if isinstance(formula, str):
        return Prediction(group, reason=formula, bar=bar)
    try:
        check_row(row)
        value = formula(row)
        if not math.isfinite(value) or value <= 0:
            raise NotModelledError("the equations give no finite figure for this row")
        return Prediction(group, value, bar=bar)
    except KeyError as column:
        return Prediction(group, reason=f"no column {column}", bar=bar)
    except (ValueError, ArithmeticError) as error:
        return Prediction(group, reason=str(error), bar=bar)


def predicted_values(predict: Callable[[Row], Prediction], rows: Sequence[Row]) -> list[float]:
    """Predicts rows that are fitted to; raises ValueError if one cannot be modelled."""
    values = []
    for row in rows:
        prediction = predict(row)
        if prediction.value is None:
            raise ValueError(f"cannot fit to row {row['id']}: {prediction.reason}")
        values.append(prediction.value)
    return values


def check_row(row: Row) -> None:
    """Rejects a row with a number that no measurement can have. Empty cells pass.

    Lengths may be words (a data set's name): the models that need numbers reject those themselves.
    Raises `NotModelledError` if a length, count or size is not finite, in its range and whole.
    """
    prompt_only = row.get("metric", "").startswith(_PROMPT_METRICS)
    for column in ("input_len", "output_len"):
        least = 0.0 if column == "output_len" and prompt_only else 1.0
        if row.get(column) and _parsed(row[column]) is not None:
            number(row, column, least)
    for column in ("tp", "pp", "count"):
        whole(row, column, 1)
    load = row.get("batch_or_concurrency", "")
    rate = re.fullmatch(r"[qs]ps=(.*)", load)
    if rate is not None:
        per_s = _parsed(rate[1])
        if per_s is None or math.isnan(per_s) or per_s <= 0:
            raise NotModelledError(f"batch_or_concurrency is {load!r}: expected a rate above 0")
    elif load != "max":
        num_requests(row)


def num_requests(row: Row) -> int:
    """Reads how many users or requests there are at a time; 1 if the row does not say."""
    return whole(row, "batch_or_concurrency", 1)


def number(row: Row, column: str, least: float = 1.0, most: float = MAX_LENGTH_TOKENS) -> float:
    """Reads a cell as a number from `least` to `most`, or raises `NotModelledError`."""
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
    """Reads a cell as a whole number from 1 to `most`; `default` if it is empty.

    Raises `NotModelledError` if it is anything else.
    """
    if not row.get(column):
        return default
    value = number(row, column, 1.0, most)
    if value != int(value):
        raise NotModelledError(f"{column} is {row[column]!r}: expected a whole number")
    return int(value)


def _parsed(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None
