"""`lanewise decisions` finds what was decided, and what came of it. This is an edge."""

import argparse
import time

from gateway.cli.admin_client import ADMIN_ARGUMENTS, ask_admin
from gateway.cli.command import Command, argument
from gateway.cli.output import Row, show, show_table
from gateway.cli.times import instant, time_text, unix_s
from gateway.config.command_error import CommandError

_NOTHING = (
    "No decision here fits. Each gateway process keeps its latest 200, and more where "
    "`recording.path` is set."
)
_EXACT = ("id", "tenant", "rule", "outcome")


def _decisions(arguments: argparse.Namespace) -> int:
    if arguments.limit < 1:
        raise CommandError(f"--limit: expected 1 or more, got {arguments.limit}")
    query = {name: getattr(arguments, name) for name in _EXACT if getattr(arguments, name)}
    query["limit"] = str(arguments.limit)
    for name in ("since", "before"):
        if (when := getattr(arguments, name)) is not None:
            query[name] = str(unix_s(when, time.time()))
    rows = ask_admin(arguments, "GET", "decisions", query=query)
    if arguments.id and rows and not arguments.json:
        return show(arguments, rows, "\n".join(_story(rows[0])))
    columns = ("at", "id", "tenant", "route", "why", "outcome", "ttft_ms", "duration_ms", "tokens")
    return show_table(arguments, rows, columns, _cells, nothing=_NOTHING)


def _cells(row: Row) -> Row:
    times = {
        name: "" if row.get(name) is None else f"{row[name]:.0f}"
        for name in ("ttft_ms", "duration_ms")
    }
    return (
        row
        | times
        | {
            "at": time_text(row["at"]),
            "route": row["strategy"] or row["route"],
            "why": row["rule"] or row["reason"],
            "outcome": row["error"] or row["outcome"],
            "tokens": f"{row['input_tokens']}+{row['output_tokens']}",
        }
    )


def _story(row: Row) -> list[str]:
    """Returns every field that says something, a line each."""
    given = {name: value for name, value in row.items() if value not in (None, [], False)}
    given["at"] = time_text(row["at"])
    width = max(map(len, given))
    return [f"{name:{width}}  {value}" for name, value in given.items()]


COMMAND = Command(
    "lanewise decisions --tenant acme --outcome error --since 2h",
    (
        argument("--id", metavar="RESPONSE", help="one response: everything that is recorded"),
        argument("--tenant"),
        argument("--rule", help="those that this rule of the policy took"),
        argument("--outcome", help="ok, rate_limited, shed, timeout, error, cancelled or invalid"),
        argument(
            "--since", type=instant, metavar="TIME", help="2h (ago), or 2026-11-23T08:00 (UTC)"
        ),
        argument("--before", type=instant, metavar="TIME"),
        argument("--limit", type=int, default=20, help="(default: 20; 1,000 at most)"),
        *ADMIN_ARGUMENTS,
    ),
    _decisions,
    description="""\
Find decisions and what came of them, the latest first: those that the gateway has in memory, and
with `recording.path` those of its log.
""",
)
