"""`lanewise usage reconcile` compares what was counted with a provider's bill. This is an edge."""

import argparse
import csv
import datetime
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from gateway.cli.admin_client import ADMIN_ARGUMENTS, ask_admin
from gateway.cli.command import argument
from gateway.cli.output import Row, show_table
from gateway.config.command_error import CommandError
from gateway.store.reconcile import (
    MAX_FILE_BYTES,
    Bill,
    BillError,
    compare,
    read_bill,
    sum_bill,
)
from gateway.store.usage_days import NUM_DAYS
from router.money.prices import NUSD

ARGUMENTS = (
    argument(
        "file",
        metavar="FILE",
        type=Path,
        help="JSON or CSV of OpenAI's usage (by model) or costs (by line item), or CSV with "
        "day,model,input_tokens,output_tokens,cost",
    ),
    argument(
        "--model",
        action="append",
        default=[],
        metavar="THEIRS=OURS",
        help="what the file calls a model, and /v1/models does",
    ),
    argument(
        "--tolerance",
        type=float,
        default=1.0,
        metavar="PERCENT",
        help="by which figures may differ (default: 1)",
    ),
    argument(
        "--ledger",
        metavar="FILE",
        type=Path,
        help="ours: a .csv of `usage export` (default: the gateway's /admin/usage, 40 days)",
    ),
    *ADMIN_ARGUMENTS,
)
_COLUMNS = ("day", "model", "kind", "ours", "theirs", "share", "beyond")


def reconcile(arguments: argparse.Namespace) -> int:
    """Lists all figures; returns 1 if one differs by more than the tolerance."""
    names = dict(word.split("=", 1) for word in arguments.model if "=" in word)
    if len(names) < len(arguments.model) or not 0 <= arguments.tolerance <= 100:
        raise CommandError("expected --model THEIRS=OURS, each once, and --tolerance from 0 to 100")
    try:
        theirs = read_bill(_content(arguments.file))
    except BillError as error:
        raise CommandError(f"{arguments.file}: {error}") from error
    if arguments.ledger is None:
        ours = _used(arguments, sorted({day for day, _ in theirs}))
    else:
        ours = sum_bill(_exported(arguments.ledger))
    found = compare(theirs, ours, names, arguments.tolerance / 100)
    num_beyond = sum(each.beyond for each in found)
    rows = [msgspec.to_builtins(each) for each in found]
    show_table(arguments, rows, _COLUMNS, _cells, nothing="There is nothing to compare.")
    if not arguments.json:
        words = f"{num_beyond} of {len(found)} figures differ by more than"
        print(f"{words} {arguments.tolerance:g} %", file=sys.stderr)
    return int(num_beyond > 0)


def _cells(row: Row) -> Row:
    digits = 6 if row["kind"] == "cost_usd" else 0
    figures = {name: f"{row[name]:.{digits}f}" for name in ("ours", "theirs")}
    share = f"{100 * row['share']:.2f} %"
    return row | figures | {"share": share, "beyond": "differs" if row["beyond"] else "ok"}


def _content(path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from error
    if len(content) > MAX_FILE_BYTES:
        raise CommandError(f"{path}: {len(content):,} bytes; at most {MAX_FILE_BYTES:,} are read")
    return content


def _used(arguments: argparse.Namespace, days: list[str]) -> Bill:
    oldest = datetime.datetime.now(datetime.UTC).date() - datetime.timedelta(days=NUM_DAYS - 1)
    if days[0] < oldest.isoformat():  # of which a gateway would say that nothing was used
        raise CommandError(
            f"{arguments.file}: it begins on {days[0]}, and a gateway knows the last {NUM_DAYS} "
            f"days, from {oldest} on: take that part of it, or give --ledger"
        )
    query = {"first_day": days[0], "last_day": days[-1], "by": ["day", "model"]}
    return sum_bill(ask_admin(arguments, "GET", "usage", query=query)["rows"])


def _exported(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            for row in csv.DictReader(file):
                yield {
                    "day": row["ended_at"][:10],
                    "model": row["model"],
                    "input_tokens": int(row["input_tokens"]),
                    "output_tokens": int(row["output_tokens"]),
                    "cost_usd": int(row["cost_nusd"]) / NUSD,
                }
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from error
    except (KeyError, ValueError, TypeError) as error:
        raise CommandError(f"{path}: no .csv of `lanewise usage export`: {error}") from None
