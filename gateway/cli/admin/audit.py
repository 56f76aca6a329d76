"""`lanewise audit` lists who changed what. This is an edge."""

import argparse
import json
from typing import Any

from gateway.cli.admin_client import ADMIN_ARGUMENTS, ask_admin
from gateway.cli.command import Command, argument
from gateway.cli.output import Row, one_line, show
from gateway.cli.times import time_text


def _audit(arguments: argparse.Namespace) -> int:
    query = {"limit": str(arguments.limit)}
    if arguments.trail:
        query["trail"] = arguments.trail
    rows = ask_admin(arguments, "GET", "audit", query=query)
    lines = [line for row in rows for line in _lines(row)]
    return show(arguments, rows, "\n".join(lines) or "No changes yet.")


def _lines(row: Row) -> list[str]:
    who = f"{row['author']} ({row['key']})" if row["key"] else row["author"]
    words = [time_text(row["at"]), who, row["action"], row["subject"], one_line(row["comment"])]
    lines = ["  ".join(filter(None, words))]
    for name in sorted(row["before"] | row["after"]):
        before, after = row["before"].get(name), row["after"].get(name)
        lines += [f"    {path}: {old} -> {new}" for path, old, new in _changes(name, before, after)]
    return lines


def _changes(name: str, before: Any, after: Any) -> list[tuple[str, str, str]]:
    """Returns what differs, field by field where both are records."""
    if not (isinstance(before, dict) and isinstance(after, dict)):
        return [(name, json.dumps(before), json.dumps(after))]
    fields = [field for field in before | after if before.get(field) != after.get(field)]
    return [
        (f"{name}.{field}", json.dumps(before.get(field)), json.dumps(after.get(field)))
        for field in fields
    ]


COMMAND = Command(
    "lanewise audit --limit 20",
    (
        *ADMIN_ARGUMENTS,
        argument("--limit", type=int, default=20, help="(default: 20)"),
        argument("--trail", choices=("policies", "tenants"), help="of one of the two only"),
    ),
    _audit,
    description="Say who changed what, with what was there before and after, the newest first.",
)
