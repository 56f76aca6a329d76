"""Compares what we counted with what a provider says that it billed, by UTC day and model.

Three kinds of files are read, told apart by their content:

- JSON of OpenAI's usage or costs API (`/v1/organization/usage/completions` grouped by model,
  `/v1/organization/costs` grouped by line item), a page or a list of pages; its fields are from
  developers.openai.com/api/docs/api-reference/usage, read 2026-11-23.
- CSV with the same names as columns, as OpenAI's dashboard exports it: `start_time` (Unix seconds)
  or `start_time_iso`, `model`, `input_tokens`, `output_tokens`; or of costs `line_item` and
  `amount_value`.
- A plain CSV: `day,model,input_tokens,output_tokens,cost`, where what is empty or missing is not
  compared.
"""

import csv
import datetime
import io
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec

Kind = Literal["input_tokens", "output_tokens", "cost_usd"]
KINDS: tuple[Kind, ...] = ("input_tokens", "output_tokens", "cost_usd")
MAX_FILE_BYTES = 64 * 1024 * 1024

# (day, model) -> what was counted; a kind that is missing is not known.
Bill = dict[tuple[str, str], dict[Kind, float]]
_EXPECTED = "JSON or CSV of OpenAI's usage or costs, or CSV with day, model, input_tokens, "
_EXPECTED += "output_tokens and cost"


class BillError(ValueError):
    """The file is of no known kind, or something in it is not what it should be."""


class Mismatch(msgspec.Struct, frozen=True, kw_only=True):
    """Compares a figure of ours with the provider's."""

    day: str
    model: str  # as it is called here
    kind: Kind
    ours: float
    theirs: float
    share: float  # of the larger figure, by which they differ
    beyond: bool  # more than the tolerance


def read_bill(content: bytes) -> Bill:
    """Reads a provider's file; raises `BillError`."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BillError(f"expected {_EXPECTED}; got no UTF-8 ({error})") from None
    is_json = text.lstrip()[:1] in ("{", "[")
    bill: Bill = {}
    for place, record in _json_records(text) if is_json else _csv_records(text):
        try:
            _add(bill, record)
        except ValueError as error:
            raise BillError(f"{place}: {error}") from None
    if not bill:
        raise BillError(f"no figures by day and model: expected {_EXPECTED}")
    return bill


def compare(theirs: Bill, ours: Bill, names: Mapping[str, str], tolerance: float) -> list[Mismatch]:
    """Compares each figure that the provider's file has, and those of ours that it lacks.

    Args:
        names: The provider's name of a model -> ours, where they differ; several may be one.
        tolerance: The share of the larger figure by which they may differ.
    """
    theirs = _renamed(theirs, names)
    kinds: dict[str, set[Kind]] = {}  # that their file has of a model
    for (_, model), figures in theirs.items():
        kinds.setdefault(model, set()).update(figures)
    days = {day for day, _ in theirs}
    found: list[Mismatch] = []
    for day, model in sorted(itertools.product(days, kinds)):
        for kind in KINDS:
            if kind not in kinds[model]:
                continue
            us = ours.get((day, model), {}).get(kind, 0.0)
            them = theirs.get((day, model), {}).get(kind, 0.0)
            if not us and not them:
                continue
            share = abs(us - them) / max(us, them)
            found.append(
                Mismatch(
                    day=day,
                    model=model,
                    kind=kind,
                    ours=us,
                    theirs=them,
                    share=share,
                    beyond=share > tolerance,
                )
            )
    return found


def _renamed(bill: Bill, names: Mapping[str, str]) -> Bill:
    renamed: Bill = {}
    for (day, model), figures in bill.items():
        summed = renamed.setdefault((day, names.get(model, model)), {})
        for kind, figure in figures.items():
            summed[kind] = summed.get(kind, 0.0) + figure
    return renamed


def sum_bill(rows: Iterable[Mapping[str, Any]]) -> Bill:
    """Makes a bill of ours from rows with day, model, and the figures in `KINDS`."""
    bill: Bill = {}
    for row in rows:
        figures = bill.setdefault((row["day"], row["model"]), dict.fromkeys(KINDS, 0.0))
        for kind in KINDS:
            figures[kind] += row.get(kind, 0)
    return bill


def _json_records(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        said = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BillError(f"no valid JSON: {error}") from None
    pages = said if isinstance(said, list) else [said]
    for page in pages:
        buckets = page.get("data") if isinstance(page, dict) else None
        if not isinstance(buckets, list):
            raise BillError("expected a page of OpenAI's API, with 'data', or a list of them")
        if page.get("has_more") and page is pages[-1]:
            raise BillError("'has_more' is true: the file ends before the last page. Add it.")
        for index, bucket in enumerate(buckets):
            results = bucket.get("results") if isinstance(bucket, dict) else None
            for result in results if isinstance(results, list) else ():
                if isinstance(result, dict):
                    record = {"start_time": bucket.get("start_time"), **result}
                    amount = result.get("amount")
                    if isinstance(amount, dict):
                        record["amount_value"] = amount.get("value")
                        record["amount_currency"] = amount.get("currency")
                    yield f"data[{index}]", record


def _csv_records(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    reader = csv.DictReader(io.StringIO(text))
    try:
        for record in reader:
            named = {(name or "").strip().lower(): value for name, value in record.items()}
            yield f"line {reader.line_num}", named
    except csv.Error as error:
        raise BillError(f"line {reader.line_num}: {error}") from None


def _add(bill: Bill, record: Mapping[str, Any]) -> None:
    currency = record.get("amount_currency") or "usd"
    if str(currency).lower() != "usd":
        raise ValueError(f"amounts are in {currency}; prices here are in US dollars")
    cost = next((record[n] for n in ("amount_value", "cost", "cost_usd") if record.get(n)), None)
    model = record.get("model")
    if not model and record.get("line_item"):
        model = str(record["line_item"]).partition(",")[0]  # "gpt-5, input": one of several
    if not model:
        raise ValueError("no model: group the export by model (or costs by line item)")
    day = _day_of(record)
    figures = bill.setdefault((day, str(model).strip()), {})
    given: dict[Kind, Any] = {
        "input_tokens": record.get("input_tokens"),
        "output_tokens": record.get("output_tokens"),
        "cost_usd": cost,
    }
    for kind, value in given.items():
        if value not in (None, ""):
            figures[kind] = figures.get(kind, 0.0) + _number(kind, value)


def _number(kind: Kind, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if not 0 <= number < 1e18:
        raise ValueError(f"{kind} {str(value)[:40]!r}: expected a number from 0 on")
    return number


def _day_of(record: Mapping[str, Any]) -> str:
    text = str(record.get("day") or record.get("date") or record.get("start_time_iso") or "")
    try:
        if text:
            return datetime.date.fromisoformat(text.strip()[:10]).isoformat()
        start_s = float(record.get("start_time") or "")
        return datetime.datetime.fromtimestamp(start_s, datetime.UTC).date().isoformat()
    except (ValueError, TypeError, OverflowError, OSError):
        raise ValueError(
            "no day: expected day (YYYY-MM-DD), start_time_iso, or start_time in Unix seconds"
        ) from None
