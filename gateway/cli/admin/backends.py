"""`lanewise backends` shows how backends are, takes one out of use, and brings it back.

This is an edge.
"""

import argparse

from gateway.cli.admin_client import ADMIN_ARGUMENTS, ask_admin
from gateway.cli.command import Command, argument
from gateway.cli.output import Row, show, show_table
from gateway.cli.times import time_text

COMMAND = Command("lanewise backends list", shared=ADMIN_ARGUMENTS)

_NAME = argument("name", metavar="NAME", help="as `lanewise backends list` has it")


@COMMAND.command("list", "List the backends, and how busy each is.", "lanewise backends list")
def _list(arguments: argparse.Namespace) -> int:
    rows = ask_admin(arguments, "GET", "backends")
    columns = ("name", "group", "model", "state", "running", "waiting", "kv")
    return show_table(arguments, rows, columns, _cells, nothing="No backend.")


def _cells(row: Row) -> Row:
    state = "up" if row["healthy"] else "down"
    if row["drained"]:
        state = f"drained since {time_text(row['drained_at'])}"
    # An upstream does not say how much it can hold.
    capacity = row["kv_capacity_tokens"]
    return row | {
        "state": state,
        "running": f"{row['running']} of {row['max_num_seqs'] or '?'}",
        "kv": f"{row['kv_used_tokens'] / capacity:.0%}" if capacity else "",
    }


@COMMAND.command(
    "drain",
    "Let a backend have no new tasks, on every gateway; those that run go on.",
    "lanewise backends drain gpu-2",
    _NAME,
    description="""\
Let a backend have no new tasks, on every gateway and worker of this Redis, within a second; those
that run go on to their end. It holds over reloads and restarts until `lanewise backends resume`
(but not over a restart with an embedded Redis, which forgets it).
""",
)
def _drain(arguments: argparse.Namespace) -> int:
    row = ask_admin(arguments, "POST", "backends", arguments.name, "drain")
    text = f"{row['name']} gets no new tasks; {row['running']} run here."
    return show(arguments, row, f"{text} Back: lanewise backends resume {row['name']}")


@COMMAND.command(
    "resume", "Let a drained backend have tasks again.", "lanewise backends resume gpu-2", _NAME
)
def _resume(arguments: argparse.Namespace) -> int:
    row = ask_admin(arguments, "POST", "backends", arguments.name, "resume")
    return show(arguments, row, f"{row['name']} gets tasks again.")
